package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/resilience"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestRetry_PausesBetweenRuns(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Retry: resilience.Retry{Tries: 6, Delay: time.Second, MaxDelay: 5 * time.Second, Jitter: core.Off}})
		start := time.Now()
		var runs record[string]
		b.orders(middleware(p.Middleware()), func(_ context.Context, m *core.Message) error {
			runs.add(time.Since(start).String())
			if err := m.Send("shipping", parcelType.Of(fmt.Sprint("run ", runs.len()))); err != nil {
				b.Error(err)
			}
			if runs.len() < 6 {
				return fmt.Errorf("run %d: %w", runs.len(), errUnreachable)
			}
			return nil
		})
		b.put("orders", "order", "m1")
		b.pass(time.Minute)
		equal(b, "runs", strings.Join(runs.all(), " "), "0s 1s 3s 7s 12s 17s")
		b.holds("error", 0)
		equal(b, "sent", string(b.onlyMessage("shipping").Body), `"run 6"`)
		equal(b, "stats", p.Stats(), resilience.Stats{Tries: 6, Retries: 5})
	})
}

func TestRetry_LastErrorLeaves(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Retry: resilience.Retry{Tries: 3}})
		n := 0
		err := p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { n++; return fmt.Errorf("run %d: %w", n, errUnreachable) })(b.Context(), &core.Message{})
		if !errors.Is(err, errUnreachable) || err.Error() != `resilience: policy "bank": 3 tries failed, the last with: run 3: 503` {
			b.Errorf("failed with %v", err)
		}
	})
}

func TestRetry_Jitter(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Retry: resilience.Retry{Tries: 2, Delay: 10 * time.Second}})
		shortest, longest := time.Hour, time.Duration(0)
		for range 300 {
			start := time.Now()
			_ = p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return errUnreachable })(b.Context(), &core.Message{})
			shortest, longest = min(shortest, time.Since(start)), max(longest, time.Since(start))
		}
		if shortest < 8*time.Second || shortest > 9*time.Second || longest > 12*time.Second || longest < 11*time.Second {
			b.Errorf("pauses of %v to %v, want 8 to 12 s", shortest, longest)
		}
	})
}

func TestRetry_ReturnsOtherResults(t *testing.T) {
	errListed, errOther := errors.New("listed"), errors.New("other")
	for name, test := range map[string]struct {
		retry  resilience.Retry
		result error
	}{
		"a success":                   {result: nil},
		"a verdict":                   {result: core.RetryAfter(errUnreachable, time.Hour)},
		"a verdict that is wrapped":   {result: fmt.Errorf("so: %w", core.Defer(errors.New("not yet"), time.Hour))},
		"a refusal":                   {result: fmt.Errorf("so: %w", &resilience.RefusedError{Policy: "inner", By: resilience.StrategyBreaker})},
		"an undecodable body":         {result: fmt.Errorf("%w: %w", core.ErrUndecodable, errUnreachable)},
		"a type without a handler":    {result: core.ErrNoHandler},
		"an unrecoverable error":      {result: errListed},
		"an error that On leaves out": {resilience.Retry{On: []error{errUnreachable}}, errOther},
		"one that OnFunc declines":    {resilience.Retry{OnFunc: func(error) bool { return false }}, errOther},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				c := test.retry
				c.Tries = 5
				p := b.policy(resilience.Config{Retry: c})
				config := middleware(p.Middleware())
				config.Recoverability.Delayed = core.Delayed{NumberOfRetries: 1, TimeIncrease: 2 * time.Hour}
				config.Recoverability.Unrecoverable = []error{errListed}
				var runs atomic.Int64
				b.orders(config, func(context.Context, *core.Message) error { runs.Add(1); return test.result })
				b.put("orders", "order", "m1")
				b.pass(time.Minute)
				equal(b, "runs", runs.Load(), 1)
			})
		})
	}
	t.Run("repeats selected errors", func(t *testing.T) {
		bubble(t, func(b *bed) {
			p := b.policy(resilience.Config{Retry: resilience.Retry{Tries: 3, On: []error{errUnreachable}, OnFunc: func(err error) bool { return errors.Is(err, errOther) }}})
			for _, err := range []error{fmt.Errorf("x: %w", errUnreachable), errOther} {
				runs := 0
				_ = p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { runs++; return err })(b.Context(), &core.Message{})
				equal(b, "runs", runs, 3)
			}
		})
	})
	t.Run("a panic", func(t *testing.T) {
		bubble(t, func(b *bed) {
			p := b.policy(resilience.Config{Retry: resilience.Retry{Tries: 3}, Bulkhead: resilience.Bulkhead{Concurrency: 1}})
			var runs atomic.Int64
			b.orders(middleware(p.Middleware()), func(context.Context, *core.Message) error { runs.Add(1); panic("boom") })
			b.put("orders", "order", "m1", "m2", "m3")
			b.pass(time.Minute)
			equal(b, "runs", runs.Load(), 3) // the place of the bulkhead is given back
			b.holds("error", 3)
		})
	})
}

