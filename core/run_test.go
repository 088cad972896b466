package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
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
	bubble(t, func(fx *fixture) {
		ep, run := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		core.Handle(ep, lateIntType, func(context.Context, *core.Message, int) error { return nil })
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "before the first Run") {
			fx.Errorf("registration while the endpoint runs: %v", err)
		}
		fx.enqueue("m1")
		fx.wantDepth("orders", 0)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		if err := fx.start(ep).wait(); err == nil || !strings.Contains(err.Error(), "before the first Run") {
			fx.Errorf("Run: %v", err)
		}
	})
}

func TestRun_OneAtATime(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		handled := 0
		ep, run := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { handled++; return nil })
		if err := fx.start(ep).wait(); err == nil || !strings.Contains(err.Error(), "running already") {
			fx.Errorf("a second Run: %v", err)
		}
		for range 3 {
			fx.enqueue("m1")
			if err := run.stop(); err != nil {
				fx.Error(err)
			}
			select {
			case <-ep.Ready():
				fx.Error("ready after Run has returned")
			default:
			}
			equal(fx, "running", ep.Health().Running, false)
			fx.wantDepth("orders", 0)
			fx.enqueue("between")
			fx.wantDepth("orders", 1)
			run = fx.run(ep)
		}
		equal(fx, "handled", handled, 6)
	})
}

func TestRun_UnderAnEndedContextReturnsAtOnce(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		ep := fx.newEndpoint("orders", core.Config{})
		if err := ep.Run(ctx); err != nil {
			fx.Errorf("Run: %v", err)
		}
	})
}

func TestSendOnly_SendsAndHasNothingToRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("website", core.Config{SendOnly: true})
		if err := ep.Send(fx.Context(), "orders", orderStringType.Of("x")); err != nil {
			fx.Error(err)
		}
		m := fx.onlyMessage("orders")
		if address, ok := m.Headers.Lookup(headers.ReplyToAddress); ok {
			fx.Errorf("a send-only endpoint asks for replies to %q", address)
		}
		if err := fx.start(ep).wait(); err == nil || !strings.Contains(err.Error(), "send-only") {
			fx.Errorf("Run: %v", err)
		}
		if slices.Contains(fx.queues(), "website") {
			fx.Error("it has a queue")
		}
	})
}

func TestRun_EndsForAPermanentErrorOfReceive(t *testing.T) {
	inModesWith(t, expiringLocks, allModes, func(fx *fixture) {
		errGone := errors.New("the queue was deleted")
		ep, run := fx.runOrders(core.Config{Concurrency: 4}, func(context.Context, *core.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		fx.broker.setFaults(faults{receive: func(context.Context) (bool, int, error) { return true, 0, errGone }})
		fx.enqueue("m1")
		if err := run.wait(); !errors.Is(err, errGone) || !containsAll(err.Error(), `"orders"`, "receive") {
			fx.Errorf("Run returned %v", err)
		}
		if lines := fx.logs.find("can no longer receive"); len(lines) != 1 || lines[0].level != slog.LevelError || !strings.Contains(fmt.Sprint(lines[0].attrs["error"]), errGone.Error()) {
			fx.Errorf("the log has %v", lines)
		}
		fx.wantDepth("orders", 0) // the drain let the handler finish
		fx.broker.setFaults(faults{})
		fx.run(ep)
		fx.enqueue("m2")
		time.Sleep(10 * time.Second)
		fx.wantDepth("orders", 0)
	})
}

func TestRun_RefusesAWrongReceiveCount(t *testing.T) {
	for _, count := range []int{0, -1, 1000} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				_, run := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return nil })
				fx.broker.setFaults(faults{receive: func(context.Context) (bool, int, error) { return true, count, nil }})
				fx.enqueue("m1")
				if err := run.wait(); err == nil || !strings.Contains(err.Error(), "C3") {
					fx.Errorf("Run returned %v, want the rule that was broken", err)
				}
			})
		})
	}
}

func TestRun_ReturnsErrorsOfItsStart(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.broker.setFaults(faults{open: func(context.Context) error { return errBoom }})
		ep := fx.newEndpoint("orders", core.Config{})
		if err := fx.start(ep).wait(); !errors.Is(err, errBoom) {
			fx.Errorf("Run: %v", err)
		}
		fx.broker.setFaults(faults{})
		missing := fx.newEndpoint("missing", core.Config{Provision: core.ProvisionNever})
		if err := fx.start(missing).wait(); !errors.Is(err, core.ErrQueueNotFound) {
			fx.Errorf("Run: %v, want ErrQueueNotFound", err)
		}
		fx.run(ep)
	})
}

