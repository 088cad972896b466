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
	"github.com/reprise-go/reprise/transport/inmemory"
)

// rateLimitedConfig is a configuration in which n failures in a row begin rate limiting,
// and no message is given up soon.
func rateLimitedConfig(n int) core.Recoverability {
	r := immediateRetries(1000)
	r.RateLimit = core.RateLimit{ConsecutiveFailures: n, TimeToWait: 10 * time.Second}
	return r
}

// Rule R40.
func TestRateLimit_ConsecutiveFailuresOfAllMessagesSwitch(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var attempts recorder[string]
		ep, _ := fx.runOrders(core.Config{Concurrency: 1, Recoverability: rateLimitedConfig(3)}, func(_ context.Context, m *core.Message) error {
			attempts.add(m.ID)
			if m.ID == "good" {
				return nil
			}
			return errBoom
		})
		ep.Pause()
		fx.enqueue("m1", "m2", "good", "m3", "m4", "m5", "m6")
		ep.Resume()
		synctest.Wait()
		// A success between them begins to count again.
		if got := attempts.all(); !slices.Equal(got, []string{"m1", "m2", "good", "m3", "m4", "m5"}) {
			fx.Errorf("attempts %v", got)
		}
		equal(fx, "rate limited", ep.Health().RateLimited, true)
	})
}

// Rule R40.
func TestRateLimit_ImmediateRetriesOfOneMessageCount(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		ep, _ := fx.runOrders(core.Config{Recoverability: rateLimitedConfig(3)}, func(_ context.Context, m *core.Message) error {
			if m.Attempt == 3 {
				return nil
			}
			return errBoom
		})
		fx.enqueue("m1")
		fx.enqueue("m2")
		equal(fx, "rate limited after two failures and a success, twice", ep.Health().RateLimited, false)
		fx.wantDepth("orders", 0)
		lines := fx.logs.find("rate limiting can be triggered by a single message")
		if len(lines) != 1 || lines[0].level != slog.LevelWarn {
			fx.Errorf("logged %+v, want a warning that three failures are not above the immediate retries", lines)
		}
	})
}

// A verdict proves that the handler ran to a decision: it ends the row, but for those
// with which handlers answer an outage.
func TestRateLimit_ErrorsThatCount(t *testing.T) {
	const counts, endsTheRow, neither = "counts", "ends the row", "neither"
	for name, c := range map[string]struct {
		fail error
		want string
	}{
		"defer":               {core.Defer(errors.New("not yet"), time.Hour), endsTheRow},
		"discard":             {core.Discard(errors.New("x")), endsTheRow},
		"give up":             {core.GiveUp(errBoom), counts},
		"give up to":          {core.GiveUpTo(errBoom, "shipping"), endsTheRow},
		"filtered":            {errors.New("filtered"), neither},
		"filtered in verdict": {core.RetryAfter(errors.New("filtered"), time.Hour), neither},
		"retry after":         {core.RetryAfter(errBoom, time.Hour), counts},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				recover := rateLimitedConfig(2)
				recover.RateLimit.Filter = func(err error) bool {
					if strings.Contains(err.Error(), "panic") {
						panic("in filter") // counts
					}
					return err.Error() != "filtered"
				}
				recover.Immediate = core.Immediate{NumberOfRetries: core.Off}
				ep, _ := fx.runOrders(core.Config{Concurrency: 1, Recoverability: recover}, func(_ context.Context, m *core.Message) error {
					switch m.ID {
					case "m1":
						return errBoom
					case "m2":
						return errors.New("panic")
					default:
						return c.fail
					}
				})
				if c.want != counts {
					for i := range 5 {
						fx.enqueue(fmt.Sprint("other", i))
					}
					equal(fx, "rate limited by them alone", ep.Health().RateLimited, false)
				}
				fx.enqueue("m1")
				fx.enqueue("another")
				equal(fx, "rate limited by one failure and another", ep.Health().RateLimited, c.want == counts)
				fx.enqueue("m2")
				equal(fx, "rate limited by two failures with another between them", ep.Health().RateLimited, c.want != endsTheRow)
			})
		})
	}
}

// prefetchConfig is a transport of which the engine may hold more than it handles.
func prefetchConfig(lock time.Duration) inmemory.Config {
	c := withCapabilities(func(c *core.Capabilities) { c.Prefetch = true })
	c.LockDuration = lock
	return c
}

