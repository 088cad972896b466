package resilience_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/middleware/resilience"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestRateLimit_Waits(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{RateLimit: resilience.RateLimit{Messages: 2, MaxWait: time.Minute}})
		start := time.Now()
		var runs record[string]
		b.orders(middleware(p.Middleware()), func(context.Context, *core.Message) error {
			runs.add(time.Since(start).String())
			return nil
		})
		b.put("orders", "order", "m1", "m2", "m3", "m4", "m5")
		b.pass(time.Minute)
		equal(b, "runs", strings.Join(runs.all(), " "), "0s 500ms 1s 1.5s 2s")
	})
}

func TestRateLimit_Burst(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{RateLimit: resilience.RateLimit{Messages: 2, Per: time.Minute, Burst: true, MaxWait: time.Hour}})
		start := time.Now()
		var runs record[string]
		b.orders(middleware(p.Middleware()), func(context.Context, *core.Message) error {
			runs.add(time.Since(start).String())
			return nil
		})
		b.put("orders", "order", "m1", "m2", "m3", "m4", "m5")
		b.pass(time.Hour)
		equal(b, "runs", strings.Join(runs.all(), " "), "0s 0s 1m0s 1m0s 2m0s")
	})
}

// Refused messages come back spread at the rate, and each is soon through.
func TestRateLimit_Refuses(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{RateLimit: resilience.RateLimit{Messages: 10}})
		var runs atomic.Int64
		c := middleware(p.Middleware())
		c.Recoverability.RequeueLimit = 1
		b.orders(c, func(_ context.Context, m *core.Message) error {
			runs.Add(1)
			equal(b, "deferrals", m.Deferrals, 0)
			return nil
		})
		var ids []string
		for i := range 200 {
			ids = append(ids, fmt.Sprint("m", i))
		}
		b.put("orders", "order", ids...)
		b.pass(10 * time.Second)
		if n := runs.Load(); n < 50 || n > 101 {
			b.Errorf("%d runs in 10 s at 10 in a second", n)
		}
		b.pass(5 * time.Minute)
		equal(b, "runs", runs.Load(), 200)
		if n := p.Stats().Refused; n > 1000 { // 200 in the first second, and in each further one again without the spread
			b.Errorf("%d refusals for 200 messages", n)
		}
		b.holds("error", 0)
	})
}

func TestBulkhead(t *testing.T) {
	for name, wait := range map[string]time.Duration{"waits": time.Hour, "refuses": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				p := b.policy(resilience.Config{Bulkhead: resilience.Bulkhead{Concurrency: 3, MaxWait: wait, RefuseFor: 5 * time.Second}})
				var now, highest, runs atomic.Int64
				b.orders(middleware(p.Middleware()), func(context.Context, *core.Message) error {
					highest.Store(max(highest.Load(), now.Add(1)))
					time.Sleep(time.Second)
					now.Add(-1)
					runs.Add(1)
					return nil
				})
				var ids []string
				for i := range 16 {
					ids = append(ids, fmt.Sprint("m", i))
				}
				b.put("orders", "order", ids...)
				equal(b, "refused", p.Stats().Refused, map[time.Duration]int64{time.Hour: 0, 0: 13}[wait])
				b.pass(5 * time.Minute)
				equal(b, "most at the same time", highest.Load(), 3)
				equal(b, "runs", runs.Load(), 16)
				b.holds("error", 0)
			})
		})
	}
}

