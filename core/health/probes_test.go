package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/health"
)

var errBoom = errors.New("boom")

// Texts of reasons.
const (
	notRunning = "Run was not called yet, or has returned"
	failed     = "Run ended with an error"
	starting   = "it is starting"
	waiting    = "it waits for its broker or its ParkStore, which cannot be reached"
	draining   = "it is draining"
)

// untilCancelled is a handler that ends with its context.
func untilCancelled(ctx context.Context, _ *core.TypedMessage[string]) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestProbes_LifeOfAnEndpoint(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(b *bed) {
		p := b.probes(health.Config{})
		b.answers("before Run", p, "", notRunning, notRunning)
		stop := b.run()
		b.answers("while it receives", p, "", "", "")
		b.send()
		go func() { _ = stop() }() // its error is that of the call below
		synctest.Wait()
		b.answers("while it drains", p, "", draining, "")
		if err := stop(); err != nil {
			b.Error(err)
		}
		b.answers("after Run", p, "", notRunning, notRunning)
	})
}

func TestProbes_OutageAtTheStart(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(b *bed) {
		b.broker.fail(fmt.Errorf("dial: %w", core.ErrUnavailable), nil)
		b.run()
		time.Sleep(time.Hour)
		b.answers("while it waits", b.probes(health.Config{}), "", waiting, "")
		b.answers("while it waits, ready without its broker", b.probes(health.Config{ReadyWithoutBroker: true}), "", "", "")
		b.broker.fail(nil, nil)
		time.Sleep(time.Minute)
		b.answers("after the outage", b.probes(health.Config{}), "", "", "")
	})
}

// slowStart is a transport that is asked for its queues, and answers when it is let go.
type slowStart struct {
	*broker
	release chan struct{}
}

func (s slowStart) Check(context.Context, core.Topology) error { <-s.release; return nil }

func TestProbes_FirstTry(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(b *bed) {
		release := make(chan struct{})
		var err error
		if b.ep, err = core.New("orders", slowStart{b.broker, release}, core.Config{}); err != nil {
			b.Fatal(err)
		}
		b.run()
		for _, c := range []health.Config{{}, {ReadyWithoutBroker: true}} {
			b.answers("while it connects", b.probes(c), "", starting, "")
		}
		close(release)
		synctest.Wait()
		b.answers("while it receives", b.probes(health.Config{}), "", "", "")
	})
}

func TestProbes_RunThatEndsWithAnError(t *testing.T) {
	for name, end := range map[string]func(b *bed){
		"at the start":      func(b *bed) { b.broker.fail(errBoom, nil); b.run() },
		"while it receives": func(b *bed) { b.run(); b.broker.receiverErrors <- errBoom },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, core.Config{}, untilCancelled, func(b *bed) {
				end(b)
				synctest.Wait()
				other := b.endpoint("mail", core.Config{SendOnly: true})
				p := b.probes(health.Config{}, other)
				b.answers("after Run", p, failed, failed, failed)
				if text := ask(b, p.Liveness(), http.MethodGet).Body.String(); strings.Contains(text, errBoom.Error()) {
					b.Errorf("the answer has the text of the error: %s", text)
				}
				b.broker.fail(nil, nil)
				b.run() // as a supervisor in the process does
				b.answers("while the next Run receives", p, "", "", "")
			})
		})
	}
}

func TestLiveness_AttemptLimit(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(b *bed) {
		limited := b.probes(health.Config{AttemptLimit: time.Minute})
		b.run()
		b.send()
		time.Sleep(time.Minute)
		b.answers("at the limit", limited, "", "", "")
		time.Sleep(time.Millisecond)
		b.answers("above the limit", limited, "an attempt has been running for 1m0.001s, longer than 1m0s", "", "")
		time.Sleep(time.Hour)
		b.answers("without a limit", b.probes(health.Config{}), "", "", "")
	})
}

// TestProbes_StatesThatAreNoReason: a restart fixes none of these, and no other process is better off.
func TestProbes_StatesThatAreNoReason(t *testing.T) {
	failing := func(context.Context, *core.TypedMessage[string]) error { return errBoom }
	noRetries := core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Off: true}}
	parking, limiting := noRetries, noRetries
	parking.UnacceptableMessageLimit, parking.UnacceptableMessageAction = 1, core.LimitPark
	limiting.RateLimit.ConsecutiveFailures = 1
	for name, c := range map[string]struct {
		recoverability core.Recoverability
		provoke        func(b *bed)
		isSo           func(h core.Health) bool
	}{
		"outage": {noRetries, func(b *bed) {
			b.broker.tell(core.ConnectionChange{Err: errBoom, Since: time.Now()})
		}, func(h core.Health) bool { return !h.Connected && h.ConnectionError != nil }},
		"sends fail": {noRetries, func(b *bed) {
			b.broker.fail(nil, errBoom)
			_ = b.ep.Send(b.Context(), "orders", "order", "x")
		}, func(h core.Health) bool { return h.SendError != nil }},
		"paused":         {noRetries, func(b *bed) { b.ep.Pause() }, func(h core.Health) bool { return h.Paused }},
		"parked":         {parking, (*bed).send, func(h core.Health) bool { return h.Parked != nil }},
		"rate limited":   {limiting, (*bed).send, func(h core.Health) bool { return h.RateLimited }},
		"critical error": {noRetries, func(b *bed) { b.ep.RaiseCritical(errBoom) }, func(h core.Health) bool { return h.CriticalErrors == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, core.Config{Recoverability: c.recoverability, Transactions: core.TransactionReceiveOnly}, failing, func(b *bed) {
				b.run()
				c.provoke(b)
				synctest.Wait()
				if h := b.ep.Health(); !c.isSo(h) {
					b.Fatalf("the state was not reached: %+v", h)
				}
				time.Sleep(time.Hour)
				b.answers(name, b.probes(health.Config{}), "", "", "")
			})
		})
	}
}

// A probe that waited for a send-only endpoint's connection would wait for ever: a process that gets no
// requests sends nothing.
func TestProbes_SendOnlyEndpoint(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(b *bed) {
		b.ep = b.endpoint("orders", core.Config{SendOnly: true})
		p := b.probes(health.Config{})
		b.answers("before its first send", p, "", "", "")
		b.broker.fail(nil, errBoom)
		if err := b.ep.Send(b.Context(), "orders", "order", "x"); !errors.Is(err, errBoom) {
			b.Fatal(err)
		}
		time.Sleep(time.Hour)
		b.answers("after a send that failed", p, "", "", "")
	})
}

func TestNew_RefusesWhatCannotBeMeant(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(b *bed) {
		for want, refused := range map[string]func() (*health.Probes, error){
			"no endpoint was given":  func() (*health.Probes, error) { return health.New(health.Config{}) },
			"endpoint 2 of 2 is nil": func() (*health.Probes, error) { return health.New(health.Config{}, b.ep, nil) },
			"Config.AttemptLimit is -1s": func() (*health.Probes, error) {
				return health.New(health.Config{AttemptLimit: -time.Second}, b.ep)
			},
		} {
			if p, err := refused(); p != nil || err == nil || !strings.Contains(err.Error(), want) {
				b.Errorf("New returned %v, %v; want an error with %q", p, err, want)
			}
		}
	})
}