// Rule R41.
func TestRateLimit_OneAttemptAtATimeWithAPause(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"plain": expiringLocks, "ahead": prefetchConfig(10 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				start := time.Now()
				var begun recorder[time.Duration]
				var running, highest atomic.Int64
				ep, _ := fx.runOrders(core.Config{Concurrency: 4, Recoverability: rateLimitedConfig(4)}, func(context.Context, *core.Message) error {
					begun.add(time.Since(start))
					highest.Store(max(highest.Load(), running.Add(1)))
					defer running.Add(-1)
					time.Sleep(time.Second)
					return errBoom
				})
				ep.Pause()
				for i := range 20 {
					fx.send(order(fmt.Sprint("m", i)))
				}
				ep.Resume()
				// Four fail at 1 s. Those given back before the fourth was counted
				// may have begun again; they fail at 2 s.
				time.Sleep(2500 * time.Millisecond)
				synctest.Wait()
				equal(fx, "rate limited", ep.Health().RateLimited, true)
				limits := fx.broker.inFlight.all()
				equal(fx, "MaxInFlight while it waits", limits[len(limits)-1], 0)
				before := begun.len()
				highest.Store(0)
				for probe := range 5 {
					synctest.Wait()
					if held := fx.depth("orders").Locked; held != 0 {
						fx.Errorf("%d messages are held while waiting for probe %d", held, probe+1)
					}
					time.Sleep(11 * time.Second)
				}
				synctest.Wait()
				equal(fx, "attempts at the same time", highest.Load(), 1)
				for _, limit := range fx.broker.inFlight.all()[len(limits):] {
					if limit > 1 {
						fx.Errorf("MaxInFlight became %d, want 1 for a probe and 0 between them", limit)
					}
				}
				probes := begun.all()[before:]
				equal(fx, "probes", len(probes), 5)
				for i, at := range probes[1:] {
					equal(fx, fmt.Sprint("time between probes ", i+1, " and ", i+2), at-probes[i], 11*time.Second)
				}
				if first := probes[0]; first < 11*time.Second || first > 12*time.Second {
					fx.Errorf("the first probe began after %v, want 10 s after the last failure", first)
				}
			})
		})
	}
}

// Rule R41.
func TestRateLimit_ProbeIsSettledBeforeThePause(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		recover := noRetries
		recover.RateLimit = core.RateLimit{ConsecutiveFailures: 1, TimeToWait: time.Minute}
		fx.runOrders(core.Config{Concurrency: 1, Recoverability: recover}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1", "m2", "m3")
		fx.wantDepth("error", 1)
		time.Sleep(time.Minute)
		fx.wantDepth("error", 2)
		fx.wantDepth("orders", 1)
	})
}

// Rule R42.
func TestRateLimit_OneSuccessSwitchesBack(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"plain": expiringLocks, "ahead": prefetchConfig(10 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				var down atomic.Bool
				down.Store(true)
				var running, highest, handled atomic.Int64
				var changes recorder[string]
				recover := rateLimitedConfig(4)
				observer := core.Observer{RateLimitChanged: func(_ context.Context, _ *core.Endpoint, limited bool) { changes.add(fmt.Sprint(limited)) }}
				ep, _ := fx.runOrders(core.Config{Concurrency: 4, Recoverability: recover, Observers: []core.Observer{observer}}, func(context.Context, *core.Message) error {
					if down.Load() {
						return errBoom
					}
					highest.Store(max(highest.Load(), running.Add(1)))
					time.Sleep(time.Second)
					running.Add(-1)
					handled.Add(1)
					return nil
				})
				for i := range 21 {
					fx.send(order(fmt.Sprint("m", i)))
				}
				time.Sleep(15 * time.Second)
				down.Store(false)
				time.Sleep(5*time.Second + 500*time.Millisecond) // the probe at 20 s is in progress
				synctest.Wait()
				equal(fx, "handled one at a time", highest.Load(), 1)
				time.Sleep(time.Second)
				synctest.Wait()
				equal(fx, "rate limited", ep.Health().RateLimited, false)
				equal(fx, "handled at the same time after one success", running.Load(), 4)
				time.Sleep(5 * time.Second) // four at a time take 20 s for 20
				synctest.Wait()
				equal(fx, "handled", handled.Load(), 21)
				fx.wantDepth("orders", 0)
				if got := changes.all(); !slices.Equal(got, []string{"true", "false"}) {
					fx.Errorf("rate limited: %v", got)
				}
			})
		})
	}
}

