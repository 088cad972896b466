package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// errUnreached is the error of an adapter while its broker cannot be reached.
var errUnreached = fmt.Errorf("dial: connection refused: %w", core.ErrUnavailable)

// failOpening lets no receiver be opened until the broker is back.
func (fx *fixture) failOpening(tries *int) (restore func()) {
	fx.broker.setFaults(faults{open: func(context.Context) error { *tries++; return errUnreached }})
	return func() { fx.broker.setFaults(faults{}) }
}

func TestStart_WaitsForItsBroker(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var tries int
		restore := fx.failOpening(&tries)
		var changes recorder[core.ConnectionChange]
		ep := fx.newEndpoint("orders", core.Config{Observers: []core.Observer{connectionObserver(func(e core.ConnectionChange) { changes.add(e) })}})
		var handled recorder[string]
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			return nil
		})
		began := time.Now()
		fx.start(ep)
		fx.advance(time.Hour)
		if tries < 300 || tries > 800 { // the pauses are random
			fx.Errorf("%d tries in an hour, want one in about 10 s", tries)
		}
		h := ep.Health()
		equal(fx, "starting", h.Starting, true)
		equal(fx, "running", h.Running, false)
		equal(fx, "connected", h.Connected, false)
		equal(fx, "disconnected since", h.DisconnectedSince, began)
		equal(fx, "why", h.ConnectionError, errUnreached)
		select {
		case <-ep.Ready():
			fx.Error("the endpoint says that it is ready")
		default:
		}
		for i, e := range changes.all() {
			if e.Connected || e.Err == nil || e.RetryIn <= 0 || e.RetryIn > 15*time.Second {
				fx.Errorf("change %d is %+v", i, e)
			}
		}
		equal(fx, "critical errors, one for the outage", h.CriticalErrors, 1)

		restore()
		fx.advance(15 * time.Second)
		<-ep.Ready()
		h = ep.Health()
		equal(fx, "starting", h.Starting, false)
		equal(fx, "running", h.Running, true)
		equal(fx, "connected", h.Connected, true)
		all := changes.all()
		equal(fx, "the newest change", all[len(all)-1].Connected, true)
		fx.enqueue("m1")
		synctest.Wait()
		equal(fx, "handled", handled.len(), 1)
		var warnings int
		lines := fx.logs.find("waits to receive")
		for _, line := range lines {
			if line.level == slog.LevelWarn {
				warnings++
			}
		}
		equal(fx, "lines", len(lines), tries)
		if warnings < 50 || warnings > 61 || lines[0].level != slog.LevelWarn {
			fx.Errorf("%d of the lines of an hour are warnings, want the first and one a minute", warnings)
		}
	})
}

// An adapter may wait by itself in OpenReceiver, or need long to notice that its broker is away.
func TestStart_TryEndsWithTheRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.broker.setFaults(faults{open: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		began := time.Now()
		ctx, cancel := context.WithTimeout(fx.Context(), time.Minute)
		defer cancel()
		if err := fx.newEndpoint("orders", core.Config{}).Run(ctx); err != nil {
			fx.Errorf("Run returned %v", err)
		}
		equal(fx, "time", time.Since(began), time.Minute)
	})
}

func TestStart_FailsAtOnceWhenWaitingCannotHelp(t *testing.T) {
	bubble(t, func(fx *fixture) {
		refused := errors.New("password refused")
		answers := []error{errUnreached, errUnreached, refused}
		fx.broker.setFaults(faults{open: func(context.Context) error {
			next := answers[0]
			answers = answers[1:]
			return next
		}})
		if err := fx.newEndpoint("orders", core.Config{}).Run(fx.Context()); !errors.Is(err, refused) {
			fx.Errorf("Run returned %v, want the error that came after two outages", err)
		}
	})
}

func TestStart_EndsWhileItWaits(t *testing.T) {
	for name, end := range map[string]func(ep *core.Endpoint, run *runningEndpoint) error{
		"by Run's context": func(_ *core.Endpoint, run *runningEndpoint) error { return run.stop() },
		"by Shutdown": func(ep *core.Endpoint, run *runningEndpoint) error {
			return errors.Join(ep.Shutdown(context.Background()), run.wait())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				var tries int
				restore := fx.failOpening(&tries)
				ep := fx.newEndpoint("orders", core.Config{})
				run := fx.start(ep)
				fx.advance(time.Minute)
				began := time.Now()
				if err := end(ep, run); err != nil {
					fx.Error(err)
				}
				equal(fx, "time to end", time.Since(began), 0)
				fx.advance(time.Hour)
				equal(fx, "critical errors after the end", ep.Health().CriticalErrors, 0)
				restore()
				fx.run(ep) // it is free to run again
				equal(fx, "connected by another Run", ep.Health().Connected, true)
			})
		})
	}
}