// A message that is lost while it waits ends at once, and takes nothing with it.
func TestLimits_EndWithTheirMessage(t *testing.T) {
	for name, c := range map[string]resilience.Config{
		"rate limit": {RateLimit: resilience.RateLimit{Messages: 1, Per: time.Hour, MaxWait: time.Hour}},
		"bulkhead":   {Bulkhead: resilience.Bulkhead{Concurrency: 1, MaxWait: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				c.Breaker = resilience.Breaker{Failures: 1}
				p := b.policy(c)
				ended := make(chan struct{})
				handle := p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { <-ended; return nil })
				done := make(chan struct{})
				go func() { defer close(done); _ = handle(b.Context(), &core.Message{}) }()
				time.Sleep(time.Second)
				ctx, cancel := context.WithCancelCause(b.Context())
				time.AfterFunc(time.Second, func() { cancel(core.ErrLockLost) })
				start := time.Now()
				err := handle(ctx, &core.Message{})
				if !errors.Is(err, core.ErrLockLost) || isRefused(err) || core.VerdictOf(err) != nil {
					b.Errorf("ended with %v", err)
				}
				equal(b, "waited", time.Since(start), time.Second)
				equal(b, "state", p.State(), resilience.Closed)
				close(ended)
				<-done
			})
		})
	}
}

// An open circuit is found first: it costs no turn and no place.
func TestNest_BreakerIsOutermost(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{
			Breaker:   resilience.Breaker{Failures: 1, OpenFor: time.Minute},
			RateLimit: resilience.RateLimit{Messages: 1, Per: time.Minute},
		})
		result := errUnreachable
		handle := p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return result })
		_ = handle(b.Context(), &core.Message{})
		time.Sleep(59 * time.Second)
		for range 10 {
			if err := handle(b.Context(), &core.Message{}); !errors.Is(err, core.ErrCircuitOpen) {
				b.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		result = nil
		equal(b, "result", handle(b.Context(), &core.Message{}), nil)
		// A message that the limiter refuses says nothing to the breaker.
		err := handle(b.Context(), &core.Message{})
		if r, ok := errors.AsType[*resilience.RefusedError](err); !ok || r.By != resilience.StrategyRateLimit || errors.Is(err, core.ErrCircuitOpen) {
			b.Errorf("refused with %v", err)
		}
	})
	bubble(t, func(b *bed) { // in the half-open state too
		p := b.policy(resilience.Config{
			Breaker:   resilience.Breaker{Failures: 1, OpenFor: time.Second},
			RateLimit: resilience.RateLimit{Messages: 1, Per: time.Minute},
		})
		result := errUnreachable
		handle := p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return result })
		_ = handle(b.Context(), &core.Message{})
		time.Sleep(2 * time.Second)
		for range 3 {
			_ = handle(b.Context(), &core.Message{})
			equal(b, "state", p.State(), resilience.HalfOpen)
		}
		time.Sleep(time.Minute)
		result = nil
		equal(b, "result", handle(b.Context(), &core.Message{}), nil)
		equal(b, "state", p.State(), resilience.Closed)
	})
}

// The pauses of a sequence hold the place of the bulkhead, and it takes one turn.
func TestNest_SequenceTakesOneTurnAndOnePlace(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{
			RateLimit: resilience.RateLimit{Messages: 1, Per: time.Minute},
			Bulkhead:  resilience.Bulkhead{Concurrency: 1},
			Retry:     resilience.Retry{Tries: 5, Delay: time.Second, Factor: 1, Jitter: core.Off},
		})
		var runs []string
		handle := p.Middleware().Wrap(core.MiddlewareScope{}, func(_ context.Context, m *core.Message) error { runs = append(runs, m.ID); return errUnreachable })
		if err := handle(b.Context(), &core.Message{ID: "m1"}); isRefused(err) || len(runs) != 5 {
			b.Errorf("%v after %v", err, runs)
		}
	})
}