// Rule R42.
func TestRateLimit_SuccessOfAnEarlierAttemptSwitchesBack(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		ep, _ := fx.runOrders(core.Config{Concurrency: 2, Recoverability: rateLimitedConfig(1)}, func(_ context.Context, m *core.Message) error {
			if m.ID == "slow" {
				time.Sleep(5 * time.Second)
				return nil
			}
			if m.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		fx.enqueue("slow") // which has begun when the other fails
		fx.enqueue("bad")
		equal(fx, "rate limited", ep.Health().RateLimited, true)
		time.Sleep(5 * time.Second)
		fx.wantDepth("orders", 0) // the pause of 10 s has ended at once
		equal(fx, "rate limited", ep.Health().RateLimited, false)
	})
}

// rateLimitChanges keeps the changes that it is told of.
type rateLimitChanges struct{ recorder[string] }

func (r *rateLimitChanges) RateLimitChanged(_ context.Context, ep *core.Endpoint, limited bool) {
	r.add(fmt.Sprint(ep.Name(), " ", ep.Health().Instance, " ", limited))
}

func (r *rateLimitChanges) observer() core.Observer {
	return core.Observer{RateLimitChanged: r.RateLimitChanged}
}

// Rule R43.
func TestRateLimit_ObserversLogsAndGauge(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var observed rateLimitChanges
		recover := rateLimitedConfig(1)
		started := make(chan struct{})
		type key struct{}
		slow := core.Observer{RateLimitChanged: func(ctx context.Context, _ *core.Endpoint, limited bool) {
			equal(fx, "value of the observer's context", ctx.Value(key{}), any("value"))
			if limited {
				<-started
			}
			panic("in hook")
		}}
		ep := fx.newEndpoint("orders", core.Config{Recoverability: recover, Instance: "i1", Observers: []core.Observer{slow, observed.observer()}})
		var runs atomic.Int64
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			if runs.Add(1) <= 3 {
				return errBoom
			}
			return nil
		})
		fx.startWithContext(context.WithValue(context.Background(), key{}, "value"), ep)
		fx.enqueue("m1")
		equal(fx, "gauge", ep.Health().RateLimited, true)
		time.Sleep(31 * time.Second)
		fx.wantDepth("orders", 0)
		equal(fx, "gauge", ep.Health().RateLimited, false)
		close(started)
		synctest.Wait()
		if got := observed.all(); !slices.Equal(got, []string{"orders i1 true", "orders i1 false"}) {
			fx.Errorf("observed %v", got)
		}
		equal(fx, "panics that are logged", len(fx.logs.find("panicked")), 2)
		for text, level := range map[string]slog.Level{"rate limiting began": slog.LevelWarn, "rate limiting ended": slog.LevelInfo} {
			lines := fx.logs.find(text)
			if len(lines) != 1 || lines[0].level != level || lines[0].attrs["logger"] != "reprise.RateLimit" {
				fx.Errorf("%q was logged as %+v", text, lines)
			}
		}
	})
}

// Rule R44.
func TestRateLimit_FilteredFailuresDoNotCount(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		errOutage := errors.New("outage")
		recover := rateLimitedConfig(3)
		recover.RateLimit.Filter = func(err error) bool { return errors.Is(err, errOutage) }
		var handled atomic.Int64
		var outage atomic.Bool
		ep, _ := fx.runOrders(core.Config{Concurrency: 1, Recoverability: recover}, func(_ context.Context, m *core.Message) error {
			switch {
			case m.ID == "bug" && m.Attempt < 50:
				return errBoom
			case outage.Load():
				return fmt.Errorf("wrapped: %w", errOutage)
			}
			handled.Add(1)
			return nil
		})
		fx.enqueue("bug", "m1", "m2")
		equal(fx, "handled", handled.Load(), 3)
		equal(fx, "rate limited", ep.Health().RateLimited, false)
		outage.Store(true)
		fx.enqueue("m3")
		equal(fx, "rate limited by an outage", ep.Health().RateLimited, true)
	})
}

