package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// atomicSettle is CompleteWith or ReplaceWith. They differ only in their effect on the
// work done through BindContext.
type atomicSettle struct {
	name string
	call func(d core.Delivery, ctx context.Context, out []core.Outgoing) error
}

var (
	completeWith = atomicSettle{"CompleteWith", core.Delivery.CompleteWith}
	replaceWith  = atomicSettle{"ReplaceWith", core.Delivery.ReplaceWith}
)

// atomicFixture is a received message, and a queue to forward it to.
type atomicFixture struct {
	transport core.Transport
	from, to  string
	receiver  *receiver
	delivery  core.Delivery
}

// forwardedBody is the body of the message of an atomicFixture.
const forwardedBody = "to be forwarded"

func (t *caseT) atomicFixture() *atomicFixture {
	f := &atomicFixture{transport: t.open()}
	f.from, f.to = t.queue(f.transport), t.queue(f.transport)
	t.send(f.transport, t.message(f.from, forwardedBody))
	f.receiver = t.receiver(f.transport, f.from, 1)
	f.delivery = f.receiver.next()
	return f
}

// wantQueues closes the receiver and checks the messages left in both queues.
func (t *caseT) wantQueues(f *atomicFixture, when string, from, to []string) {
	f.receiver.close()
	t.wantLeft(f.from, when+", the queue that was received from", from...)
	t.wantLeft(f.to, when+", the queue that was sent to", to...)
}

func (t *caseT) trySettleWith(s atomicSettle, d core.Delivery, out ...core.Outgoing) error {
	ctx, cancel := t.withTimeout()
	defer cancel()
	return s.call(d, ctx, slices.Clone(out)) // call takes ownership of its slice
}

func (t *caseT) settleWith(s atomicSettle, d core.Delivery, out ...core.Outgoing) {
	if err := t.trySettleWith(s, d, out...); err != nil {
		t.stop(fmt.Sprintf("%s sends %d messages with a delivery that is held", s.name, len(out)), "%v", err)
	}
}

// wantSettleRefused checks that the settlement is refused, with a result for every
// message.
func (t *caseT) wantSettleRefused(s atomicSettle, d core.Delivery, want error, out ...core.Outgoing) {
	err := t.trySettleWith(s, d, out...)
	if !errors.Is(err, want) {
		t.stop(s.name+" returns an error matching "+errorName(want), "%v", err)
	}
	for i, r := range t.sendResults(err, out) {
		if r.State != core.SendRefused {
			t.fail("nothing is sent by a "+s.name+" that fails: each message is core.SendRefused", "message %d is %v", i, r.State)
		}
	}
}

func (t *caseT) reset(d core.Delivery) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := d.Reset(ctx); err != nil {
		t.stop("Reset returns nil for a delivery that is held", "%v", err)
	}
}

// refusedMessage is a message that Send refuses, and the expected error.
type refusedMessage struct {
	message core.Outgoing
	err     error
}

func (t *caseT) refusedMessages(queue string) []refusedMessage {
	garbled := t.message(queue, "garbled")
	garbled.Headers.Set("Garbled", "\xff")
	all := []refusedMessage{{garbled, core.ErrInvalidHeader}}
	add := func(err error, change func(o *core.Outgoing)) {
		m := t.message(queue, "unsendable")
		change(&m)
		all = append(all, refusedMessage{m, err})
	}
	if limit := t.caps.MaxMessageBytes; limit > 0 {
		add(core.ErrTooLarge, func(o *core.Outgoing) { o.Body = make([]byte, limit+1) })
	}
	if limit := t.caps.MaxHeaderBytes; limit > 0 {
		add(core.ErrTooLarge, func(o *core.Outgoing) { o.Headers.Set("Long", strings.Repeat("x", limit)) })
	}
	if limit := t.caps.MaxDelay; t.caps.DelayedDelivery && limit > 0 {
		add(errors.ErrUnsupported, func(o *core.Outgoing) { o.Delay = limit + max(t.caps.DelayPrecision, time.Second) })
	}
	for _, m := range t.unsupported(queue) {
		all = append(all, refusedMessage{m, errors.ErrUnsupported})
	}
	return all
}

// writeInTx writes a key in the native transaction and returns it.
func (t *caseT) writeInTx(ctx context.Context) string {
	key := t.id()
	if err := t.suite.h.NativeTx.Write(ctx, key); err != nil {
		t.stop("the context that BindContext returns lets Harness.NativeTx.Write work in the native transaction", "%v", err)
	}
	return key
}

func (t *caseT) breakTx(ctx context.Context) {
	if err := t.suite.h.NativeTx.Break(ctx); err != nil {
		t.stop("Harness.NativeTx.Break returns nil when it has broken the transaction", "%v", err)
	}
}

// wantCommitted checks that work was committed. If settlements are not confirmed that
// may take a while.
func (t *caseT) wantCommitted(key, when string) {
	if t.caps.ConfirmsSettlement {
		if !t.suite.h.NativeTx.Committed(t, key) {
			t.fail("the handler's work is committed "+when, "it is not")
		}
		return
	}
	t.await("the handler's work is committed "+when, func() bool { return t.suite.h.NativeTx.Committed(t, key) })
}

func (t *caseT) wantNotCommitted(key, when string) {
	if t.suite.h.NativeTx.Committed(t, key) {
		t.fail("the handler's work is not committed "+when, "it is")
	}
}
