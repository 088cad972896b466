package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// atomicCases are about messages sent with a settlement; nativeTransactionCases are about
// a handler's work in the native transaction.
var atomicCases = []testCase{
	{rule: "C12", title: "Reset keeps the delivery", modes: inAtomic, run: func(t *caseT) {
		f := t.atomicFixture()
		rival := t.receiver(t.open(), f.from, 1)
		t.reset(f.delivery)
		rival.wantSilence("a delivery that was Reset stays locked: no other receiver gets its message")
		rival.close()
		t.reset(f.delivery)
		t.settleWith(completeWith, f.delivery, t.message(f.to, "forwarded"))
		t.wantQueues(f, "after Reset and CompleteWith", nil, []string{"forwarded"})
	}},
	{rule: "C12", title: "BindContext adds to the context it is given", modes: inAtomic, run: func(t *caseT) {
		type key struct{}
		f := t.atomicFixture()
		ctx, cancel := context.WithCancel(context.WithValue(t.ctx, key{}, "value"))
		bound := f.delivery.BindContext(ctx)
		if bound == nil {
			cancel()
			t.stop("BindContext returns a context", "it returned nil")
		}
		if got := bound.Value(key{}); got != "value" {
			t.fail("the context that BindContext returns has the values of the one it was given", "a value is %v", got)
		}
		cancel()
		select {
		case <-bound.Done():
		case <-time.After(t.timeout()):
			t.fail("the context that BindContext returns ends with the one it was given", "it did not within %v", t.timeout())
		}
		t.complete(f.delivery)
	}},
	{rule: "C12", title: "200 concurrent CompleteWith forward 200 messages", modes: inAtomic, slow: true, run: func(t *caseT) {
		t.forwardConcurrently(200)
	}},
	{rule: "C12", title: "no message is lost or duplicated when processes are killed at random", modes: inAtomic, needs: []need{processes}, run: func(t *caseT) {
		t.killAtRandom()
	}},
	{rule: "C12", title: "a commit that failed because the broker was killed is repeated", modes: inAtomic, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *caseT) {
		handled, copies := t.dieBeforeSettling()
		if copies != 1 && (copies == 0 || !t.caps.MayDuplicate) {
			t.fail("when the broker is killed before CompleteWith, no message was sent; the message is handled again, and the handler's message arrives once",
				"handled %d times, arrived %d times", handled, copies)
		}
	}},
}

