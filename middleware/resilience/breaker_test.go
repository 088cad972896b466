package resilience_test

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
	"github.com/reprise-go/reprise/middleware/resilience"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// twoSequencesOfFour opens after two sequences of four tries each.
var twoSequencesOfFour = resilience.Config{
	Breaker: resilience.Breaker{Failures: 2, OpenFor: time.Minute},
	Retry:   resilience.Retry{Tries: 4, Delay: time.Second, Factor: 1, Jitter: core.Off},
}

func TestBreaker_CountsSequences(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(twoSequencesOfFour)
		var runs record[string]
		b.orders(middleware(p.Middleware()), func(_ context.Context, m *core.Message) error {
			runs.add(m.ID)
			return errUnreachable
		})
		for _, id := range []string{"m1", "m2", "m3", "m4"} {
			b.put("orders", "order", id)
			b.pass(10 * time.Second)
		}
		equal(b, "runs", fmt.Sprint(runs.all()), "[m1 m1 m1 m1 m2 m2 m2 m2]")
		equal(b, "state", p.State(), resilience.Open)
		b.holds("error", 2)
		b.holds("orders", 2)
	})
}

func TestBreaker_CountsTries(t *testing.T) {
	bubble(t, func(b *bed) {
		c := twoSequencesOfFour
		c.Breaker.CountTries = true
		p := b.policy(c)
		var runs record[string]
		b.orders(middleware(p.Middleware()), func(_ context.Context, m *core.Message) error {
			runs.add(m.ID)
			return errUnreachable
		})
		b.put("orders", "order", "m1")
		b.pass(10 * time.Second)
		equal(b, "runs", runs.len(), 2) // the sequence ends where its try opened the circuit
		equal(b, "state", p.State(), resilience.Open)
		b.holds("error", 1)
		b.pass(time.Hour)
		b.put("orders", "order", "m2")
		b.pass(time.Minute / 2)
		equal(b, "runs with the one that is let through to try", runs.len(), 3)
	})
}

func TestBreaker_CountsTriesThatSucceed(t *testing.T) {
	bubble(t, func(b *bed) {
		c := twoSequencesOfFour
		c.Breaker = resilience.Breaker{Failures: 3, CountTries: true}
		p := b.policy(c)
		var runs atomic.Int64
		b.orders(middleware(p.Middleware()), func(context.Context, *core.Message) error {
			if runs.Add(1)%3 != 0 {
				return errUnreachable
			}
			return nil
		})
		for _, id := range []string{"m1", "m2"} { // one after the other: the breaker counts in the order of the ends
			b.put("orders", "order", id)
			b.pass(time.Minute)
		}
		equal(b, "runs", runs.Load(), 6)
		b.holds("error", 0)
		equal(b, "stats", p.Stats(), resilience.Stats{Tries: 6, Retries: 4})
	})
}

// A circuit that others open during a pause is not tried again.
func TestBreaker_CountsTriesOfOthers(t *testing.T) {
	bubble(t, func(b *bed) {
		c := twoSequencesOfFour
		c.Breaker = resilience.Breaker{Failures: 3, CountTries: true, OpenFor: time.Hour}
		p := b.policy(c)
		var runs record[string]
		b.orders(middleware(p.Middleware()), func(_ context.Context, m *core.Message) error { runs.add(m.ID); return errUnreachable })
		b.put("orders", "order", "m1", "m2") // one try each
		b.put("orders", "order", "m3")
		b.pass(time.Minute)
		equal(b, "runs", runs.len(), 3)
		b.holds("error", 3)
	})
}

