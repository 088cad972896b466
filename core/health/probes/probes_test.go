package probes_test

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
	"github.com/reprise-go/reprise/core/health/probes"
)

var errBoom = errors.New("boom")

// Texts of reasons.
const (
	notRunning = "Run was not called yet, or has returned"
	failing    = "Run is ending with an error"
	failed     = "Run ended with an error"
	starting   = "it is starting"
	waiting    = "it waits for its broker, which cannot be reached"
	draining   = "it is draining"
)

// untilCancelled is a handler that ends with its context.
func untilCancelled(ctx context.Context, _ *core.Message, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestProbes_LifeOfAnEndpoint(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(fx *fixture) {
		p := fx.probes(probes.Config{})
		fx.wantAnswers("before Run", p, "", notRunning, notRunning)
		stop := fx.run()
		fx.wantAnswers("while it receives", p, "", "", "")
		fx.send()
		go func() { _ = stop() }() // its error is that of the call below
		synctest.Wait()
		fx.wantAnswers("while it drains", p, "", draining, "")
		if err := stop(); err != nil {
			fx.Error(err)
		}
		fx.wantAnswers("after Run", p, "", notRunning, notRunning)
	})
}

func TestProbes_OutageAtTheStart(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(fx *fixture) {
		fx.broker.fail(fmt.Errorf("dial: %w", core.ErrUnavailable), nil)
		fx.run()
		time.Sleep(time.Hour)
		fx.wantAnswers("while it waits", fx.probes(probes.Config{}), "", waiting, "")
		fx.wantAnswers("while it waits, ready without its broker", fx.probes(probes.Config{ReadyWithoutBroker: true}), "", "", "")
		fx.broker.fail(nil, nil)
		time.Sleep(time.Minute)
		fx.wantAnswers("after the outage", fx.probes(probes.Config{}), "", "", "")
	})
}

// slowStart is a transport that is asked for its queues, and answers when it is let go.
type slowStart struct {
	*fakeTransport
	release chan struct{}
}

func (s slowStart) Check(context.Context, core.Topology) error { <-s.release; return nil }

func TestProbes_FirstTry(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(fx *fixture) {
		release := make(chan struct{})
		var err error
		if fx.ep, err = core.New("orders", slowStart{fx.broker, release}, core.Config{}); err != nil {
			fx.Fatal(err)
		}
		fx.run()
		for _, c := range []probes.Config{{}, {ReadyWithoutBroker: true}} {
			fx.wantAnswers("while it connects", fx.probes(c), "", starting, "")
		}
		close(release)
		synctest.Wait()
		fx.wantAnswers("while it receives", fx.probes(probes.Config{}), "", "", "")
	})
}

func TestProbes_RunThatEndsWithAnError(t *testing.T) {
	for name, end := range map[string]func(fx *fixture){
		"at the start":      func(fx *fixture) { fx.broker.fail(errBoom, nil); fx.run() },
		"while it receives": func(fx *fixture) { fx.run(); fx.broker.receiverErrors <- errBoom },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, core.Config{}, untilCancelled, func(fx *fixture) {
				end(fx)
				synctest.Wait()
				other := fx.endpoint("mail", core.Config{SendOnly: true})
				p := fx.probes(probes.Config{}, other)
				fx.wantAnswers("after Run", p, failed, failed, failed)
				if text := ask(fx, p.Liveness(), http.MethodGet).Body.String(); strings.Contains(text, errBoom.Error()) {
					fx.Errorf("the answer has the text of the error: %s", text)
				}
				fx.broker.fail(nil, nil)
				fx.run() // as a supervisor in the process does
				fx.wantAnswers("while the next Run receives", p, "", "", "")
			})
		})
	}
}

// An endpoint that ends at its limit is seen at once, also while the others of RunAll receive.
func TestProbes_EndpointThatEndsAtItsLimit(t *testing.T) {
	c := core.Config{Concurrency: 2, Transactions: core.TransactionReceiveOnly}
	c.Recoverability.UnacceptableMessageLimit.Count = 1
	release := make(chan struct{})
	handle := func(_ context.Context, _ *core.Message, body string) error {
		if body == "slow" {
			<-release
			return nil
		}
		return core.GiveUp(errBoom)
	}
	bubble(t, c, handle, func(fx *fixture) {
		release = make(chan struct{})
		other := fx.endpoint("mail", core.Config{})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- core.RunAll(ctx, fx.ep, other) }()
		synctest.Wait()
		for _, body := range []string{"slow", "bad"} {
			if err := other.Send(fx.Context(), "orders", orderType.Of(body)); err != nil {
				fx.Fatal(err)
			}
			synctest.Wait()
		}
		p := fx.probes(probes.Config{}, other)
		fx.wantAnswers("while it drains", p, failing, draining, "")
		close(release)
		synctest.Wait()
		fx.wantAnswers("after its end", p, failed, failed, failed)
		stop()
		if err := <-ended; !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			fx.Errorf("RunAll returned %v", err)
		}
	})
}