func atomicSettleCases(s atomicSettle) []testCase {
	return []testCase{
		{rule: "C12", title: s.name + " sends all and consumes", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			out := t.messages(f.to, 3)
			t.settleWith(s, f.delivery, out...)
			r := t.receiver(f.transport, f.to, 3)
			for _, d := range r.take(3) {
				i := slices.IndexFunc(out, func(o core.Outgoing) bool { return o.ID == d.Incoming().ID })
				if i < 0 {
					t.stop(fmt.Sprintf("%s sends its messages", s.name), "a message %q with body %s arrived", d.Incoming().ID, excerpt(d.Incoming().Body))
				}
				t.wantSame(d.Incoming(), out[i])
				t.complete(d)
			}
			r.close()
			t.wantQueues(f, "after "+s.name, nil, nil)
		}},
		{rule: "C12", title: s.name + " of nothing consumes", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			t.settleWith(s, f.delivery)
			t.wantQueues(f, "after "+s.name+" without messages", nil, nil)
		}},
		{rule: "C12", title: s.name + " sends to the message's own queue", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			t.settleWith(s, f.delivery, t.message(f.from, "copy"), t.message(f.to, "other"))
			t.wantQueues(f, "after "+s.name+" to the queue itself and another", []string{"copy"}, []string{"other"})
		}},
		{rule: "C12", title: s.name + " sends a hundred messages", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			out := t.messages(f.to, 100)
			want := make([]string, len(out))
			for i := range out {
				want[i] = string(out[i].Body)
			}
			t.settleWith(s, f.delivery, out...)
			t.wantQueues(f, "after "+s.name+" with 100 messages", nil, want)
		}},
		{rule: "C12", title: s.name + " with an unknown queue does nothing", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			t.wantSettleRefused(s, f.delivery, core.ErrQueueNotFound, t.message(f.to, "before"), t.message(t.uniqueName(), "lost"), t.message(f.to, "after"))
			t.abandon(f.delivery)
			redelivered := f.receiver.next()
			if in := redelivered.Incoming(); string(in.Body) != forwardedBody || in.DeliveryCount < 2 {
				t.fail(fmt.Sprintf("a message whose %s was refused is redelivered after Abandon, with DeliveryCount 2", s.name), "%s with DeliveryCount %d", excerpt(in.Body), in.DeliveryCount)
			}
			t.release(redelivered)
			t.wantQueues(f, "after a refused "+s.name, []string{forwardedBody}, nil)
		}},
		{rule: "C12", title: s.name + " refuses the messages that Send refuses, and has no effect", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			for _, bad := range t.refusedMessages(f.to) {
				t.wantSettleRefused(s, f.delivery, bad.err, t.message(f.to, "good"), bad.message)
			}
			t.release(f.delivery)
			t.wantQueues(f, "after a refused "+s.name, []string{forwardedBody}, nil)
		}},
		{rule: "C12", title: s.name + " that was refused leaves any settlement possible", modes: inAtomic, run: func(t *caseT) {
			ctx, cancel := t.withTimeout()
			defer cancel()
			for _, c := range []struct {
				name     string
				settle   func(f *atomicFixture) error
				from, to []string
			}{
				{"Complete", func(f *atomicFixture) error { return f.delivery.Complete(ctx) }, nil, nil},
				{"Abandon", func(f *atomicFixture) error { return f.delivery.Abandon(ctx, errHandler) }, []string{forwardedBody}, nil},
				{"Release", func(f *atomicFixture) error { return f.delivery.Release(ctx) }, []string{forwardedBody}, nil},
				{"CompleteWith", func(f *atomicFixture) error {
					return f.delivery.CompleteWith(ctx, []core.Outgoing{t.message(f.to, "sent")})
				}, nil, []string{"sent"}},
				{"ReplaceWith", func(f *atomicFixture) error {
					return f.delivery.ReplaceWith(ctx, []core.Outgoing{t.message(f.to, "sent")})
				}, nil, []string{"sent"}},
			} {
				f := t.atomicFixture()
				t.wantSettleRefused(s, f.delivery, core.ErrQueueNotFound, t.message(f.to, "good"), t.message(t.uniqueName(), "lost"))
				if err := c.settle(f); err != nil {
					t.fail(fmt.Sprintf("after a refused %s the delivery is still held, and %s settles it", s.name, c.name), "%v", err)
				}
				t.wantQueues(f, fmt.Sprintf("after a refused %s and %s", s.name, c.name), c.from, c.to)
			}
		}},
		{rule: "C12", title: s.name + " sends delayed messages", modes: inAtomic, needs: []need{delays}, run: func(t *caseT) {
			f := t.atomicFixture()
			delayed := t.message(f.to, "late")
			delayed.Delay = t.briefDelay()
			start := time.Now()
			t.settleWith(s, f.delivery, delayed, t.message(f.to, "at once"))
			r := t.receiver(f.transport, f.to, 2)
			for _, d := range r.take(2) {
				if remaining := time.Until(start.Add(delayed.Delay)); string(d.Incoming().Body) == "late" && remaining > 0 {
					t.fail("a message that "+s.name+" sends with a delay is not early", "it arrived %v before it was due", remaining)
				}
				t.complete(d)
			}
			r.close()
			t.wantQueues(f, "after all have arrived", nil, nil)
		}},
		{rule: "C12", title: s.name + " that was refused sends no delayed message", modes: inAtomic, needs: []need{delays}, run: func(t *caseT) {
			f := t.atomicFixture()
			delayed := t.message(f.to, "late")
			delayed.Delay = t.briefDelay()
			t.wantSettleRefused(s, f.delivery, core.ErrQueueNotFound, delayed, t.message(t.uniqueName(), "lost"))
			t.complete(f.delivery)
			t.sleep(delayed.Delay + t.caps.DelayPrecision)
			t.wantQueues(f, "when the refused message would have been due", nil, nil)
		}},
		{rule: "C12", title: s.name + " publishes", modes: inAtomic, needs: []need{publishing}, run: func(t *caseT) {
			f := t.atomicFixture()
			event := t.event("event")
			t.subscribe(f.transport, f.to, event.Topic)
			t.wantSettleRefused(s, f.delivery, core.ErrQueueNotFound, event, t.message(t.uniqueName(), "lost"))
			unheard := t.event("no subscriber")
			t.settleWith(s, f.delivery, event, unheard, t.message(f.to, "command"))
			t.wantQueues(f, "after "+s.name+" with an event was refused once, then accepted", nil, []string{"event", "command"})
		}},
		{rule: "C12", title: s.name + " after its receiver was closed does nothing", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			f.receiver.close()
			if err := t.trySettleWith(s, f.delivery, t.message(f.to, "too late")); !errors.Is(err, core.ErrLockLost) {
				t.fail(s.name+" after Receiver.Close, which gave the message back, returns core.ErrLockLost", "%v", err)
			}
			t.wantQueues(f, "after "+s.name+" on a closed receiver", []string{forwardedBody}, nil)
		}},
		{rule: "C12", title: s.name + " after its lock ran out does nothing", modes: inAtomic, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
			f := t.atomicFixture()
			t.sleepPastLocks(f.delivery)
			if err := t.trySettleWith(s, f.delivery, t.message(f.to, "too late")); !errors.Is(err, core.ErrLockLost) {
				t.fail(s.name+" after the lock ran out returns core.ErrLockLost", "%v", err)
			}
			t.wantQueues(f, "after "+s.name+" with a lost lock", []string{forwardedBody}, nil)
		}},
		{rule: "C12", title: s.name + " settles once and sends once", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			t.settleWith(s, f.delivery, t.message(f.to, "first"))
			if err := t.trySettleWith(s, f.delivery, t.message(f.to, "second")); !errors.Is(err, core.ErrSettled) {
				t.fail(s.name+" of a delivery that is settled returns core.ErrSettled", "%v", err)
			}
			g := t.atomicFixture()
			t.complete(g.delivery)
			if err := t.trySettleWith(s, g.delivery, t.message(g.to, "second")); !errors.Is(err, core.ErrSettled) {
				t.fail(s.name+" after Complete returns core.ErrSettled", "%v", err)
			}
			t.wantQueues(f, "after a second "+s.name, nil, []string{"first"})
			t.wantQueues(g, "after Complete and "+s.name, nil, nil)
		}},
		{rule: "C12", title: s.name + " in an ended context is all or nothing", modes: inAtomic, run: func(t *caseT) {
			f := t.atomicFixture()
			ended, cancel := context.WithCancel(t.ctx)
			cancel()
			var from, to []string
			if err := s.call(f.delivery, ended, []core.Outgoing{t.message(f.to, "forwarded")}); err == nil {
				to = []string{"forwarded"}
			} else {
				from = []string{forwardedBody}
			}
			t.wantQueues(f, fmt.Sprintf("after %s in an ended context, which did all (%t) or nothing", s.name, from == nil), from, to)
		}},
	}
}

// forwardConcurrently forwards each of n messages with its settlement, many at the same
// time.
func (t *caseT) forwardConcurrently(n int) {
	const workers = 16
	transport := t.open()
	from, to := t.queue(transport), t.queue(transport)
	msgs := t.messages(from, n)
	for batch := range slices.Chunk(msgs, 50) {
		t.send(transport, batch...)
	}
	r := t.receiver(transport, from, workers)
	var all sync.WaitGroup
	for range n {
		d := r.next() // waits until an earlier delivery is settled
		out := t.message(to, string(d.Incoming().Body))
		t.goInGroup(&all, func() {
			if err := t.trySettleWith(completeWith, d, out); err != nil {
				t.fail("CompleteWith of different deliveries succeeds concurrently", "%v", err)
			}
		})
	}
	all.Wait()
	r.close()
	t.wantLeft(from, "after each message was forwarded")
	t.wantLeft(to, fmt.Sprintf("after %d messages were forwarded with their settlements, each exactly once", n), bodiesOf(msgs)...)
}