// Equal values are the same breaker.
func TestBreaker_IsSharedByItsValue(t *testing.T) {
	opens := resilience.Config{Breaker: resilience.Breaker{Failures: 1, OpenFor: time.Hour}}
	for _, test := range []struct {
		name string
		run  func(b *bed, handler core.HandlerFunc) // puts three messages
		want string
	}{
		{"one for three types", func(b *bed, handler core.HandlerFunc) {
			p := b.policy(opens)
			b.run(b.endpoint("orders", middleware(p.For("a"), p.For("b"), p.For("c")), handler, "a", "b", "c"))
			for _, messageType := range []string{"a", "b", "c"} {
				b.put("orders", messageType, messageType)
			}
		}, "[a]"},
		{"one for two endpoints", func(b *bed, handler core.HandlerFunc) {
			p := b.policy(opens)
			for _, name := range []string{"orders", "shipping"} {
				b.run(b.endpoint(name, middleware(p.Middleware()), handler, "a"))
				b.put(name, "a", name)
			}
		}, "[orders]"},
		{"one for each type", func(b *bed, handler core.HandlerFunc) {
			ps, err := resilience.PerType(func(messageType string) resilience.Config {
				c := opens
				c.Logger = slog.New(b.logs)
				return c
			}, "a", "b")
			if err != nil {
				b.Fatal(err)
			}
			b.run(b.endpoint("orders", middleware(ps.Middleware()), handler, "a", "b", "c"))
			for _, id := range []string{"a1", "a2", "b1", "b2", "c1", "c2"} { // one after the other
				b.put("orders", id[:1], id)
			}
			equal(b, "state of a", ps.Policy("a").State(), resilience.Open)
			if opened := b.logs.about("circuit is open; messages are refused"); len(opened) != 2 || opened[1].attrs["policy"].String() != "b" {
				b.Errorf("the circuits that opened are %v, want those of a and b", opened)
			}
			equal(b, "policy of c", ps.Policy("c"), nil)
		}, "[a1 b1 c1 c2]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				var runs record[string]
				test.run(b, func(_ context.Context, m *core.Message) error {
					runs.add(m.ID)
					return errUnreachable
				})
				got := runs.all()
				slices.Sort(got)
				equal(b, "runs", fmt.Sprint(got), test.want)
			})
		})
	}
}

func TestBreaker_HalfOpenAdmitsOneOf50(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 1, OpenFor: time.Minute}})
		unreachable := atomic.Bool{}
		unreachable.Store(true)
		var runs, now, highest atomic.Int64
		c := middleware(p.Middleware())
		c.Concurrency = 50
		b.orders(c, func(context.Context, *core.Message) error {
			runs.Add(1)
			highest.Store(max(highest.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			if unreachable.Load() {
				return errUnreachable
			}
			return nil
		})
		b.put("orders", "order", "m0")
		b.pass(time.Second)
		equal(b, "state", p.State(), resilience.Open)
		b.pass(time.Minute)
		highest.Store(0)
		var ids []string
		for i := range 50 {
			ids = append(ids, fmt.Sprint("m", i+1))
		}
		b.put("orders", "order", ids...) // all at the same moment
		equal(b, "state", p.State(), resilience.HalfOpen)
		equal(b, "runs of 50", runs.Load(), 2)
		equal(b, "refused", p.Stats().Refused, 49)
		b.pass(time.Second) // it fails
		equal(b, "state", p.State(), resilience.Open)
		unreachable.Store(false)
		b.pass(10 * time.Minute)
		equal(b, "runs", runs.Load(), 51)
		b.holds("orders", 0)
		b.holds("error", 2)
	})
}

// These ends of a message say nothing about the service, open or closed.
func TestBreaker_IsNotMovedBy(t *testing.T) {
	errListed, errOther := errors.New("listed"), errors.New("other")
	for name, test := range map[string]struct {
		breaker resilience.Breaker
		result  func() error
	}{
		"verdicts":                    {result: func() error { return core.RetryAfter(errUnreachable, time.Hour) }},
		"verdicts that are wrapped":   {result: func() error { return fmt.Errorf("so: %w", core.GiveUp(errUnreachable)) }},
		"undecodable bodies":          {result: func() error { return fmt.Errorf("%w: %w", core.ErrUndecodable, errUnreachable) }},
		"types without a handler":     {result: func() error { return fmt.Errorf("%w: x", core.ErrNoHandler) }},
		"unrecoverable errors":        {result: func() error { return errListed }},
		"errors that On leaves out":   {resilience.Breaker{On: []error{errUnreachable}}, func() error { return errOther }},
		"errors that OnFunc declines": {resilience.Breaker{OnFunc: func(err error) bool { return errors.Is(err, errUnreachable) }}, func() error { return errOther }},
		"panics where errors are selected": {resilience.Breaker{On: []error{errUnreachable}}, func() error {
			panic("boom")
		}},
		"refusals of another policy": {result: func() error { return &resilience.RefusedError{Policy: "other", By: resilience.StrategyRateLimit} }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				c := test.breaker
				c.Failures, c.OpenFor = 2, time.Minute
				p := b.policy(resilience.Config{Breaker: c})
				var result func() error
				config := middleware(p.Middleware())
				config.Recoverability.Delayed = core.Delayed{NumberOfRetries: 1}
				config.Recoverability.Immediate = core.Immediate{NumberOfRetries: core.Off}
				config.Recoverability.Unrecoverable = []error{errListed}
				b.orders(config, func(context.Context, *core.Message) error { return result() })
				failing := func() error { return errUnreachable }

				result = failing
				b.put("orders", "order", "a failure")
				result = test.result
				for i := range 10 {
					b.put("orders", "order", fmt.Sprint("neutral ", i))
				}
				equal(b, "state", p.State(), resilience.Closed)
				result = failing
				b.put("orders", "order", "the second failure")
				equal(b, "state after a second failure", p.State(), resilience.Open)
				b.pass(2 * time.Hour)

				p2 := b.policy(resilience.Config{Breaker: c}) // half-open
				next := func(context.Context, *core.Message) error { return result() }
				handle := p2.Middleware().Wrap(core.MiddlewareScope{}, next)
				m := &core.Message{ID: "m", Type: "order"}
				call := func() {
					defer func() { _ = recover() }()
					_ = handle(b.Context(), m)
				}
				call()
				call()
				equal(b, "state", p2.State(), resilience.Open)
				time.Sleep(time.Minute)
				if name == "unrecoverable errors" { // which only an endpoint knows
					return
				}
				for range 3 { // each gives its place back
					result = test.result
					call()
					equal(b, "state", p2.State(), resilience.HalfOpen)
				}
				result = func() error { return nil }
				call()
				equal(b, "state after a success", p2.State(), resilience.Closed)
			})
		})
	}
}

