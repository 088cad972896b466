package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

var errInterfered = errors.New("the connection was reset, as the case wants it")

// refusing fails the first n sends of messages that pass the filter.
func refusing(transport core.Transport, n int64, filter func(o core.Outgoing) bool) *interfering {
	var left atomic.Int64
	left.Store(n)
	return &interfering{Transport: transport, send: func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error {
		for _, o := range out {
			if filter(o) && left.Add(-1) >= 0 {
				failed := &core.SendError{}
				for _, o := range out {
					failed.Results = append(failed.Results, core.SendResult{ID: o.ID, To: o.Queue, State: core.SendUnknown, Err: errInterfered})
				}
				return failed
			}
		}
		return next(ctx)
	}}
}

// settled signals that the engine has settled a message.
type settled chan struct{}

func (s settled) observer() core.Observer {
	return core.Observer{
		Succeeded: func(context.Context, core.Success) { s <- struct{}{} },
		Recovered: func(context.Context, core.Recovery) { s <- struct{}{} },
	}
}

// losing drops the first Complete, returns the given result for it, and keeps the
// delivery. The case gives the delivery back when the engine has finished with it. Later
// calls are signalled after they have been carried out.
type losing struct {
	*interfering
	completed chan struct{}

	mu          sync.Mutex
	lost        core.Delivery
	redelivered bool // whether the second delivery was marked as redelivered
}

