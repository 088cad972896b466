package suite

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// keepsUndelivered lets more messages fail than there are slots, while the sends selected
// by refused are refused. It checks that healthy messages are still handled, and that the
// others end in the error queue after one attempt each.
func (t *caseT) keepsUndelivered(refused func(o core.Outgoing, queue, errorQueue string) bool) {
	transport := t.open()
	var seen attempts
	queue, errorQueue := t.queue(transport), t.queue(transport)
	var ended atomic.Bool
	lossy := refusingTransport(transport, math.MaxInt64, func(o core.Outgoing) bool { return !ended.Load() && refused(o, queue, errorQueue) })
	const slots = 2
	failing := 2 * slots
	if t.mode == core.TransactionSendsAtomicWithReceive {
		failing = slots - 1 // each undelivered message occupies a native transaction
	}
	handled := make(chan struct{}, endless)
	s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { c.Concurrency = slots })
	s.handle("order", seen.fail)
	s.handle("healthy", func(context.Context, *core.Message) error {
		handled <- struct{}{}
		return nil
	})
	s.run()
	for i := range failing {
		t.send(transport, t.command(queue, "order", fmt.Sprint("m", i)))
	}
	t.await("all messages that cannot be moved are kept", func() bool { return s.Health().Undelivered == failing })
	for i := range 3 * slots {
		t.send(transport, t.command(queue, "healthy", fmt.Sprint("h", i)))
		t.awaitSignal(handled, "a message is handled while others can be moved nowhere")
	}
	ended.Store(true)
	var want []string
	for i := range failing {
		want = append(want, fmt.Sprint("m", i))
	}
	t.wantLeft(errorQueue, "after the error queue could be reached again", want...)
	for _, id := range want {
		t.wantAttempts(&seen, id, 1)
	}
	s.wantDrained("after all messages were moved")
}

var failedMoveCases = []testCase{
	{rule: "R25", title: "a move that fails is repeated without the handler", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		lossy := refusingTransport(transport, 2, func(o core.Outgoing) bool { return o.Queue == errorQueue })
		s := t.serviceOn(lossy, queue, errorQueue, nil)
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(queue, "order", "m1")
		t.send(transport, sent)
		t.wantFailedWith(s.wantOneMoved(), sent)
		t.wantAttempts(&seen, "m1", 1)
	}},
	{rule: "R25", title: "a delayed retry that fails is repeated without the handler", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		lossy := refusingTransport(transport, 1, func(o core.Outgoing) bool { return o.Delay > 0 })
		s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { c.Recoverability.Delayed = t.delayed(1) })
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(queue, "order", "m1")
		t.send(transport, sent)
		t.wantFailedWith(s.wantOneMoved(), sent)
		t.wantAttempts(&seen, "m1", 2)
	}},
	{rule: "R25", title: "messages whose error queue cannot be reached are kept, and moved when it can", modes: withRedelivery, run: func(t *caseT) {
		t.keepsUndelivered(func(o core.Outgoing, queue, errorQueue string) bool { return o.Queue == errorQueue })
	}},
	{rule: "R25", title: "messages that can neither be moved nor stored are kept, and moved when they can", modes: withRedelivery, run: func(t *caseT) {
		t.keepsUndelivered(func(o core.Outgoing, queue, errorQueue string) bool { return o.Queue == errorQueue || o.Queue == queue })
	}},
	{rule: "R25", title: "a message that can neither be moved nor stored is moved by the next Run, without its handler", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		var unreachable atomic.Bool
		unreachable.Store(true)
		s := t.serviceOn(refusingTransport(transport, math.MaxInt64, func(core.Outgoing) bool { return unreachable.Load() }), queue, errorQueue, nil)
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(queue, "order", "m1")
		t.send(transport, sent)
		t.await("the message that cannot be moved is kept", func() bool { return s.Health().Unsettled == 1 })
		s.end()
		unreachable.Store(false)
		s.run()
		t.wantFailedWith(s.wantOneMoved(), sent)
		t.wantAttempts(&seen, "m1", 1)
	}},
}
