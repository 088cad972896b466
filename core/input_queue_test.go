package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// An endpoint whose input queue has another name does with that queue all that it does
// with its own name otherwise.
func TestInputQueue_TakesThePlaceOfTheName(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var recovered recoveries
		attempts := 0
		ep := b.endpoint("billing", core.Config{
			InputQueue: "orders-in", Observers: []core.Observer{recovered.observer()},
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{Retries: 1},
				Delayed:   core.Delayed{Delays: []time.Duration{time.Minute}},
			},
		})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			attempts++
			return errors.Join(errBoom, m.Send("shipping", "never", nil))
		})
		core.HandleEvent(ep, "ordered", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
			return m.Send("shipping", "ship", []byte("now"))
		})
		b.run(ep)
		if _, err := b.broker.Peek("billing"); !errors.Is(err, core.ErrQueueNotFound) {
			b.Errorf("a queue with the endpoint's name: %v", err)
		}

		m1 := order("m1")
		m1.Queue = "orders-in"
		b.send(m1)
		b.pass(time.Second)
		equal(b, "attempts before the delayed retry", attempts, 2)
		equal(b, "waiting for the delayed retry", b.depth("orders-in").Delayed, 1)
		b.pass(time.Minute)
		equal(b, "attempts", attempts, 4)
		failed := b.only("error")
		equal(b, "FailedQ", failed.Headers.Get(core.HeaderFailedQ), "orders-in")
		equal(b, "endpoint", failed.Headers.Get(core.HeaderProcessingEndpoint), "billing")
		equal(b, "queue that observers see", recovered.all()[0].Queue, "orders-in")

		if err := ep.Publish(b.Context(), "ordered", []byte("x")); err != nil {
			b.Fatal(err)
		}
		sent := b.only("shipping")
		equal(b, "address for replies", sent.Headers.Get(core.HeaderReplyToAddress), "orders-in")
		equal(b, "sender", sent.Headers.Get(core.HeaderOriginatingEndpoint), "billing")
	})
}

// What cannot be moved waits in the input queue.
func TestInputQueue_StoresUndelivered(t *testing.T) {
	bubble(t, func(b *bed) {
		b.unreachable("error")
		ep := b.endpoint("billing", core.Config{InputQueue: "orders", Recoverability: noRetries})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		b.run(ep)
		b.put("m1")
		equal(b, "stored", b.depth("orders").Delayed, 1)
	})
}

// A name that is no queue's is fine where the input queue has another.
func TestInputQueue_NameNeedNotBeAQueues(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.endpoint("Billing of\tthe day ", core.Config{InputQueue: "orders"})
		handled := 0
		b.handle(ep, "order", func(context.Context, *core.Message) error { handled++; return nil })
		b.run(ep)
		b.put("m1")
		equal(b, "handled", handled, 1)
		if err := ep.Invoke(b.Context(), "order", []byte("x")); err != nil {
			b.Error(err)
		}
	})
}
