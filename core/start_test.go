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

// errUnreached is what an adapter returns while its broker cannot be reached.
var errUnreached = fmt.Errorf("dial: connection refused: %w", core.ErrUnavailable)

// away lets no receiver be opened until the broker is back.
func (b *bed) away(tries *int) (back func()) {
	b.broker.provoke(faults{open: func(context.Context) error { *tries++; return errUnreached }})
	return func() { b.broker.provoke(faults{}) }
}

func TestStart_WaitsForItsBroker(t *testing.T) {
	bubble(t, func(b *bed) {
		var tries int
		back := b.away(&tries)
		var changes record[core.ConnectionChange]
		ep := b.endpoint("orders", core.Config{Observers: []core.Observer{hears(func(e core.ConnectionChange) { changes.add(e) })}})
		var handled record[string]
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			return nil
		})
		began := time.Now()
		b.launch(ep)
		b.pass(time.Hour)
		if tries < 350 || tries > 800 {
			b.Errorf("%d tries in an hour, want one in about 10 s", tries)
		}
		h := ep.Health()
		equal(b, "starting", h.Starting, true)
		equal(b, "running", h.Running, false)
		equal(b, "connected", h.Connected, false)
		equal(b, "disconnected since", h.DisconnectedSince, began)
		equal(b, "why", h.ConnectionError, errUnreached)
		select {
		case <-ep.Ready():
			b.Error("the endpoint says that it is ready")
		default:
		}
		for i, e := range changes.all() {
			if e.Connected || e.Err == nil || e.RetryIn <= 0 || e.RetryIn > 15*time.Second {
				b.Errorf("change %d is %+v", i, e)
			}
		}
		equal(b, "critical errors, one for the outage", h.CriticalErrors, 1)

		back()
		b.pass(15 * time.Second)
		<-ep.Ready()
		h = ep.Health()
		equal(b, "starting", h.Starting, false)
		equal(b, "running", h.Running, true)
		equal(b, "connected", h.Connected, true)
		all := changes.all()
		equal(b, "the newest change", all[len(all)-1].Connected, true)
		b.put("m1")
		synctest.Wait()
		equal(b, "handled", handled.len(), 1)
		var warnings int
		lines := b.logs.about("waits to receive")
		for _, line := range lines {
			if line.level == slog.LevelWarn {
				warnings++
			}
		}
		equal(b, "lines", len(lines), tries)
		if warnings < 55 || warnings > 61 || lines[0].level != slog.LevelWarn {
			b.Errorf("%d of the lines of an hour are warnings, want the first and one a minute", warnings)
		}
	})
}

func TestStart_WaitsNoLongerThanConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		wait  time.Duration
		tries func(int) bool
	}{
		"not at all":   {core.Off, func(n int) bool { return n == 1 }},
		"for a minute": {time.Minute, func(n int) bool { return n > 5 }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				var tries int
				b.away(&tries)
				began := time.Now()
				err := b.endpoint("orders", core.Config{WaitForBroker: c.wait}).Run(b.Context())
				if !errors.Is(err, core.ErrUnavailable) || !containsAll(err.Error(), "orders", "connection refused") {
					b.Errorf("Run returned %v", err)
				}
				equal(b, "time", time.Since(began), max(c.wait, 0))
				if !c.tries(tries) {
					b.Errorf("%d tries", tries)
				}
			})
		})
	}
}

// An adapter may wait by itself in OpenReceiver, or need long to notice that its broker is away.
func TestStart_TryEndsWithTheWait(t *testing.T) {
	bubble(t, func(b *bed) {
		b.broker.provoke(faults{open: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		began := time.Now()
		err := b.endpoint("orders", core.Config{WaitForBroker: time.Minute}).Run(b.Context())
		if !errors.Is(err, core.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !containsAll(err.Error(), "orders", "waited for 1m0s (Config.WaitForBroker)") {
			b.Errorf("Run returned %v", err)
		}
		equal(b, "time", time.Since(began), time.Minute)
	})
}

// The limit is for the start alone.
func TestStart_ReceivesAfterTheWait(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.endpoint("orders", core.Config{WaitForBroker: time.Minute})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		b.run(ep)
		b.pass(time.Hour)
		b.put("m1")
		b.holds("orders", 0)
	})
}

func TestStart_WaitsForNothingThatWaitingCannotMend(t *testing.T) {
	bubble(t, func(b *bed) {
		refused := errors.New("password refused")
		answers := []error{errUnreached, errUnreached, refused}
		b.broker.provoke(faults{open: func(context.Context) error {
			next := answers[0]
			answers = answers[1:]
			return next
		}})
		if err := b.endpoint("orders", core.Config{}).Run(b.Context()); !errors.Is(err, refused) {
			b.Errorf("Run returned %v, want the error that came after two outages", err)
		}
	})
}

func TestStart_EndsWhileItWaits(t *testing.T) {
	for name, end := range map[string]func(ep *core.Endpoint, run *running) error{
		"by Run's context": func(_ *core.Endpoint, run *running) error { return run.stop() },
		"by Shutdown": func(ep *core.Endpoint, run *running) error {
			return errors.Join(ep.Shutdown(context.Background()), run.wait())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				var tries int
				back := b.away(&tries)
				ep := b.endpoint("orders", core.Config{})
				run := b.launch(ep)
				b.pass(time.Minute)
				began := time.Now()
				if err := end(ep, run); err != nil {
					b.Error(err)
				}
				equal(b, "time to end", time.Since(began), 0)
				b.pass(time.Hour)
				equal(b, "critical errors after the end", ep.Health().CriticalErrors, 0)
				back()
				b.run(ep) // it is free to run again
				equal(b, "connected by another Run", ep.Health().Connected, true)
			})
		})
	}
}