func TestRefusal(t *testing.T) {
	opens := resilience.Config{Breaker: resilience.Breaker{Failures: 1, OpenFor: 30 * time.Second}}
	// The circuit opens with m0, and m1 comes next.
	unable, counting := inmemory.Everything(), inmemory.Everything()
	unable.DelayedDelivery, counting.CountsReleases = false, true
	both := unable
	both.CountsReleases = true
	for _, test := range []struct {
		caps         *core.Capabilities // nil is all
		refusal      resilience.Refusal
		immediate    int
		delayed      int
		outage       time.Duration
		inErrorQueue bool // m1, after an outage of two minutes
	}{
		{caps: &counting, refusal: resilience.Defer, delayed: 3, outage: 2 * time.Minute},
		{caps: &both, refusal: resilience.Defer, outage: 2 * time.Minute},
		{caps: &unable, refusal: resilience.Defer, outage: 2 * time.Minute},
		{nil, resilience.Defer, 0, 3, 2 * time.Minute, false},
		{nil, resilience.RetryAfter, 0, 3, 2 * time.Minute, true},
		{nil, resilience.RetryAfter, 0, 10, 2 * time.Minute, false},
		{nil, resilience.Fail, 5, 3, 2 * time.Minute, true},
	} {
		t.Run(fmt.Sprint(test.refusal, " ", test.delayed), func(t *testing.T) {
			bubbleOn(t, inmemory.Config{Capabilities: test.caps}, func(b *bed) {
				c := opens
				c.Refusal = test.refusal
				p := b.policy(c)
				start := time.Now()
				var seen record[string]
				config := core.Config{Middleware: []core.Middleware{p.Middleware()}, Recoverability: core.Recoverability{
					Immediate: core.Immediate{NumberOfRetries: cmp.Or(test.immediate, core.Off)},
					Delayed:   core.Delayed{NumberOfRetries: test.delayed, TimeIncrease: time.Second},
				}}
				if test.inErrorQueue {
					config.Recoverability.RetryAfterLimit = time.Minute
				}
				if test.delayed == 0 {
					config.Recoverability.Delayed = core.Delayed{NumberOfRetries: core.Off}
				}
				b.orders(config, func(_ context.Context, m *core.Message) error {
					if m.ID == "m0" || time.Since(start) < test.outage {
						return core.GiveUp(errUnreachable)
					}
					seen.add(fmt.Sprint(m.DelayedRetries))
					return nil
				})
				_ = p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return errUnreachable })(b.Context(), &core.Message{})
				b.put("orders", "order", "m1")
				for range 4 { // it stays open for two minutes
					b.pass(30 * time.Second)
					_ = p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error {
						if time.Since(start) < test.outage {
							return errUnreachable
						}
						return nil
					})(b.Context(), &core.Message{})
				}
				b.pass(time.Hour)
				if test.inErrorQueue {
					b.holds("error", 1)
					equal(b, "runs of m1", seen.len(), 0)
					if text := b.onlyMessage("error").Headers.Get(headers.ExceptionMessage); !strings.Contains(text, `policy "bank": the circuit breaker refuses messages until`) || !strings.Contains(text, "503") {
						b.Errorf("it failed with %q", text)
					}
					return
				}
				b.holds("error", 0)
				equal(b, "delayed retries of m1, which refusals do not count as", strings.Join(seen.all(), " "), "0")
			})
		})
	}
}

func TestRefusedError_Text(t *testing.T) {
	err := &resilience.RefusedError{Policy: "bank", By: resilience.StrategyBulkhead, Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if got := err.Error(); got != `resilience: policy "bank": the bulkhead refuses messages until 2026-01-02T03:04:05Z` {
		t.Error(got)
	}
	if errors.Is(err, core.ErrCircuitOpen) {
		t.Error("the bulkhead is no circuit")
	}
}

// Without a queue the caller gets the refusal.
func TestInvoke(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 1}, Retry: resilience.Retry{Tries: 3}})
		runs := 0
		ep := b.endpoint("orders", middleware(p.Middleware()), func(context.Context, *core.Message) error { runs++; return errUnreachable }, "order")
		if err := ep.Invoke(b.Context(), orderType.Of([]byte("x"))); !errors.Is(err, errUnreachable) {
			b.Error(err)
		}
		err := ep.Invoke(b.Context(), orderType.Of([]byte("x")))
		if !errors.Is(err, core.ErrCircuitOpen) || !isRefused(err) {
			b.Error(err)
		}
		equal(b, "runs", runs, 3)
	})
}