// An outage that the receiver tells of while it is opened is not ended by the endpoint.
func TestStart_LeavesANewerOutageToTheReceiver(t *testing.T) {
	bubble(t, func(fx *fixture) {
		transport := &disconnectingTransport{watchedTransport: watchedTransport{faultyTransport: fx.broker}}
		var tries int
		restore := fx.failOpening(&tries)
		ep := fx.newEndpointOn(transport, "orders")
		fx.start(ep)
		restore()
		fx.advance(15 * time.Second)
		<-ep.Ready()
		equal(fx, "connected", ep.Health().Connected, false)
		transport.report(core.ConnectionChange{Connected: true})
		equal(fx, "connected when the receiver says so", ep.Health().Connected, true)
	})
}

// disconnectingTransport is a transport whose receivers have lost their connection when
// OpenReceiver returns.
type disconnectingTransport struct{ watchedTransport }

func (l *disconnectingTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := l.watchedTransport.OpenReceiver(ctx, cfg)
	if err == nil {
		l.report(core.ConnectionChange{Err: errBoom, Since: time.Now()})
	}
	return r, err
}

// newEndpointOn makes an endpoint on another transport than the fixture's.
func (fx *fixture) newEndpointOn(t core.Transport, name string) *core.Endpoint {
	fx.Helper()
	ep, err := core.New(name, t, core.Config{Logger: slog.New(logHandler{recorder: fx.logs})})
	if err != nil {
		fx.Fatal(err)
	}
	return ep
}

// newReachableEndpoint makes an endpoint on a broker that can be reached.
func (fx *fixture) newReachableEndpoint(name string) *core.Endpoint {
	fx.Helper()
	here := inmemory.Open()
	fx.Cleanup(func() { _ = here.Close(context.Background()) })
	return fx.newEndpointOn(here, name)
}

func TestRunAll_StartsWithoutEndpointsOfAnUnreachableBroker(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var tries int
		restore := fx.failOpening(&tries)
		one, two := fx.newEndpoint("orders", core.Config{}), fx.newEndpoint("shipping", core.Config{})
		other := fx.newReachableEndpoint("billing")
		ctx, stop := context.WithCancel(fx.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- core.RunAll(ctx, one, two, other) }()
		synctest.Wait()
		equal(fx, "the endpoint whose broker is there runs", other.Health().Running, true)
		for _, ep := range []*core.Endpoint{one, two} {
			equal(fx, ep.String()+" is starting", ep.Health().Starting, true)
		}
		restore()
		fx.advance(15 * time.Second)
		for _, ep := range []*core.Endpoint{one, two} {
			equal(fx, ep.String()+" runs", ep.Health().Running, true)
		}
		stop()
		if err := <-done; err != nil {
			fx.Error(err)
		}
	})
}

// A broker that lets connections hang holds up the endpoints of another one for a moment.
func TestRunAll_TriesTransportsAtTheSameTime(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("black hole first: ", first), func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				fx.broker.setFaults(faults{open: func(ctx context.Context) error {
					select {
					case <-time.After(30 * time.Second):
						return errUnreached
					case <-ctx.Done():
						return ctx.Err()
					}
				}})
				hole, second, other := fx.newEndpoint("orders", core.Config{}), fx.newEndpoint("shipping", core.Config{}), fx.newReachableEndpoint("billing")
				endpoints := []*core.Endpoint{hole, second, other}
				if !first {
					endpoints = []*core.Endpoint{other, hole, second}
				}
				ctx, stop := context.WithCancel(fx.Context())
				defer stop()
				done := make(chan error, 1)
				go func() { done <- core.RunAll(ctx, endpoints...) }()
				fx.advance(4 * time.Second)
				equal(fx, "the other receives before all have tried", other.Health().Running, false)
				fx.advance(time.Second)
				equal(fx, "the other receives", other.Health().Running, true)
				equal(fx, "the first has not answered", hole.Health().ConnectionError, error(nil))
				fx.broker.setFaults(faults{})
				fx.advance(time.Minute)
				for _, ep := range endpoints {
					equal(fx, ep.Name()+" runs", ep.Health().Running, true)
				}
				stop()
				if err := <-done; err != nil {
					fx.Error(err)
				}
			})
		})
	}
}

// A start that fails on one transport lets no endpoint of another one receive.
func TestRunAll_FailedStartOfAnotherTransport(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.broker.setFaults(faults{open: func(context.Context) error { time.Sleep(time.Second); return errBoom }})
		other := fx.newReachableEndpoint("billing")
		begun := other.Ready()
		if err := core.RunAll(fx.Context(), other, fx.newEndpoint("orders", core.Config{})); !errors.Is(err, errBoom) {
			fx.Errorf("RunAll returned %v", err)
		}
		select {
		case <-begun:
			fx.Error("the other endpoint has received")
		default:
		}
		fx.run(other) // it is free to run again
	})
}