// A message that is lost, or that a shutdown cuts off, ends at once, also in a pause.
func TestRetry_EndsWithItsMessage(t *testing.T) {
	const pause = time.Hour
	c := resilience.Config{
		Breaker: resilience.Breaker{Failures: 1},
		Retry:   resilience.Retry{Tries: 3, Delay: pause, Jitter: core.Off},
	}
	t.Run("lock lost", func(t *testing.T) {
		caps := inmemory.Everything()
		caps.MaxLockTime = 10 * time.Second
		bubbleOn(t, inmemory.Config{Capabilities: &caps, LockDuration: 5 * time.Second}, func(b *bed) {
			p := b.policy(c)
			start, ends := time.Now(), record[string]{}
			watch := func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					err := next(ctx, m)
					ends.add(fmt.Sprint(time.Since(start), " ", errors.Is(err, core.ErrLockLost), " ", errors.Is(err, errUnreachable)))
					return err
				}
			}
			config := middleware(core.MiddlewareFunc(watch), p.Middleware())
			b.orders(config, func(context.Context, *core.Message) error { return errUnreachable })
			b.put("orders", "order", "m1")
			b.pass(11 * time.Second)
			if got := ends.all(); len(got) != 1 || !strings.HasPrefix(got[0], "1") && !strings.HasPrefix(got[0], "5") || !strings.HasSuffix(got[0], "s true true") {
				b.Errorf("ended %q", got)
			}
			equal(b, "state", p.State(), resilience.Closed)
			b.holds("error", 0)
		})
	})
	t.Run("shutdown", func(t *testing.T) {
		bubble(t, func(b *bed) {
			p := b.policy(c)
			config := middleware(p.Middleware())
			config.DrainTimeout = 2 * time.Second
			ep := b.endpoint("orders", config, func(context.Context, *core.Message) error { return errUnreachable }, "order")
			stop := b.run(ep)
			b.put("orders", "order", "m1")
			b.pass(time.Minute)
			start := time.Now()
			stop()
			equal(b, "took", time.Since(start), 2*time.Second)
			equal(b, "state", p.State(), resilience.Closed)
			equal(b, "tries", p.Stats().Tries, 1)
			b.holds("orders", 1)
			b.holds("error", 0)
		})
	})
	t.Run("a try that succeeds after the end", func(t *testing.T) {
		bubble(t, func(b *bed) {
			p := b.policy(c)
			ctx, cancel := context.WithCancel(b.Context())
			err := p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { cancel(); return nil })(ctx, &core.Message{})
			equal(b, "error", err, nil)
		})
	})
}