// The failure of one independent handler counts, although that of another one decides.
func TestBreaker_CountsEachIndependentHandler(t *testing.T) {
	for name, other := range map[string]error{"an error": errors.New("other"), "a verdict": core.RetryAfter(errors.New("other"), time.Hour)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 2, On: []error{errUnreachable}}})
				c := middleware(p.Middleware())
				c.Recoverability.Delayed = core.Delayed{NumberOfRetries: 1}
				ep := b.endpoint("orders", c, nil)
				failure := errUnreachable
				for _, err := range []*error{&other, &failure} {
					handler := func(context.Context, *core.Message, []byte) error { return *err }
					core.Handle(ep, orderType, handler, core.HandleOptions{Independent: true})
				}
				fails := func() {
					if err := ep.Invoke(b.Context(), orderType.Of([]byte("x"))); !errors.Is(err, other) {
						b.Errorf("Invoke returned %v", err)
					}
				}
				fails()
				failure = errors.New("else")
				fails() // which is none of the service's
				equal(b, "state after one failure", p.State(), resilience.Closed)
				failure = errUnreachable
				fails()
				equal(b, "state after two", p.State(), resilience.Open)
			})
		})
	}
}

// unreadable is an error whose nil pointer panics when it is read.
type unreadable struct{ text string }

func (u *unreadable) Error() string { return u.text }

// unwrapping is one that panics already when it is compared.
type unwrapping struct{ err error }

func (u *unwrapping) Error() string { return u.err.Error() }
func (u *unwrapping) Unwrap() error { return u.err }

func TestBreaker_CountsErrorsThatCannotBeRead(t *testing.T) {
	for name, unfit := range map[string]error{"text": (*unreadable)(nil), "comparison": (*unwrapping)(nil)} {
		for _, countTries := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", tries ", countTries), func(t *testing.T) {
				bubble(t, func(b *bed) {
					p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 1, OpenFor: time.Minute, CountTries: countTries}})
					result := unfit
					b.orders(middleware(p.Middleware()), func(context.Context, *core.Message) error { return result })
					b.put("orders", "order", "m1")
					equal(b, "state", p.State(), resilience.Open)
					b.pass(time.Minute)
					b.put("orders", "order", "m2") // the one that is let through
					equal(b, "state after it failed half-open", p.State(), resilience.Open)
					b.pass(time.Minute)
					result = nil
					b.put("orders", "order", "m3")
					equal(b, "state after a success", p.State(), resilience.Closed)
					b.holds("error", 2)
				})
			})
		}
	}
}

func TestBreaker_CountsPanicsAndTimeOuts(t *testing.T) {
	for name, result := range map[string]func(ctx context.Context) error{
		"panic":    func(context.Context) error { panic("boom") },
		"time-out": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 2}})
				c := middleware(p.Middleware())
				c.HandlerTimeout = time.Second
				b.orders(c, func(ctx context.Context, _ *core.Message) error { return result(ctx) })
				b.put("orders", "order", "m1", "m2")
				b.pass(time.Second)
				equal(b, "state", p.State(), resilience.Open)
			})
		})
	}
}