func losingComplete(transport core.Transport, result error) *losing {
	l := &losing{completed: make(chan struct{}, endless)}
	l.interfering = &interfering{Transport: transport, complete: func(ctx context.Context, d core.Delivery) error {
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

// losesComplete drops the settlement of a message, with the given result, and checks that
// the message is not handled again when it is redelivered.
func (t *trial) losesComplete(result, handled error) {
	transport := t.open()
	var seen attempts
	queue, errorQueue := t.queue(transport), t.queue(transport)
	lossy := losingComplete(transport, result)
	done := make(settled, 2*endless)
	s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { c.Observers = []core.Observer{done.observer()} })
	s.handle("order", func(_ context.Context, m *core.Message) error { return seen.failWith(m, handled) })
	s.run()
	t.send(transport, t.command(queue, "order", "m1"))
	t.receives(done, "the message is handled")
	t.abandon(lossy.lost) // its next delivery has a count of 2, by which it is recognised
	t.receives(lossy.completed, "a message whose settlement was lost is completed when it comes again")
	s.leftNothing("after the message was settled again")
	t.attempted(&seen, "m1", 1)
	if handled != nil {
		t.left(errorQueue, "after the move of a message, whose settlement was lost", "m1")
	}
}

// keepsUndelivered lets more messages fail than there are slots, while the sends selected
// by away are refused. It checks that healthy messages are still handled, and that the
// others end in the error queue after one attempt each.
func (t *trial) keepsUndelivered(away func(o core.Outgoing, queue, errorQueue string) bool) {
	transport := t.open()
	var seen attempts
	queue, errorQueue := t.queue(transport), t.queue(transport)
	var ended atomic.Bool
	lossy := refusing(transport, math.MaxInt64, func(o core.Outgoing) bool { return !ended.Load() && away(o, queue, errorQueue) })
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
		t.receives(handled, "a message is handled while others can be moved nowhere")
	}
	ended.Store(true)
	var want []string
	for i := range failing {
		want = append(want, fmt.Sprint("m", i))
	}
	t.left(errorQueue, "after the error queue could be reached again", want...)
	for _, id := range want {
		t.attempted(&seen, id, 1)
	}
	s.leftNothing("after all messages were moved")
}

var unconfirmed = unclaimed("ConfirmsSettlement", func(c core.Capabilities) bool { return c.ConfirmsSettlement })

var interruptionCases = []testCase{
	{rule: "R25", title: "a move that fails is repeated without the handler", in: givingBack, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		lossy := refusing(transport, 2, func(o core.Outgoing) bool { return o.Queue == errorQueue })
		s := t.serviceOn(lossy, queue, errorQueue, nil)
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(queue, "order", "m1")
		t.send(transport, sent)
		t.failedWith(s.movedOne(), sent)
		t.attempted(&seen, "m1", 1)
	}},
	{rule: "R25", title: "a delayed retry that fails is repeated without the handler", in: givingBack, needs: []need{delays}, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		lossy := refusing(transport, 1, func(o core.Outgoing) bool { return o.Delay > 0 })
		s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { c.Recoverability.Delayed = t.delayed(1) })
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(queue, "order", "m1")
		t.send(transport, sent)
		t.failedWith(s.movedOne(), sent)
		t.attempted(&seen, "m1", 2)
	}},
	{rule: "R25", title: "messages whose error queue cannot be reached are kept, and moved when it can", in: givingBack, run: func(t *trial) {
		t.keepsUndelivered(func(o core.Outgoing, queue, errorQueue string) bool { return o.Queue == errorQueue })
	}},
	{rule: "R25", title: "messages that can neither be moved nor stored are kept, and moved when they can", in: givingBack, run: func(t *trial) {
		t.keepsUndelivered(func(o core.Outgoing, queue, errorQueue string) bool { return o.Queue == errorQueue || o.Queue == queue })
	}},
	{rule: "R25", title: "a message that can neither be moved nor stored is moved by the next Run, without its handler", in: givingBack, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		var away atomic.Bool
		away.Store(true)
		s := t.serviceOn(refusing(transport, math.MaxInt64, func(core.Outgoing) bool { return away.Load() }), queue, errorQueue, nil)
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(queue, "order", "m1")
		t.send(transport, sent)
		t.await("the message that cannot be moved is kept", func() bool { return s.Health().Unsettled == 1 })
		s.end()
		away.Store(false)
		s.run()
		t.failedWith(s.movedOne(), sent)
		t.attempted(&seen, "m1", 1)
	}},
	{rule: "R27", title: "a retry that the shutdown cuts off keeps its count", in: givingBack, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		started, done := make(chan struct{}, endless), make(chan struct{}, endless)
		s := t.service(transport, func(c *core.Config) {
			c.DrainTimeout = 20 * time.Millisecond
			c.Recoverability.Immediate = core.Immediate{Retries: 3}
		})
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			switch seen.add(m) {
			case 1:
				return errHandler // so that there is a count to keep
			case 2:
				started <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			default:
				done <- struct{}{}
				return nil
			}
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.receives(started, "an abandoned message is delivered again")
		s.end()
		s.run()
		t.receives(done, "a message that was released at the shutdown is delivered to the next Run")
		s.leftNothing("after the next Run handled the message")
		t.attempted(&seen, "m1", 3)
		t.left(s.errorQueue, "after the next Run handled the message")
		third := seen.of("m1")[2].number
		switch {
		case t.caps.NativeDeliveryCount && !t.caps.CountsReleases && third != 2:
			t.fail("after the release, the DeliveryCount is that of the attempt which was cut off, 2", "%d", third)
		case t.caps.NativeDeliveryCount && third < 2:
			t.fail("after the release, the DeliveryCount is at least that of the attempt which was cut off, 2", "%d", third)
		case third < 1 || third > 2 && !t.caps.CountsReleases:
			t.fail("after the release, the DeliveryCount is 2, or 1 where the next receiver begins to count again", "%d", third)
		}
	}},
	{rule: "R28", title: "a success whose settlement was lost is not handled again", in: inReceiveOnly, run: func(t *trial) {
		t.losesComplete(errInterfered, nil)
	}},
	{rule: "R28", title: "a move whose settlement was lost is not made again", in: inReceiveOnly, run: func(t *trial) {
		t.losesComplete(errInterfered, errHandler)
	}},
	{rule: "R28", title: "a settlement that is not confirmed is remembered", in: inReceiveOnly, needs: []need{unconfirmed}, run: func(t *trial) {
		t.losesComplete(nil, nil)
	}},
	{rule: "R28", title: "a settlement that the end of a receiver lost is remembered", in: inReceiveOnly, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		lossy := losingComplete(transport, errInterfered)
		done := make(settled, 2*endless)
		s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { c.Observers = []core.Observer{done.observer()} })
		s.handle("order", func(_ context.Context, m *core.Message) error { return seen.failWith(m, nil) })
		s.run()
		t.send(transport, t.command(queue, "order", "m1"))
		t.receives(done, "the message is handled")
		s.end() // this also closes the receiver, which gives the message back
		s.run()
		t.receives(lossy.completed, "an unsettled message of a receiver that was closed is delivered to the next one")
		s.leftNothing("after the message was settled again")
		switch n := len(seen.of("m1")); {
		case lossy.redelivered:
			t.attempted(&seen, "m1", 1)
		case n > 2:
			t.fail("the message is handled again once at most", "%d times", n)
		default:
			t.fail("a message that comes again after its receiver was closed has Redelivered or a DeliveryCount above 1: it is handled again where neither is", "%s", fmt.Sprint(seen.of("m1")))
		}
	}},
}