func TestLiveness_AttemptLimit(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(fx *fixture) {
		limited := fx.probes(probes.Config{AttemptLimit: time.Minute})
		fx.run()
		fx.send()
		time.Sleep(time.Minute)
		fx.wantAnswers("at the limit", limited, "", "", "")
		time.Sleep(time.Millisecond)
		fx.wantAnswers("above the limit", limited, "an attempt has been running for 1m0.001s, longer than 1m0s", "", "")
		time.Sleep(time.Hour)
		fx.wantAnswers("without a limit", fx.probes(probes.Config{}), "", "", "")
	})
}

// TestProbes_StatesThatAreNoReason: a restart fixes none of these, and no other process is better off.
func TestProbes_StatesThatAreNoReason(t *testing.T) {
	failing := func(context.Context, *core.Message, string) error { return errBoom }
	noRetries := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
	limiting := noRetries
	limiting.RateLimit.ConsecutiveFailures = 1
	for name, c := range map[string]struct {
		recoverability core.Recoverability
		provoke        func(fx *fixture)
		isSo           func(h health.State) bool
	}{
		"outage": {noRetries, func(fx *fixture) {
			fx.broker.report(core.ConnectionChange{Err: errBoom, Since: time.Now()})
		}, func(h health.State) bool { return !h.Connected && h.ConnectionError != nil }},
		"sends fail": {noRetries, func(fx *fixture) {
			fx.broker.fail(nil, errBoom)
			_ = fx.ep.Send(fx.Context(), "orders", orderType.Of("x"))
		}, func(h health.State) bool { return h.SendError != nil }},
		"paused":         {noRetries, func(fx *fixture) { fx.ep.Pause() }, func(h health.State) bool { return h.Paused }},
		"rate limited":   {limiting, (*fixture).send, func(h health.State) bool { return h.RateLimited }},
		"critical error": {noRetries, func(fx *fixture) { fx.ep.RaiseCritical(errBoom) }, func(h health.State) bool { return h.CriticalErrors == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, core.Config{Recoverability: c.recoverability, Transactions: core.TransactionReceiveOnly}, failing, func(fx *fixture) {
				fx.run()
				c.provoke(fx)
				synctest.Wait()
				if h := fx.ep.Health(); !c.isSo(h) {
					fx.Fatalf("the state was not reached: %+v", h)
				}
				time.Sleep(time.Hour)
				fx.wantAnswers(name, fx.probes(probes.Config{}), "", "", "")
			})
		})
	}
}

// A probe that waited for a send-only endpoint's connection would wait for ever: a process that gets no
// requests sends nothing.
func TestProbes_SendOnlyEndpoint(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(fx *fixture) {
		fx.ep = fx.endpoint("orders", core.Config{SendOnly: true})
		p := fx.probes(probes.Config{})
		fx.wantAnswers("before its first send", p, "", "", "")
		fx.broker.fail(nil, errBoom)
		if err := fx.ep.Send(fx.Context(), "orders", orderType.Of("x")); !errors.Is(err, errBoom) {
			fx.Fatal(err)
		}
		time.Sleep(time.Hour)
		fx.wantAnswers("after a send that failed", p, "", "", "")
	})
}

func TestNew_RefusesInvalidConfigurations(t *testing.T) {
	bubble(t, core.Config{}, untilCancelled, func(fx *fixture) {
		for want, refused := range map[string]func() (*probes.Probes, error){
			"no endpoint was given":  func() (*probes.Probes, error) { return probes.New[*core.Endpoint](probes.Config{}) },
			"endpoint 2 of 2 is nil": func() (*probes.Probes, error) { return probes.New(probes.Config{}, fx.ep, nil) },
			"Config.AttemptLimit is -1s": func() (*probes.Probes, error) {
				return probes.New(probes.Config{AttemptLimit: -time.Second}, fx.ep)
			},
		} {
			if p, err := refused(); p != nil || err == nil || !strings.Contains(err.Error(), want) {
				fx.Errorf("New returned %v, %v; want an error with %q", p, err, want)
			}
		}
	})
}