// A message that began before the circuit opened tells nothing about the time after.
func TestBreaker_IgnoresResultsOfAnEarlierState(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 1, OpenFor: time.Minute}})
		release := map[string]chan error{"slow": make(chan error), "fast": make(chan error), "probe": make(chan error)}
		b.orders(middleware(p.Middleware()), func(_ context.Context, m *core.Message) error { return <-release[m.ID] })
		b.put("orders", "order", "slow", "fast")
		release["fast"] <- errUnreachable
		synctest.Wait()
		equal(b, "state", p.State(), resilience.Open)
		b.pass(time.Minute)
		b.put("orders", "order", "probe")
		equal(b, "state", p.State(), resilience.HalfOpen)
		release["slow"] <- nil
		synctest.Wait()
		equal(b, "state after a success of before", p.State(), resilience.HalfOpen)
		release["probe"] <- errUnreachable
		synctest.Wait()
		equal(b, "state", p.State(), resilience.Open)
	})
}

func TestBreaker_Thresholds(t *testing.T) {
	for _, test := range []struct {
		name    string
		breaker resilience.Breaker
		results string // . succeeds, x fails, _ waits for 10 s
		want    resilience.State
	}{
		{"in a row", resilience.Breaker{Failures: 3}, "xx.xx.xx", resilience.Closed},
		{"in a row", resilience.Breaker{Failures: 3}, "xx.xxx", resilience.Open},
		{"of the last", resilience.Breaker{Failures: 3, Of: 5}, "x..x..x..x", resilience.Closed},
		{"of the last", resilience.Breaker{Failures: 3, Of: 5}, "x.x.x", resilience.Open},
		{"within a time", resilience.Breaker{Failures: 3, Within: 10 * time.Second}, "x_x_x_x", resilience.Closed},
		{"within a time", resilience.Breaker{Failures: 3, Within: time.Minute}, "x.._x.._x", resilience.Open},
	} {
		t.Run(test.name+" "+test.results, func(t *testing.T) {
			bubble(t, func(b *bed) {
				p := b.policy(resilience.Config{Breaker: test.breaker})
				var result error
				handle := p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return result })
				for _, r := range test.results {
					switch r {
					case '.':
						result = nil
					case 'x':
						result = errUnreachable
					case '_':
						time.Sleep(10 * time.Second)
						continue
					}
					_ = handle(b.Context(), &core.Message{})
				}
				equal(b, "state", p.State(), test.want)
			})
		})
	}
}

func TestBreaker_ReportsEachChange(t *testing.T) {
	bubble(t, func(b *bed) {
		var changes record[string]
		var p *resilience.Policy
		p = b.policy(resilience.Config{
			Breaker: resilience.Breaker{Failures: 1, OpenFor: time.Minute},
			OnStateChange: func(c resilience.StateChange) {
				changes.add(fmt.Sprintf("%v to %v (%v) %q", c.From, c.To, p.State(), c.Cause))
				if c.To == resilience.Open && !c.Until.Equal(time.Now().Add(time.Minute)) {
					b.Errorf("open until %v", c.Until)
				}
				if c.To == resilience.HalfOpen {
					panic("a hook that panics")
				}
			},
		})
		result := errUnreachable
		handle := p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return result })
		for range 3 {
			_ = handle(b.Context(), &core.Message{})
			time.Sleep(time.Minute)
		}
		result = core.Defer(errors.New("not yet"), time.Hour) // says nothing, and is no change
		_ = handle(b.Context(), &core.Message{})
		result = nil
		_ = handle(b.Context(), &core.Message{})
		want := []string{
			`closed to open (open) "503"`, `open to half-open (half-open) "503"`, `half-open to open (open) "503"`, `open to half-open (half-open) "503"`,
			`half-open to open (open) "503"`, `open to half-open (half-open) "503"`, `half-open to closed (closed) "503"`,
		}
		if got := changes.all(); !slices.Equal(got, want) {
			b.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		equal(b, "lines about the opening", len(b.logs.about("circuit is open; messages are refused")), 1)
		equal(b, "lines about the closing", len(b.logs.about("circuit is closed")), 1)
		equal(b, "lines about the panics", len(b.logs.about("OnStateChange panicked")), 3)
	})
}