// Rule R45.
func TestRateLimit_SwitchingLosesAndDuplicatesNothing(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"plain": expiringLocks, "ahead": prefetchConfig(10 * time.Second), "no locks": {}} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				const messages = 500
				var handled, switches atomic.Int64
				recover := rateLimitedConfig(5)
				recover.RateLimit.TimeToWait = 50 * time.Millisecond
				start := time.Now()
				observer := core.Observer{RateLimitChanged: func(_ context.Context, _ *core.Endpoint, limited bool) {
					if limited {
						switches.Add(1)
					}
				}}
				fx.runOrders(core.Config{Concurrency: 8, Recoverability: recover, Observers: []core.Observer{observer}}, func(_ context.Context, m *core.Message) error {
					time.Sleep(time.Duration(len(m.ID)) * time.Millisecond)
					if int(time.Since(start)/(100*time.Millisecond))%2 == 1 {
						return errBoom // an outage in every other tenth of a second
					}
					handled.Add(1)
					return m.Send("shipping", shipType.Of(m.ID))
				})
				for i := range messages {
					fx.send(order(fmt.Sprint("message ", i)))
				}
				time.Sleep(10 * time.Minute)
				fx.wantDepth("orders", 0)
				fx.wantDepth("error", 0)
				equal(fx, "handled", handled.Load(), messages)
				ids := map[string]bool{}
				for _, m := range fx.messages("shipping") {
					ids[string(m.Body)] = true
				}
				equal(fx, "shipped", len(ids), messages)
				fx.wantDepth("shipping", messages)
				if switches.Load() < 5 {
					fx.Errorf("%d switches, want many", switches.Load())
				}
				equal(fx, "receivers opened", fx.broker.opened.len(), 1)
			})
		})
	}
}

// Handlers that answer by verdicts enter the mode in an outage, and leave it after.
func TestRateLimit_ByVerdictsAlone(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var outage atomic.Bool
		outage.Store(true)
		ep, _ := fx.runOrders(core.Config{Recoverability: core.Recoverability{RateLimit: core.RateLimit{ConsecutiveFailures: 3}}}, func(context.Context, *core.Message) error {
			if outage.Load() {
				return core.RetryAfter(errBoom, time.Minute) // the answer to a 503
			}
			return core.Discard(errors.New("not wanted"))
		})
		fx.enqueue("m1", "m2", "m3")
		equal(fx, "rate limited in the outage", ep.Health().RateLimited, true)
		outage.Store(false)
		fx.advance(2 * time.Minute)
		equal(fx, "rate limited after it", ep.Health().RateLimited, false)
		fx.wantDepth("orders", 0)
	})
}

// A log handler that blocks must not hold up failures.
func TestRateLimit_LogThatBlocks(t *testing.T) {
	inModes(t, retryModes[:1], func(fx *fixture) {
		release := make(chan struct{})
		config := core.Config{Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}, RateLimit: core.RateLimit{ConsecutiveFailures: 1, TimeToWait: time.Millisecond},
		}}
		config.Logger = slog.New(blockingLog{logHandler{recorder: fx.logs}, release})
		fx.runOrders(config, func(context.Context, *core.Message) error { return errBoom })
		for i := range 10 {
			fx.enqueue(fmt.Sprint("m", i))
		}
		fx.advance(time.Second)
		fx.wantDepth("error", 10)
		close(release)
	})
}

// blockingLog blocks at lines about rate limiting.
type blockingLog struct {
	slog.Handler
	release chan struct{}
}

func (h blockingLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return blockingLog{h.Handler.WithAttrs(attrs), h.release}
}

func (h blockingLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "rate limiting") && !strings.Contains(r.Message, "single message") {
		<-h.release
	}
	return h.Handler.Handle(ctx, r)
}

// Rule R44.
func TestRateLimit_RepeatedDecisionCountsOnce(t *testing.T) {
	errOutage := errors.New("outage")
	for name, test := range map[string]struct {
		err     error
		limited bool
	}{
		"an outage": {fmt.Errorf("wrapped: %w", errOutage), true},
		"a bug":     {errBoom, false},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				fx.broker.setFaults(refuseOnce("error", 3))
				var asked recorder[error]
				recover := noRetries
				recover.RateLimit = core.RateLimit{ConsecutiveFailures: 2, Filter: func(err error) bool {
					asked.add(err)
					return errors.Is(err, errOutage)
				}}
				ep, _ := fx.runOrders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return test.err })
				fx.enqueue("m1")
				time.Sleep(time.Minute)
				fx.wantDepth("error", 1)
				equal(fx, "rate limited after one failure, moved at the fourth try", ep.Health().RateLimited, false)
				equal(fx, "questions to the filter", asked.len(), 1)
				fx.enqueue("m2")
				equal(fx, "rate limited after the second", ep.Health().RateLimited, test.limited)
				for _, err := range asked.all() {
					if !errors.Is(err, test.err) {
						fx.Errorf("the filter was asked about %T", err)
					}
				}
			})
		})
	}
}