// An outage that the receiver tells of while it is opened is not ended by the endpoint.
func TestStart_LeavesANewerOutageToTheReceiver(t *testing.T) {
	bubble(t, func(b *bed) {
		transport := &lostAtOnce{watched: watched{faulty: b.broker}}
		var tries int
		back := b.away(&tries)
		ep := b.endpointOn(transport, "orders")
		b.launch(ep)
		back()
		b.pass(15 * time.Second)
		<-ep.Ready()
		equal(b, "connected", ep.Health().Connected, false)
		transport.tell(core.ConnectionChange{Connected: true})
		equal(b, "connected when the receiver says so", ep.Health().Connected, true)
	})
}

// lostAtOnce is a transport whose receivers have lost their connection when OpenReceiver
// returns.
type lostAtOnce struct{ watched }

func (l *lostAtOnce) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := l.watched.OpenReceiver(ctx, cfg)
	if err == nil {
		l.tell(core.ConnectionChange{Err: errBoom, Since: time.Now()})
	}
	return r, err
}

// endpointOn makes an endpoint on another transport than the bed's.
func (b *bed) endpointOn(t core.Transport, name string) *core.Endpoint {
	b.Helper()
	ep, err := core.New(name, t, core.Config{Logger: slog.New(logHandler{book: b.logs})})
	if err != nil {
		b.Fatal(err)
	}
	return ep
}

// elsewhere makes an endpoint on a broker that can be reached.
func (b *bed) elsewhere(name string) *core.Endpoint {
	b.Helper()
	here := inmemory.Open()
	b.Cleanup(func() { _ = here.Close(context.Background()) })
	return b.endpointOn(here, name)
}

func TestRunAll_StartsWithoutThoseWhoseBrokerIsAway(t *testing.T) {
	bubble(t, func(b *bed) {
		var tries int
		back := b.away(&tries)
		one, two := b.endpoint("orders", core.Config{}), b.endpoint("shipping", core.Config{})
		other := b.elsewhere("billing")
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- core.RunAll(ctx, one, two, other) }()
		synctest.Wait()
		equal(b, "the endpoint whose broker is there runs", other.Health().Running, true)
		for _, ep := range []*core.Endpoint{one, two} {
			equal(b, ep.String()+" is starting", ep.Health().Starting, true)
		}
		back()
		b.pass(15 * time.Second)
		for _, ep := range []*core.Endpoint{one, two} {
			equal(b, ep.String()+" runs", ep.Health().Running, true)
		}
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
}

// A broker that lets connections hang holds up the endpoints of another one for a moment.
func TestRunAll_TriesTransportsAtTheSameTime(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("black hole first: ", first), func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.broker.provoke(faults{open: func(ctx context.Context) error {
					select {
					case <-time.After(30 * time.Second):
						return errUnreached
					case <-ctx.Done():
						return ctx.Err()
					}
				}})
				hole, second, other := b.endpoint("orders", core.Config{}), b.endpoint("shipping", core.Config{}), b.elsewhere("billing")
				endpoints := []*core.Endpoint{hole, second, other}
				if !first {
					endpoints = []*core.Endpoint{other, hole, second}
				}
				ctx, stop := context.WithCancel(b.Context())
				defer stop()
				done := make(chan error, 1)
				go func() { done <- core.RunAll(ctx, endpoints...) }()
				b.pass(4 * time.Second)
				equal(b, "the other receives before all have tried", other.Health().Running, false)
				b.pass(time.Second)
				equal(b, "the other receives", other.Health().Running, true)
				equal(b, "the first has not answered", hole.Health().ConnectionError, error(nil))
				b.broker.provoke(faults{})
				b.pass(time.Minute)
				for _, ep := range endpoints {
					equal(b, ep.Name()+" runs", ep.Health().Running, true)
				}
				stop()
				if err := <-done; err != nil {
					b.Error(err)
				}
			})
		})
	}
}

// A start that fails on one transport lets no endpoint of another one receive.
func TestRunAll_FailedStartOfAnotherTransport(t *testing.T) {
	bubble(t, func(b *bed) {
		b.broker.provoke(faults{open: func(context.Context) error { time.Sleep(time.Second); return errBoom }})
		other := b.elsewhere("billing")
		begun := other.Ready()
		if err := core.RunAll(b.Context(), other, b.endpoint("orders", core.Config{})); !errors.Is(err, errBoom) {
			b.Errorf("RunAll returned %v", err)
		}
		select {
		case <-begun:
			b.Error("the other endpoint has received")
		default:
		}
		b.run(other) // it is free to run again
	})
}

func TestRunAll_EndsWhenOneHasWaitedForTooLong(t *testing.T) {
	bubble(t, func(b *bed) {
		var tries int
		b.away(&tries)
		other := b.elsewhere("billing")
		began := time.Now()
		if err := core.RunAll(b.Context(), b.endpoint("orders", core.Config{WaitForBroker: time.Minute}), other); !errors.Is(err, core.ErrUnavailable) {
			b.Errorf("RunAll returned %v", err)
		}
		equal(b, "time", time.Since(began), time.Minute)
		equal(b, "the other is drained", other.Health().Running, false)
	})
}
