package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestRunAll_ConnectsAllBeforeReceiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		defer transport.Close(t.Context())
		b := &bed{T: t, broker: &faulty{Transport: transport, caps: transport.Capabilities()}, logs: &logBook{}}
		first := b.endpoint("first", core.Config{Recoverability: noRetries})
		last := b.endpoint("last", core.Config{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		b.handle(first, "order", func(ctx context.Context, m *core.Message) error {
			return errors.Join(m.Publish("event", "an event"), m.Send("last", "command", "a command"))
		})
		var got record[string]
		core.HandleEvent(last, "event", func(_ context.Context, m *core.TypedMessage[string]) error {
			got.add(m.Body)
			return nil
		})
		core.Handle(last, "command", func(_ context.Context, m *core.TypedMessage[string]) error {
			got.add(m.Body)
			return nil
		})
		// The message waits already when the first endpoint connects.
		if err := first.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		if err := first.Send(ctx, "first", "order", []byte("order")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- core.RunAll(ctx, first, last) }()
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got.len() != 2 {
			t.Errorf("the last endpoint got %v, want the event and the command", got.all())
		}
	})
}

func TestRunAll_ClosesOpenedOnesWhenOneCannotConnect(t *testing.T) {
	bubble(t, func(b *bed) {
		gone := inmemory.Open()
		if err := gone.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		good := b.endpoint("orders", core.Config{})
		bad, err := core.New("shipping", gone, core.Config{})
		if err != nil {
			b.Fatal(err)
		}
		if err := core.RunAll(b.Context(), good, bad); !errors.Is(err, core.ErrClosed) {
			b.Errorf("RunAll returned %v, want the error of the endpoint whose transport is closed", err)
		}
		b.run(good) // it is free to run again
	})
}

func TestRunAll_DrainsTheOthersWhenOneEnds(t *testing.T) {
	bubble(t, func(b *bed) {
		limited := noRetries
		limited.UnacceptableMessageLimit, limited.UnacceptableMessageAction = 1, core.LimitStop
		failing := b.endpoint("orders", core.Config{Recoverability: limited})
		b.handle(failing, "order", func(context.Context, *core.Message) error { return errors.New("never") })
		other := b.endpoint("shipping", core.Config{})
		done := make(chan error, 1)
		go func() { done <- core.RunAll(b.Context(), failing, other) }()
		synctest.Wait()
		b.send(order("1"))
		if err := <-done; !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			b.Errorf("RunAll returned %v", err)
		}
		if other.Health().Running {
			b.Error("the other endpoint is still running")
		}
	})
}

func TestRunAll_RefusesInvalidEndpoints(t *testing.T) {
	bubble(t, func(b *bed) {
		if err := core.RunAll(b.Context()); err == nil {
			b.Error("RunAll without endpoints is no error")
		}
		err := core.RunAll(b.Context(), b.endpoint("orders", core.Config{}), nil)
		if err == nil || !strings.Contains(err.Error(), "endpoint 2 of 2 is nil") {
			b.Errorf("RunAll returned %v", err)
		}
	})
}

func TestRunAll_RefusesTwoReceiversOfAQueue(t *testing.T) {
	bubble(t, func(b *bed) {
		one, other := b.endpoint("orders", core.Config{}), b.endpoint("orders", core.Config{Instance: "other"})
		b.handle(other, "cancel", func(context.Context, *core.Message) error { return nil })
		err := core.RunAll(b.Context(), b.endpoint("shop", core.Config{SendOnly: true}), one, b.endpoint("shop", core.Config{SendOnly: true}), other)
		if err == nil || !strings.Contains(err.Error(), `endpoints 2 ("orders") and 4 ("orders") receive from one queue`) {
			b.Errorf("RunAll returned %v", err)
		}
		ctx, stop := context.WithCancel(b.Context())
		stop()
		elsewhere := inmemory.Open()
		if err := core.RunAll(ctx, one, b.endpointOn(elsewhere, "orders")); err != nil {
			b.Errorf("one queue name on two transports: %v", err)
		}
		if err := core.RunAll(ctx, b.endpoint("orders", core.Config{}), b.endpoint("orders", core.Config{Instance: "another"})); err != nil {
			b.Errorf("two instances with the same handlers: %v", err)
		}
	})
}

func TestRun_WarnsOfMissingHandlers(t *testing.T) {
	bubble(t, func(b *bed) {
		b.run(b.endpoint("shipping", core.Config{}))
		equal(b, "warnings of an endpoint without handlers", len(b.logs.about("has no handlers")), 1)
		b.orders(core.Config{Recoverability: core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{
			"order": {Immediate: core.Immediate{Retries: 1}},
			"odrer": {Immediate: core.Immediate{Retries: 2}},
		}}}, func(context.Context, *core.Message) error { return nil })
		lines := b.logs.about("message type without a handler")
		if len(lines) != 1 || lines[0].attrs["message_type"] != "odrer" {
			b.Errorf("%v, want one warning of the misspelt type", lines)
		}
		equal(b, "warnings of an endpoint without handlers", len(b.logs.about("has no handlers")), 1)
	})
}

func TestHandle_AfterRunIsLogged(t *testing.T) {
	bubble(t, func(b *bed) {
		ep, _ := b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		core.Handle(ep, "late", func(context.Context, *core.TypedMessage[string]) error { return nil })
		equal(b, "lines", len(b.logs.about("registered too late")), 1)
	})
}

func TestRunAll_StopsForAnEndedContext(t *testing.T) {
	bubble(t, func(b *bed) {
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		if err := core.RunAll(ctx, b.endpoint("orders", core.Config{}), b.endpoint("shipping", core.Config{})); err != nil {
			b.Errorf("RunAll returned %v", err)
		}
	})
}