func TestBreaker_Waits(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{
			Breaker: resilience.Breaker{Failures: 1, OpenFor: time.Minute, MaxWait: 90 * time.Second}, Refusal: resilience.Fail,
		})
		start := time.Now()
		var runs record[string]
		unreachable := atomic.Bool{}
		unreachable.Store(true)
		b.orders(middleware(p.Middleware()), func(_ context.Context, m *core.Message) error {
			runs.add(fmt.Sprint(m.ID, " ", time.Since(start)))
			time.Sleep(5 * time.Second)
			if unreachable.Load() {
				return errUnreachable
			}
			return nil
		})
		b.put("orders", "order", "m1")
		b.pass(10 * time.Second)
		unreachable.Store(false)
		b.put("orders", "order", "m2", "m3")
		b.pass(10 * time.Minute)
		got := runs.all()
		if len(got) != 3 || got[0] != "m1 0s" || !strings.HasSuffix(got[1], " 1m5s") || !strings.HasSuffix(got[2], " 1m10s") {
			b.Errorf("runs %v", got)
		}
		b.holds("error", 1)
	})
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{
			Breaker: resilience.Breaker{Failures: 1, OpenFor: time.Minute, MaxWait: 20 * time.Second}, Refusal: resilience.Fail,
		})
		handle := p.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return errUnreachable })
		_ = handle(b.Context(), &core.Message{})
		start := time.Now()
		err := handle(b.Context(), &core.Message{})
		if r, ok := errors.AsType[*resilience.RefusedError](err); !ok || core.VerdictOf(err) != nil || !r.Until.Equal(start.Add(time.Minute)) {
			b.Errorf("refused with %v", err)
		}
		equal(b, "waited", time.Since(start), 20*time.Second)
		ctx, cancel := context.WithCancelCause(b.Context())
		time.AfterFunc(time.Second, func() { cancel(core.ErrLockLost) })
		start = time.Now()
		err = handle(ctx, &core.Message{})
		if !errors.Is(err, core.ErrLockLost) || isRefused(err) {
			b.Errorf("ended with %v", err)
		}
		equal(b, "waited", time.Since(start), time.Second)
	})
}

func isRefused(err error) bool { _, ok := errors.AsType[*resilience.RefusedError](err); return ok }

// Refusals cost a message nothing, for as long as the outage lasts.
func TestBreaker_OutageOfAnHourCostsNothing(t *testing.T) {
	caps := inmemory.Everything()
	caps.MaxDelay = 20 * time.Second // shorter than the circuit is open
	bubbleOn(t, inmemory.Config{Capabilities: &caps}, func(b *bed) {
		p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 3, OpenFor: 30 * time.Second}})
		start := time.Now()
		var done record[string]
		var runs, succeeded atomic.Int64
		var limited atomic.Bool
		c := core.Config{Middleware: []core.Middleware{p.Middleware()}}
		c.Recoverability = core.Recoverability{
			Delayed: core.Delayed{NumberOfRetries: core.Off}, Immediate: core.Immediate{NumberOfRetries: 200}, MaxDeliveries: core.Off, RequeueLimit: 1, UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 1},
			RateLimit: core.RateLimit{ConsecutiveFailures: 1000},
		}
		c.Observers = []core.Observer{{RateLimitChanged: func(context.Context, *core.Endpoint, bool) { limited.Store(true) }}}
		b.orders(c, func(_ context.Context, m *core.Message) error {
			runs.Add(1)
			if time.Since(start) < time.Hour {
				return errUnreachable
			}
			succeeded.Add(1)
			if m.DelayedRetries != 0 || m.Deferrals != 0 {
				done.add(fmt.Sprint(m.ID, " delayed retries ", m.DelayedRetries, " deferrals ", m.Deferrals))
			}
			return nil
		})
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprint("m", i))
		}
		b.put("orders", "order", ids...)
		b.pass(time.Hour + 10*time.Minute)
		equal(b, "messages handled", succeeded.Load(), 20)
		b.holds("orders", 0)
		b.holds("error", 0)
		if got := done.all(); len(got) > 0 {
			b.Errorf("counted: %v", got)
		}
		equal(b, "rate limited", limited.Load(), false)
		// 3 until it opens, then one at a time each 30 s and more; 20 that succeed.
		if n := runs.Load(); n < 60 || n > 3+120+20+20 {
			b.Errorf("%d runs", n)
		}
	})
}

// A message that always fails comes to the error queue, also if it is the one that opens the
// circuit each time.
func TestBreaker_PoisonMessageEnds(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 5, OpenFor: 30 * time.Second}})
		var runs atomic.Int64
		b.orders(core.Config{Middleware: []core.Middleware{p.Middleware()}}, func(context.Context, *core.Message) error { runs.Add(1); return errUnreachable })
		b.put("orders", "order", "m1")
		b.pass(10 * time.Minute)
		b.holds("orders", 1)
		b.pass(4 * time.Minute)
		b.holds("error", 1)
		equal(b, "runs", runs.Load(), 24)
	})
}
