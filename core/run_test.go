package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestNew_RefusesANilTransport(t *testing.T) {
	var nothing *inmemory.Transport
	for name, transport := range map[string]core.Transport{"nil": nil, "nil pointer": nothing} {
		if _, err := core.New("orders", transport, core.Config{}); err == nil || !containsAll(err.Error(), `"orders"`, "transport is nil") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestRun_TellsErrorsOfLateRegistrations(t *testing.T) {
	bubble(t, func(b *bed) {
		ep, run := b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		core.Handle(ep, "late", func(context.Context, *core.TypedMessage[int]) error { return nil })
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "before the first Run") {
			b.Errorf("registration while the endpoint runs: %v", err)
		}
		b.put("m1")
		b.holds("orders", 0)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		if err := b.launch(ep).wait(); err == nil || !strings.Contains(err.Error(), "before the first Run") {
			b.Errorf("Run: %v", err)
		}
	})
}

func TestRun_OneAtATime(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		handled := 0
		ep, run := b.orders(core.Config{}, func(context.Context, *core.Message) error { handled++; return nil })
		if err := b.launch(ep).wait(); err == nil || !strings.Contains(err.Error(), "running already") {
			b.Errorf("a second Run: %v", err)
		}
		for range 3 {
			b.put("m1")
			if err := run.stop(); err != nil {
				b.Error(err)
			}
			select {
			case <-ep.Ready():
				b.Error("ready after Run has returned")
			default:
			}
			equal(b, "running", ep.Health().Running, false)
			b.holds("orders", 0)
			b.put("between")
			b.holds("orders", 1)
			run = b.run(ep)
		}
		equal(b, "handled", handled, 6)
	})
}

func TestRun_UnderAnEndedContextReturnsAtOnce(t *testing.T) {
	bubble(t, func(b *bed) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		ep := b.endpoint("orders", core.Config{})
		if err := ep.Run(ctx); err != nil {
			b.Errorf("Run: %v", err)
		}
	})
}

func TestSendOnly_SendsAndHasNothingToRun(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.endpoint("website", core.Config{SendOnly: true})
		if err := ep.Send(b.Context(), "orders", "order", "x"); err != nil {
			b.Error(err)
		}
		m := b.only("orders")
		if address, ok := m.Headers.Lookup(core.HeaderReplyToAddress); ok {
			b.Errorf("a send-only endpoint asks for replies to %q", address)
		}
		if err := b.launch(ep).wait(); err == nil || !strings.Contains(err.Error(), "send-only") {
			b.Errorf("Run: %v", err)
		}
		if slices.Contains(b.broker.Queues(), "website") {
			b.Error("it has a queue")
		}
	})
}

func TestRun_EndsForAPermanentErrorOfReceive(t *testing.T) {
	inModesOn(t, locking, everyMode, func(b *bed) {
		errGone := errors.New("the queue was deleted")
		ep, run := b.orders(core.Config{Concurrency: 4}, func(context.Context, *core.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		b.broker.provoke(faults{receive: func(context.Context) (bool, int, error) { return true, 0, errGone }})
		b.put("m1")
		if err := run.wait(); !errors.Is(err, errGone) || !containsAll(err.Error(), `"orders"`, "receive") {
			b.Errorf("Run returned %v", err)
		}
		b.holds("orders", 0) // the drain let the handler finish
		b.broker.provoke(faults{})
		b.run(ep)
		b.put("m2")
		time.Sleep(10 * time.Second)
		b.holds("orders", 0)
	})
}

func TestRun_RefusesAWrongReceiveCount(t *testing.T) {
	for _, count := range []int{0, -1, 1000} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				_, run := b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
				b.broker.provoke(faults{receive: func(context.Context) (bool, int, error) { return true, count, nil }})
				b.put("m1")
				if err := run.wait(); err == nil || !strings.Contains(err.Error(), "C3") {
					b.Errorf("Run returned %v, want the rule that was broken", err)
				}
			})
		})
	}
}