func TestTimeouts(t *testing.T) {
	for _, test := range []struct {
		name   string
		config resilience.Config
		heeds  bool // whether the handler heeds its context
		runs   []string
		text   string
		fails  bool
	}{
		{
			name: "of a try", config: resilience.Config{TryTimeout: time.Second}, heeds: true, fails: true,
			runs: []string{"0s"}, text: `resilience: policy "bank": time-out of a try after 1s: handler gave up`,
		},
		{
			name: "of each try", config: resilience.Config{TryTimeout: time.Second, Retry: resilience.Retry{Tries: 3, Delay: time.Second, Jitter: core.Off}}, heeds: true, fails: true,
			runs: []string{"0s", "2s", "5s"}, text: `resilience: policy "bank": 3 tries failed, the last with: resilience: policy "bank": time-out of a try after 1s: handler gave up`,
		},
		{
			name: "in a pause", config: resilience.Config{Timeout: 4 * time.Second, TryTimeout: time.Second, Retry: resilience.Retry{Tries: 3, Delay: time.Second, Jitter: core.Off}}, heeds: true, fails: true,
			runs: []string{"0s", "2s"},
			text: `resilience: policy "bank": total time-out after 4s: resilience: policy "bank": 2 tries failed, the last with: resilience: policy "bank": time-out of a try after 1s: handler gave up`,
		},
		{
			name: "of all tries", config: resilience.Config{Timeout: 10 * time.Second, Retry: resilience.Retry{Tries: 3}}, heeds: true, fails: true,
			runs: []string{"0s"}, text: `resilience: policy "bank": total time-out after 10s: handler gave up`,
		},
		{
			name: "of a handler that ends well nevertheless", config: resilience.Config{TryTimeout: time.Second, Timeout: 2 * time.Second, Retry: resilience.Retry{Tries: 3}},
			runs: []string{"0s"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				p := b.policy(test.config)
				start := time.Now()
				var runs []string
				err := p.Middleware().Wrap(core.MiddlewareScope{}, func(ctx context.Context, _ *core.Message) error {
					runs = append(runs, time.Since(start).String())
					if !test.heeds {
						time.Sleep(time.Minute)
						return nil
					}
					<-ctx.Done()
					if _, ok := errors.AsType[*resilience.TimeoutError](context.Cause(ctx)); !ok {
						b.Errorf("ended because of %v", context.Cause(ctx))
					}
					return errors.New("handler gave up")
				})(b.Context(), &core.Message{})
				if !slices.Equal(runs, test.runs) {
					b.Errorf("runs at %v, want %v", runs, test.runs)
				}
				switch {
				case !test.fails:
					equal(b, "error", err, nil)
				case err == nil || err.Error() != test.text || !errors.Is(err, context.DeadlineExceeded):
					b.Errorf("failed with %v\nwant %s", err, test.text)
				}
				equal(b, "time-outs are counted", p.Stats().TimedOut > 0, test.fails)
			})
		})
	}
}

// A try that a policy has interrupted has failed, with any selection of errors.
func TestTimeouts_AreAlwaysFailures(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{
			Breaker:    resilience.Breaker{Failures: 1, On: []error{errUnreachable}},
			Retry:      resilience.Retry{Tries: 3, OnFunc: func(error) bool { return false }},
			TryTimeout: time.Second,
		})
		_ = p.Middleware().Wrap(core.MiddlewareScope{}, func(ctx context.Context, _ *core.Message) error { <-ctx.Done(); return ctx.Err() })(b.Context(), &core.Message{})
		equal(b, "stats", p.Stats(), resilience.Stats{State: resilience.Open, Tries: 3, Retries: 2, TimedOut: 3})
	})
}

// A verdict that comes after a time-out is the handler's decision.
func TestTimeouts_KeepVerdicts(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{TryTimeout: time.Second, Retry: resilience.Retry{Tries: 3}})
		verdict := core.Defer(errors.New("not yet"), time.Hour)
		err := p.Middleware().Wrap(core.MiddlewareScope{}, func(ctx context.Context, _ *core.Message) error { <-ctx.Done(); return verdict })(b.Context(), &core.Message{})
		equal(b, "error", err, verdict)
	})
}
