package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// An endpoint whose input queue has another name does with that queue all that it does
// with its own name otherwise.
func TestInputQueue_TakesThePlaceOfTheName(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var recovered recoveryRecorder
		attempts := 0
		ep := fx.newEndpoint("billing", core.Config{
			InputQueue: "orders-in", Observers: []core.Observer{recovered.observer()},
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{NumberOfRetries: 1},
				Delayed:   core.Delayed{Delays: []time.Duration{time.Minute}},
			},
		})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			attempts++
			return errors.Join(errBoom, m.Send("shipping", neverType.Of(nil)))
		})
		core.HandleEvent(ep, orderedEvent, func(_ context.Context, m *core.Message, _ []byte) error {
			return m.Send("shipping", shipByteType.Of([]byte("now")))
		})
		fx.run(ep)
		if _, err := fx.broker.Depth(fx.Context(), "billing"); !errors.Is(err, core.ErrQueueNotFound) {
			fx.Errorf("a queue with the endpoint's name: %v", err)
		}

		m1 := order("m1")
		m1.Queue = "orders-in"
		fx.send(m1)
		fx.advance(time.Second)
		equal(fx, "attempts before the delayed retry", attempts, 2)
		equal(fx, "waiting for the delayed retry", fx.depth("orders-in").Delayed, 1)
		fx.advance(time.Minute)
		equal(fx, "attempts", attempts, 4)
		failed := fx.onlyMessage("error")
		equal(fx, "FailedQ", failed.Headers.Get(headers.FailedQ), "orders-in")
		equal(fx, "endpoint", failed.Headers.Get(headers.ProcessingEndpoint), "billing")
		equal(fx, "queue that observers see", recovered.all()[0].Queue, "orders-in")

		if err := ep.Publish(fx.Context(), orderedEvent.Of([]byte("x"))); err != nil {
			fx.Fatal(err)
		}
		sent := fx.onlyMessage("shipping")
		equal(fx, "address for replies", sent.Headers.Get(headers.ReplyToAddress), "orders-in")
		equal(fx, "sender", sent.Headers.Get(headers.OriginatingEndpoint), "billing")
	})
}

// Messages that cannot be moved wait in the input queue.
func TestInputQueue_StoresUndelivered(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.failSendsTo("error")
		ep := fx.newEndpoint("billing", core.Config{InputQueue: "orders", Recoverability: noRetries})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "stored", fx.depth("orders").Delayed, 1)
	})
}

// A name that is no queue's is fine where the input queue has another.
func TestInputQueue_NameNeedNotBeAQueues(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("Billing of\tthe day ", core.Config{InputQueue: "orders"})
		handled := 0
		fx.handle(ep, "order", func(context.Context, *core.Message) error { handled++; return nil })
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "handled", handled, 1)
		if err := ep.Invoke(fx.Context(), orderType.Of([]byte("x"))); err != nil {
			fx.Error(err)
		}
	})
}
