package suite

import (
	"context"
	"fmt"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// settledSignal signals that the engine has settled a message.
type settledSignal chan struct{}

func (s settledSignal) observer() core.Observer {
	return core.Observer{
		Succeeded: func(context.Context, core.Handling) { s <- struct{}{} },
		Recovered: func(context.Context, core.Recovery) { s <- struct{}{} },
	}
}

// settleLoser drops the first Complete, returns the given result for it, and keeps the
// delivery. The case gives the delivery back when the engine has finished with it. Later
// calls are signalled after they have been carried out.
type settleLoser struct {
	*faultTransport
	completed chan struct{}

	mu          sync.Mutex
	lost        core.Delivery
	redelivered bool // whether the second delivery was marked as redelivered
}

func newSettleLoser(transport core.Transport, result error) *settleLoser {
	l := &settleLoser{completed: make(chan struct{}, endless)}
	l.faultTransport = &faultTransport{Transport: transport, complete: func(ctx context.Context, d core.Delivery) error {
		l.mu.Lock()
		if l.lost == nil {
			l.lost = d
		}
		isLost := l.lost == d // however often the engine repeats it
		if !isLost {
			in := d.Incoming()
			l.redelivered = in.Redelivered || in.DeliveryCount > 1
		}
		l.mu.Unlock()
		if isLost {
			return result
		}
		err := d.Complete(ctx)
		l.completed <- struct{}{}
		return err
	}}
	return l
}

// loseComplete drops the settlement of a message, with the given result, and checks that
// the message is not handled again when it is redelivered.
func (t *caseT) loseComplete(result, handled error) {
	transport := t.open()
	var seen attempts
	queue, errorQueue := t.queue(transport), t.queue(transport)
	lossy := newSettleLoser(transport, result)
	done := make(settledSignal, 2*endless)
	s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { c.Observers = []core.Observer{done.observer()} })
	s.handle("order", func(_ context.Context, m *core.Message) error { return seen.failWith(m, handled) })
	s.run()
	t.send(transport, t.command(queue, "order", "m1"))
	t.awaitSignal(done, "the message is handled")
	t.abandon(lossy.lost) // its next delivery has a count of 2, by which it is recognised
	t.awaitSignal(lossy.completed, "a message whose settlement was lost is completed when it is redelivered")
	s.wantDrained("after the message was settled again")
	t.wantAttempts(&seen, "m1", 1)
	if handled != nil {
		t.wantLeft(errorQueue, "after the move of a message, whose settlement was lost", "m1")
	}
}

var unconfirmed = unclaimed("ConfirmsSettlement", func(c core.Capabilities) bool { return c.ConfirmsSettlement })

var lostSettlementCases = []testCase{
	{rule: "R28", title: "a success whose settlement was lost is not handled again", modes: inReceiveOnly, run: func(t *caseT) {
		t.loseComplete(errInjected, nil)
	}},
	{rule: "R28", title: "a move whose settlement was lost is not repeated", modes: inReceiveOnly, run: func(t *caseT) {
		t.loseComplete(errInjected, errHandler)
	}},
	{rule: "R28", title: "a settlement that is not confirmed is remembered", modes: inReceiveOnly, needs: []need{unconfirmed}, run: func(t *caseT) {
		t.loseComplete(nil, nil)
	}},
	{rule: "R28", title: "a settlement that was lost when a receiver closed is remembered", modes: inReceiveOnly, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		lossy := newSettleLoser(transport, errInjected)
		done := make(settledSignal, 2*endless)
		s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { c.Observers = []core.Observer{done.observer()} })
		s.handle("order", func(_ context.Context, m *core.Message) error { return seen.failWith(m, nil) })
		s.run()
		t.send(transport, t.command(queue, "order", "m1"))
		t.awaitSignal(done, "the message is handled")
		s.end() // this also closes the receiver, which gives the message back
		s.run()
		t.awaitSignal(lossy.completed, "an unsettled message of a receiver that was closed is delivered to the next one")
		s.wantDrained("after the message was settled again")
		switch n := len(seen.forBody("m1")); {
		case lossy.redelivered:
			t.wantAttempts(&seen, "m1", 1)
		case n > 2:
			t.fail("the message is handled again once at most", "%d times", n)
		default:
			t.fail("a message that is redelivered after its receiver was closed has Redelivered or a DeliveryCount above 1: it is handled again where neither is", "%s", fmt.Sprint(seen.forBody("m1")))
		}
	}},
	{rule: "R28", title: "a message whose settlement failed because the broker was killed is not handled again", modes: inReceiveOnly, exclusive: true, needs: []need{brokerControl, durable, nativeCount}, run: func(t *caseT) {
		handled, copies := t.dieBeforeSettling()
		if handled != 1 || copies != 1 && !t.caps.MayDuplicate {
			t.fail("when the broker is killed after a handler's message was sent and before the settlement, the redelivered message is completed without being handled",
				"handled %d times, arrived %d times", handled, copies)
		}
	}},
	{rule: "R28", title: "a message is not handled again while its settlement waits", modes: inReceiveOnly, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		waiting, goOn, completed := make(chan core.Delivery, 1), make(chan struct{}), make(chan struct{}, endless)
		answer := sync.OnceFunc(func() { close(goOn) })
		var first sync.Once
		slow := &faultTransport{Transport: transport, complete: func(ctx context.Context, d core.Delivery) error {
			isFirst := false
			first.Do(func() { isFirst = true })
			if !isFirst {
				err := d.Complete(ctx)
				completed <- struct{}{}
				return err
			}
			waiting <- d
			<-goOn
			return errInjected
		}}
		s := t.serviceOn(slow, queue, errorQueue, nil)
		t.Cleanup(answer) // before the endpoint is stopped
		s.handle("order", func(_ context.Context, m *core.Message) error { return seen.failWith(m, nil) })
		s.run()
		t.send(transport, t.command(queue, "order", "m1"))
		var d core.Delivery
		t.await("a message that was handled is completed", func() bool {
			select {
			case d = <-waiting:
				return true
			default:
				return false
			}
		})
		t.abandon(d) // like the end of the connection or of the lock
		t.awaitSignal(completed, "a message that is redelivered while Complete waits for its first delivery is completed without its handler")
		answer()
		s.wantDrained("after the message was settled again")
		t.wantAttempts(&seen, "m1", 1)
	}},
}