func TestRun_ReturnsErrorsOfItsStart(t *testing.T) {
	bubble(t, func(b *bed) {
		b.broker.provoke(faults{open: func(context.Context) error { return errBoom }})
		ep := b.endpoint("orders", core.Config{})
		if err := b.launch(ep).wait(); !errors.Is(err, errBoom) {
			b.Errorf("Run: %v", err)
		}
		b.broker.provoke(faults{})
		missing := b.endpoint("missing", core.Config{Provision: core.ProvisionNever})
		if err := b.launch(missing).wait(); !errors.Is(err, core.ErrQueueNotFound) {
			b.Errorf("Run: %v, want ErrQueueNotFound", err)
		}
		b.run(ep)
	})
}

func TestProvision_CreatesNoCustomErrorQueue(t *testing.T) {
	bubble(t, func(b *bed) {
		config := core.Config{AuditQueue: "audit", Provision: core.ProvisionNever}
		config.Recoverability.ErrorQueue = "failed"
		ep := b.endpoint("billing", config)
		if err := ep.Provision(b.Context()); err != nil {
			b.Fatal(err)
		}
		if got := b.broker.Queues(); !slices.Equal(got, []string{"audit", "billing", "error", "failed", "orders", "shipping"}) {
			b.Errorf("queues %v", got)
		}
		b.run(ep)
	})
}

// An event that is published before its subscriber has run for the first time reaches it.
func TestProvision_Subscribes(t *testing.T) {
	bubble(t, func(b *bed) {
		var handled record[string]
		ep := b.endpoint("billing", core.Config{})
		core.HandleEvent(ep, "ordered", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
			handled.add(string(m.Body))
			return nil
		})
		if err := ep.Provision(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := ep.Publish(b.Context(), "ordered", []byte("early")); err != nil {
			b.Fatal(err)
		}
		b.run(ep)
		b.pass(time.Second)
		if got := handled.all(); !slices.Equal(got, []string{"early"}) {
			b.Errorf("handled %q, want the event that was published before Run", got)
		}
	})
}

func TestHealth_Connections(t *testing.T) {
	bubble(t, func(b *bed) {
		var told connections
		ep := b.endpoint("orders", core.Config{Observers: []core.Observer{told.observer(), hears(func(core.ConnectionChange) { panic("boom") })}})
		b.run(ep)
		since := time.Now()
		b.broker.changeConnection(core.ConnectionChange{Err: errBoom, Since: since, RetryIn: time.Second})
		health := ep.Health()
		if health.Connected || !errors.Is(health.ConnectionError, errBoom) || !health.DisconnectedSince.Equal(since) {
			b.Errorf("during the outage: %+v", health)
		}
		b.broker.changeConnection(core.ConnectionChange{Connected: true})
		if health := ep.Health(); !health.Connected || health.ConnectionError != nil {
			b.Errorf("after it: %+v", health)
		}
		synctest.Wait()
		equal(b, "told", told.len(), 2)
		equal(b, "lines", len(b.logs.about("connection")), 2)
	})
}

type connections struct{ record[core.ConnectionChange] }

func (c *connections) ConnectionChanged(e core.ConnectionChange) { c.add(e) }

func (c *connections) observer() core.Observer {
	return core.Observer{ConnectionChanged: c.ConnectionChanged}
}

func TestOnCriticalError_MayShutDown(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.unreachable("error", "orders")
		var down atomic.Bool
		var ep *core.Endpoint
		ep = b.endpoint("orders", core.Config{Recoverability: noRetries, OnCriticalError: func(context.Context, error) {
			if err := ep.Shutdown(context.Background()); err != nil {
				b.Error(err)
			}
			down.Store(true)
			panic("a panic in the callback")
		}})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		run := b.run(ep)
		b.put("m1")
		if err := run.wait(); err != nil {
			b.Errorf("Run: %v", err)
		}
		synctest.Wait()
		equal(b, "shut down", down.Load(), true)
		equal(b, "delivery count", b.only("orders").DeliveryCount, 1)
	})
}