func TestProvision_CreatesNoCustomErrorQueue(t *testing.T) {
	bubble(t, func(fx *fixture) {
		config := core.Config{AuditQueue: "audit", Provision: core.ProvisionNever}
		config.Recoverability.ErrorQueue = "failed"
		ep := fx.newEndpoint("billing", config)
		if err := ep.Provision(fx.Context()); err != nil {
			fx.Fatal(err)
		}
		if got := fx.queues(); !slices.Equal(got, []string{"audit", "billing", "error", "failed", "orders", "shipping"}) {
			fx.Errorf("queues %v", got)
		}
		fx.run(ep)
	})
}

// An event that is published before its subscriber has run for the first time reaches it.
func TestProvision_Subscribes(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var handled recorder[string]
		ep := fx.newEndpoint("billing", core.Config{})
		core.HandleEvent(ep, orderedEvent, func(_ context.Context, _ *core.Message, body []byte) error {
			handled.add(string(body))
			return nil
		})
		if err := ep.Provision(fx.Context()); err != nil {
			fx.Fatal(err)
		}
		if err := ep.Publish(fx.Context(), orderedEvent.Of([]byte("early"))); err != nil {
			fx.Fatal(err)
		}
		fx.run(ep)
		fx.advance(time.Second)
		if got := handled.all(); !slices.Equal(got, []string{"early"}) {
			fx.Errorf("handled %q, want the event that was published before Run", got)
		}
	})
}

// lateSubscriber is a transport whose broker applies subscriptions late.
type lateSubscriber struct {
	*topicChecker
	tries int // that are refused
}

func (s *lateSubscriber) Subscribe(ctx context.Context, queue string, topics ...string) error {
	if s.tries--; s.tries >= 0 {
		return fmt.Errorf("not applied yet: %w", core.ErrUnavailable)
	}
	return s.topicChecker.Subscribe(ctx, queue, topics...)
}

func TestProvision_WaitsForLateSubscriptions(t *testing.T) {
	for _, c := range []struct {
		refused int
		want    error
	}{{3, nil}, {1000, core.ErrUnavailable}} {
		synctest.Test(t, func(t *testing.T) {
			logs := &logRecorder{}
			transport := &lateSubscriber{newTopicChecker(t), c.refused}
			ep, err := core.New("orders", transport, core.Config{Logger: slog.New(logHandler{recorder: logs})})
			if err != nil {
				t.Fatal(err)
			}
			core.HandleEvent(ep, placedEvent, func(context.Context, *core.Message, string) error { return nil })
			began := time.Now()
			if err := ep.Provision(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("after %d refused tries: %v, want %v", c.refused, err, c.want)
			}
			lines := len(logs.find("endpoint waits to subscribe"))
			if took := time.Since(began); took > 2*time.Minute || c.want == nil && lines != c.refused || lines == 0 {
				t.Errorf("it took %v, with %d lines", took, lines)
			}
		})
	}
}

func TestHealth_Connections(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var told connectionRecorder
		ep := fx.newEndpoint("orders", core.Config{Observers: []core.Observer{told.observer(), connectionObserver(func(core.ConnectionChange) { panic("boom") })}})
		fx.run(ep)
		since := time.Now()
		fx.broker.reportConnection(core.ConnectionChange{Err: errBoom, Since: since, RetryIn: time.Second})
		health := ep.Health()
		if health.Connected || !errors.Is(health.ConnectionError, errBoom) || !health.DisconnectedSince.Equal(since) {
			fx.Errorf("during the outage: %+v", health)
		}
		fx.broker.reportConnection(core.ConnectionChange{Connected: true})
		if health := ep.Health(); !health.Connected || health.ConnectionError != nil {
			fx.Errorf("after it: %+v", health)
		}
		synctest.Wait()
		equal(fx, "told", told.len(), 2)
		equal(fx, "lines", len(fx.logs.find("connection")), 2)
	})
}

type connectionRecorder struct {
	recorder[core.ConnectionChange]
}

func (c *connectionRecorder) ConnectionChanged(e core.ConnectionChange) { c.add(e) }

func (c *connectionRecorder) observer() core.Observer {
	return core.Observer{ConnectionChanged: c.ConnectionChanged}
}

func TestCriticalError_MayShutDown(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.failSendsTo("error", "orders")
		var down atomic.Bool
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries, Observers: []core.Observer{{CriticalError: func(_ context.Context, ep *core.Endpoint, _ error) {
			if err := ep.Shutdown(context.Background()); err != nil {
				fx.Error(err)
			}
			down.Store(true)
			panic("a panic in the callback")
		}}}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		run := fx.run(ep)
		fx.enqueue("m1")
		if err := run.wait(); err != nil {
			fx.Errorf("Run: %v", err)
		}
		synctest.Wait()
		equal(fx, "shut down", down.Load(), true)
		equal(fx, "delivery count", fx.onlyMessage("orders").DeliveryCount, 1)
	})
}
