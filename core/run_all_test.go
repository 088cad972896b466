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
		fx := &fixture{T: t, broker: &faultyTransport{Transport: transport, caps: transport.Capabilities()}, logs: &logRecorder{}}
		first := fx.newEndpoint("first", core.Config{Recoverability: noRetries})
		last := fx.newEndpoint("last", core.Config{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		fx.handle(first, "order", func(ctx context.Context, m *core.Message) error {
			return errors.Join(m.Publish(eventStringType.Of("an event")), m.Send("last", commandType.Of("a command")))
		})
		var got recorder[string]
		core.HandleEvent(last, eventStringType, func(_ context.Context, _ *core.Message, body string) error {
			got.add(body)
			return nil
		})
		core.Handle(last, commandType, func(_ context.Context, _ *core.Message, body string) error {
			got.add(body)
			return nil
		})
		// The message waits already when the first endpoint connects.
		if err := first.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		if err := first.Send(ctx, "first", orderType.Of([]byte("order"))); err != nil {
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
	bubble(t, func(fx *fixture) {
		gone := inmemory.Open()
		if err := gone.Close(fx.Context()); err != nil {
			fx.Fatal(err)
		}
		good := fx.newEndpoint("orders", core.Config{})
		bad, err := core.New("shipping", gone, core.Config{})
		if err != nil {
			fx.Fatal(err)
		}
		if err := core.RunAll(fx.Context(), good, bad); !errors.Is(err, core.ErrClosed) {
			fx.Errorf("RunAll returned %v, want the error of the endpoint whose transport is closed", err)
		}
		fx.run(good) // it is free to run again
	})
}

func TestRunAll_DrainsTheOthersWhenOneEnds(t *testing.T) {
	bubble(t, func(fx *fixture) {
		failing := fx.newEndpoint("orders", core.Config{})
		fx.handle(failing, "order", func(context.Context, *core.Message) error { return nil })
		other := fx.newEndpoint("shipping", core.Config{})
		done := make(chan error, 1)
		go func() { done <- core.RunAll(fx.Context(), failing, other) }()
		synctest.Wait()
		fx.broker.setFaults(faults{receiveFrom: func(queue string) error {
			if queue == "orders" {
				return errBoom
			}
			return nil
		}})
		fx.send(order("1")) // so that Receive is called again
		if err := <-done; !errors.Is(err, errBoom) {
			fx.Errorf("RunAll returned %v", err)
		}
		if other.Health().Running {
			fx.Error("the other endpoint is still running")
		}
	})
}

func TestRunAll_RefusesInvalidEndpoints(t *testing.T) {
	bubble(t, func(fx *fixture) {
		if err := core.RunAll(fx.Context()); err == nil {
			fx.Error("RunAll without endpoints is no error")
		}
		err := core.RunAll(fx.Context(), fx.newEndpoint("orders", core.Config{}), nil)
		if err == nil || !strings.Contains(err.Error(), "endpoint 2 of 2 is nil") {
			fx.Errorf("RunAll returned %v", err)
		}
	})
}

func TestRunAll_RefusesTwoReceiversOfAQueue(t *testing.T) {
	bubble(t, func(fx *fixture) {
		one, other := fx.newEndpoint("orders", core.Config{}), fx.newEndpoint("orders", core.Config{Instance: "other"})
		fx.handle(other, "cancel", func(context.Context, *core.Message) error { return nil })
		err := core.RunAll(fx.Context(), fx.newEndpoint("shop", core.Config{SendOnly: true}), one, fx.newEndpoint("shop", core.Config{SendOnly: true}), other)
		if err == nil || !strings.Contains(err.Error(), `endpoints 2 ("orders") and 4 ("orders") receive from one queue`) {
			fx.Errorf("RunAll returned %v", err)
		}
		ctx, stop := context.WithCancel(fx.Context())
		stop()
		elsewhere := inmemory.Open()
		if err := core.RunAll(ctx, one, fx.newEndpointOn(elsewhere, "orders")); err != nil {
			fx.Errorf("one queue name on two transports: %v", err)
		}
		if err := core.RunAll(ctx, fx.newEndpoint("orders", core.Config{}), fx.newEndpoint("orders", core.Config{Instance: "another"})); err != nil {
			fx.Errorf("two instances with the same handlers: %v", err)
		}
	})
}

func TestRun_WarnsOfMissingHandlers(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.run(fx.newEndpoint("shipping", core.Config{}))
		equal(fx, "warnings of an endpoint without handlers", len(fx.logs.find("has no handlers")), 1)
		fx.runOrders(core.Config{Recoverability: core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{
			"order": {Immediate: core.Immediate{NumberOfRetries: 1}},
			"odrer": {Immediate: core.Immediate{NumberOfRetries: 2}},
		}}}, func(context.Context, *core.Message) error { return nil })
		lines := fx.logs.find("message type without a handler")
		if len(lines) != 1 || lines[0].attrs["message_type"] != "odrer" {
			fx.Errorf("%v, want one warning of the misspelt type", lines)
		}
		equal(fx, "warnings of an endpoint without handlers", len(fx.logs.find("has no handlers")), 1)
	})
}

func TestHandle_AfterRunIsLogged(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep, _ := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		core.Handle(ep, lateType, func(context.Context, *core.Message, string) error { return nil })
		equal(fx, "lines", len(fx.logs.find("registered too late")), 1)
	})
}

func TestRunAll_StopsForAnEndedContext(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ctx, cancel := context.WithCancel(fx.Context())
		cancel()
		if err := core.RunAll(ctx, fx.newEndpoint("orders", core.Config{}), fx.newEndpoint("shipping", core.Config{})); err != nil {
			fx.Errorf("RunAll returned %v", err)
		}
	})
}
