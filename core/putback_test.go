package core_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// switched is middleware that puts messages back while it is off.
type switched struct {
	off   atomic.Bool
	types []string // nil is all
	pause core.Pause
}

func (s *switched) middleware(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		if s.off.Load() && (s.types == nil || slices.Contains(s.types, m.Type)) {
			return core.PutBack(errBoom, s.pause)
		}
		return next(ctx, m)
	}
}

// countings are the ways in which brokers count deliveries.
var countings = map[string]func(*core.Capabilities){
	"failures are counted":     func(*core.Capabilities) {},
	"each delivery is counted": func(c *core.Capabilities) { c.CountsReleases = true },
	"counted in memory":        func(c *core.Capabilities) { c.NativeDeliveryCount = false },
}

var everyScope = []core.PauseScope{core.PauseEndpoint, core.PauseMessage, core.PauseCopy}

// inCountings runs body for each way to count, mode, scope and group.
func inCountings(t *testing.T, body func(b *bed, scope core.PauseScope, group string)) {
	t.Helper()
	for name, change := range countings {
		for _, scope := range everyScope {
			for _, group := range []string{"", "g"} {
				t.Run(fmt.Sprintf("%s, scope %d, group %q", name, scope, group), func(t *testing.T) {
					inModesOn(t, able(change), retrying, func(b *bed) { body(b, scope, group) })
				})
			}
		}
	}
}

// A message that is put back between its attempts has as many as any other.
func TestPutBack_CostsNoAttempt(t *testing.T) {
	inCountings(t, func(b *bed, scope core.PauseScope, group string) {
		var seen record[string]
		var deliveries atomic.Int64
		every := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				if deliveries.Add(1)%2 == 0 {
					b.must(m.Send("shipping", "order", nil))
					return core.PutBack(errBoom, core.Pause{Scope: scope})
				}
				return next(ctx, m)
			}
		}
		b.orders(core.Config{
			Middleware:     []core.Middleware{every},
			Recoverability: core.Recoverability{Immediate: core.Immediate{Retries: 3}, Delayed: core.Delayed{Retries: 1}, RequeueLimit: 1},
		}, func(_ context.Context, m *core.Message) error {
			seen.add(fmt.Sprint(m.DelayedRetries, ".", m.Attempt, ".", m.Deferrals))
			return errBoom
		})
		out := order("m1")
		out.GroupKey = group
		b.send(out)
		b.pass(time.Hour)
		want := []string{"0.1.0", "0.2.0", "0.3.0", "0.4.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0"}
		if got := seen.all(); !slices.Equal(got, want) {
			b.Errorf("attempts %q, want %q", got, want)
		}
		failed := b.only("error")
		if value, ok := failed.Headers.Lookup(core.HeaderFailures); ok {
			b.Errorf("the error queue shows %s failures", value)
		}
		b.holds("shipping", 0)
	})
}

// Whatever the broker counts, a hundred pauses end no message.
func TestPutBack_AnyNumberOfTimes(t *testing.T) {
	inCountings(t, func(b *bed, scope core.PauseScope, group string) {
		if group != "" && b.broker.caps.CountsReleases {
			return // bounded by MaxDeliveries: a copy would come after its group
		}
		s := &switched{pause: core.Pause{Length: time.Second, Scope: scope}}
		s.off.Store(true)
		var handled, puts atomic.Int64
		var recovered recoveries
		var ids record[string]
		count := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error { puts.Add(1); return next(ctx, m) }
		}
		r := noRetries
		r.MaxDeliveries.Count = 5
		b.broker.provoke(faults{arrive: func(in *core.Incoming) { ids.add(in.NativeID) }})
		b.orders(core.Config{Middleware: []core.Middleware{count, s.middleware}, Recoverability: r, Observers: []core.Observer{recovered.observer()}},
			func(_ context.Context, m *core.Message) error {
				equal(b, "attempt", m.Attempt, 1)
				handled.Add(1)
				return nil
			})
		out := order("m1")
		out.GroupKey = group
		b.send(out)
		b.pass(99*time.Second + time.Millisecond)
		if got := puts.Load(); got != 100 {
			b.Errorf("%d deliveries in 99 s of pauses of 1 s, want 100", got)
		}
		all := recovered.all()
		if len(all) != 100 || all[99].Action != (core.Action{Kind: core.ActionPutBack, Delay: time.Second}) || all[99].Deferred {
			b.Errorf("observers were told of %d, the last is %+v", len(all), all[len(all)-1].Action)
		}
		copies := b.broker.caps.CountsReleases || group == "" &&
			(scope == core.PauseCopy || scope == core.PauseMessage && b.mode == core.TransactionSendsAtomicWithReceive)
		seen := ids.all()
		slices.Sort(seen)
		if n, want := len(slices.Compact(seen)), map[bool]int{true: 100, false: 1}[copies]; n != want {
			b.Errorf("%d native ids, want %d", n, want)
		}
		s.off.Store(false)
		b.pass(time.Second)
		equal(b, "handled", handled.Load(), 1)
		b.holds("orders", 0)
		b.holds("error", 0)
	})
}

func TestPutBack_PausesGrow(t *testing.T) {
	for _, scope := range everyScope {
		inModes(t, retrying, func(b *bed) {
			start := time.Now()
			var seen record[string]
			b.orders(core.Config{Concurrency: 1}, func(_ context.Context, m *core.Message) error {
				seen.add(fmt.Sprint(time.Since(start)))
				if n := len(seen.all()); n == 8 || n > 10 {
					return nil // lets the pauses begin anew
				}
				return core.PutBack(errBoom, core.Pause{Scope: scope})
			})
			b.put("m1")
			b.pass(2 * time.Minute)
			b.put("m2")
			b.pass(time.Minute)
			want := []string{"0s", "1s", "3s", "7s", "15s", "31s", "1m1s", "1m31s", "2m0s", "2m1s", "2m3s"}
			if got := seen.all(); !slices.Equal(got, want) {
				b.Errorf("deliveries at %v, want %v", got, want)
			}
		})
	}
}

func TestPutBack_TheEndpointWaits(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		s := &switched{types: []string{"order"}, pause: core.Pause{Length: 10 * time.Second}}
		s.off.Store(true)
		start := time.Now()
		var seen record[string]
		ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{s.middleware}, Instance: "one"})
		for _, messageType := range []string{"order", "other"} {
			b.handle(ep, messageType, func(_ context.Context, m *core.Message) error {
				seen.add(fmt.Sprint(m.ID, " at ", time.Since(start)))
				return nil
			})
		}
		b.run(ep)
		b.put("m1")
		other := order("m2")
		other.Headers.Set(core.HeaderMessageTypes, "other")
		b.send(other)
		b.pass(time.Second)
		h := ep.Health()
		equal(b, "put back until", h.PutBackUntil, start.Add(10*time.Second))
		equal(b, "handled in the pause", strings.Join(seen.all(), ","), "")
		b.queue("orders") // both messages are there for others
		equal(b, "available", len(b.queue("orders")), 2)
		s.off.Store(false)
		b.pass(8*time.Second + 999*time.Millisecond)
		equal(b, "handled at the end of the pause", strings.Join(seen.all(), ","), "")
		b.pass(time.Second)
		got := seen.all()
		slices.Sort(got)
		equal(b, "handled", strings.Join(got, ","), "m1 at 10s,m2 at 10s")
		equal(b, "put back until", ep.Health().PutBackUntil, time.Time{})
	})
}

// Another instance has the message at once, or after a second where the broker counts every
// delivery.
func TestPutBack_ToAnotherInstance(t *testing.T) {
	for name, change := range countings {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, able(change), retrying, func(b *bed) {
				start := time.Now()
				var handled record[string]
				cold := b.endpoint("orders", core.Config{Instance: "cold"})
				b.handle(cold, "order", func(context.Context, *core.Message) error {
					return core.PutBack(errBoom, core.Pause{Length: time.Hour})
				})
				b.run(cold)
				b.put("m1")
				warm := b.endpoint("orders", core.Config{Instance: "warm"})
				b.handle(warm, "order", func(_ context.Context, m *core.Message) error {
					handled.add(fmt.Sprint(m.ID, " after ", time.Since(start), " attempt ", m.Attempt))
					return nil
				})
				b.run(warm)
				b.pass(time.Minute)
				wait := time.Duration(0)
				if b.broker.caps.CountsReleases {
					wait = time.Second
				}
				equal(b, "handled", strings.Join(handled.all(), ","), fmt.Sprintf("m1 after %v attempt 1", wait))
			})
		})
	}
}

func TestPutBack_OneTypeIsOffAndOthersFlow(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		s := &switched{types: []string{"order"}, pause: core.Pause{Scope: core.PauseMessage}}
		s.off.Store(true)
		var others, orders, deliveries atomic.Int64
		count := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				if m.Type == "order" {
					deliveries.Add(1)
				}
				return next(ctx, m)
			}
		}
		ep := b.endpoint("orders", core.Config{Concurrency: 2, Middleware: []core.Middleware{count, s.middleware}})
		b.handle(ep, "order", func(context.Context, *core.Message) error { orders.Add(1); return nil })
		b.handle(ep, "other", func(context.Context, *core.Message) error { others.Add(1); return nil })
		b.run(ep)
		for n := range 20 {
			b.put(fmt.Sprint("off ", n))
		}
		for n := range 60 {
			other := order(fmt.Sprint("other ", n))
			other.Headers.Set(core.HeaderMessageTypes, "other")
			b.send(other)
			b.pass(time.Second)
			if got := others.Load(); got != int64(n+1) {
				b.Fatalf("%d others were handled in %d s, want %d", got, n+1, n+1)
			}
		}
		// At 0, 1, 3, 7, 15, 31 s.
		if got := deliveries.Load(); got != 6*20 {
			b.Errorf("20 messages were delivered %d times in a minute, want 120", got)
		}
		if b.mode == core.TransactionReceiveOnly {
			equal(b, "messages that are kept", ep.Health().PutBack, 20)
		}
		s.off.Store(false)
		b.pass(30 * time.Second)
		equal(b, "handled after the switch was on again", orders.Load(), 20)
		equal(b, "messages that are kept", ep.Health().PutBack, 0)
		equal(b, "attempts are counted", len(b.queue("error")), 0)
	})
}

func TestPutBack_AContextEndsThePause(t *testing.T) {
	for _, scope := range []core.PauseScope{core.PauseEndpoint, core.PauseMessage} {
		t.Run(fmt.Sprint("scope ", scope), func(t *testing.T) {
			inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
				off, on := context.WithCancel(b.Context())
				s := &switched{pause: core.Pause{Length: time.Hour, Scope: scope, Context: off}}
				s.off.Store(true)
				var handled, deliveries atomic.Int64
				count := func(next core.HandlerFunc) core.HandlerFunc {
					return func(ctx context.Context, m *core.Message) error { deliveries.Add(1); return next(ctx, m) }
				}
				b.orders(core.Config{Middleware: []core.Middleware{count, s.middleware}}, func(context.Context, *core.Message) error { handled.Add(1); return nil })
				b.put("m1", "m2", "m3")
				b.pass(time.Minute)
				equal(b, "handled while it is off", handled.Load(), 0)
				s.off.Store(false)
				on()
				synctest.Wait()
				equal(b, "handled at once", handled.Load(), 3)

				// One that has ended shortens the pause, and does not do away with it.
				s.off.Store(true)
				deliveries.Store(0)
				b.put("m4")
				b.pass(10*time.Second + time.Millisecond)
				equal(b, "deliveries in ten seconds", deliveries.Load(), 11)
				s.off.Store(false)
			})
		})
	}
}

// Contexts that do not end keep nothing of pauses that have ended.
func TestPutBack_ForgetsContexts(t *testing.T) {
	for _, scope := range []core.PauseScope{core.PauseEndpoint, core.PauseMessage} {
		for _, shared := range []bool{true, false} {
			inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
				var waiting waitingFor
				early := waiting.context(b.Context())
				var deliveries atomic.Int64
				b.orders(core.Config{}, func(context.Context, *core.Message) error {
					if deliveries.Add(1) > 50 {
						return nil
					}
					if !shared {
						early = waiting.context(b.Context())
					}
					return core.PutBack(errBoom, core.Pause{Length: time.Second, Scope: scope, Context: early})
				})
				b.put("m1")
				b.pass(time.Minute)
				equal(b, "deliveries", deliveries.Load(), 51)
				if n := waiting.most.Load(); n > 2 { // those of one pause and of the next
					b.Errorf("%d functions waited for contexts at the same time", n)
				}
			})
		}
	}
}

// waitingFor counts the functions of context.AfterFunc that wait for its contexts.
type waitingFor struct{ now, most atomic.Int64 }

func (w *waitingFor) context(parent context.Context) context.Context {
	return &watchedContext{parent, w, make(chan struct{})}
}

type watchedContext struct {
	context.Context
	by   *waitingFor
	done chan struct{}
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }
func (c *watchedContext) Err() error            { return nil }
func (c *watchedContext) AfterFunc(func()) func() bool {
	c.by.most.Store(max(c.by.most.Load(), c.by.now.Add(1)))
	return func() bool { c.by.now.Add(-1); return true }
}

func TestPutBack_KeepsABoundedNumber(t *testing.T) {
	inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
		s := &switched{pause: core.Pause{Length: 10 * time.Second, Scope: core.PauseMessage}}
		s.off.Store(true)
		var handled atomic.Int64
		ep, run := b.orders(core.Config{Middleware: []core.Middleware{s.middleware}}, func(context.Context, *core.Message) error { handled.Add(1); return nil })
		var ids []string
		for n := range 1500 {
			ids = append(ids, fmt.Sprint("m", n))
		}
		b.put(ids...)
		b.pass(time.Second)
		const most = 1000 + 4*16 // with those that are in the 16 slots, fetched ahead and being settled
		if n := ep.Health().PutBack; n < 1000 || n > most {
			b.Errorf("%d messages are kept, want from 1,000 to %d", n, most)
		}
		equal(b, "critical errors", ep.Health().CriticalErrors, 0)
		equal(b, "stalled", ep.Health().Stalled, false)
		b.pass(10 * time.Second)
		if n := ep.Health().PutBack; n < 1000 || n > most {
			b.Errorf("%d messages are kept later, want from 1,000 to %d", n, most)
		}
		s.off.Store(false)
		b.pass(21 * time.Second)
		equal(b, "handled", handled.Load(), 1500)
		s.off.Store(true)
		b.put("last")
		b.must(run.stop()) // gives back what is kept
		b.holds("orders", 1)
		equal(b, "available", len(b.queue("orders")), 1)
		b.holds("error", 0)
	})
}

// Copies wait in any number, and others pass them. Without delayed delivery this process
// keeps the messages.
func TestPutBack_CopiesLetOthersPass(t *testing.T) {
	for name, tt := range map[string]struct {
		waits        int
		capabilities func(*core.Capabilities)
	}{
		"copies":                {3000, func(*core.Capabilities) {}},
		"no delayed delivery":   {900, func(c *core.Capabilities) { c.DelayedDelivery = false }},
		"each delivery counted": {3000, func(c *core.Capabilities) { c.CountsReleases = true }},
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, able(tt.capabilities), everyMode[1:2], func(b *bed) {
				var passed atomic.Int64
				for i := range tt.waits {
					b.put(fmt.Sprint("waits ", i))
				}
				for i := range 100 {
					b.put(fmt.Sprint("passes ", i))
				}
				ep, _ := b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
					if strings.HasPrefix(m.ID, "waits") {
						return core.PutBack(errBoom, core.Pause{Length: time.Minute, Scope: core.PauseCopy})
					}
					passed.Add(1)
					return nil
				})
				b.pass(time.Second)
				equal(b, "handled", passed.Load(), 100)
				if kept := ep.Health().PutBack; kept != 0 && b.broker.caps.DelayedDelivery {
					b.Errorf("this process keeps %d messages", kept)
				}
			})
		})
	}
}

func TestPutBack_IsNoFailureAndNoSuccess(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		s := &switched{pause: core.Pause{Length: time.Second}}
		ep, _ := b.orders(core.Config{Concurrency: 1, Middleware: []core.Middleware{s.middleware}, Recoverability: limited(2)},
			func(context.Context, *core.Message) error { return errBoom })
		s.off.Store(true)
		b.put("m1", "m2", "m3")
		b.pass(time.Minute)
		equal(b, "rate limited after put-backs", ep.Health().RateLimited, false)
		s.off.Store(false)
		b.pass(10 * time.Second)
		equal(b, "rate limited after failures", ep.Health().RateLimited, true)
		s.off.Store(true)
		b.pass(30 * time.Second)
		equal(b, "rate limited after further put-backs", ep.Health().RateLimited, true)
	})
}

// The waits of rate limiting and of messages that were put back do not end each other,
// whichever begins first.
func TestPutBack_BesideRateLimiting(t *testing.T) {
	for _, failsAfter := range []time.Duration{0, 2 * time.Second} {
		inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
			start := time.Now()
			off, on := context.WithCancel(b.Context())
			defer on()
			var seen record[string]
			r := limited(1)
			r.RateLimit.TimeToWait = 20 * time.Second
			b.orders(core.Config{Concurrency: 2, Recoverability: r}, func(_ context.Context, m *core.Message) error {
				seen.add(fmt.Sprint(m.ID, " at ", time.Since(start)))
				switch {
				case len(seen.all()) > 2:
				case m.ID == "slow":
					time.Sleep(time.Second)
					return core.PutBack(errBoom, core.Pause{Length: time.Hour, Context: off})
				case m.ID == "bad":
					time.Sleep(failsAfter)
					return core.DeferError(errBoom, time.Millisecond)
				}
				return nil
			})
			b.put("slow", "bad")
			b.pass(5 * time.Second)
			on()
			b.pass(14*time.Second + failsAfter)
			equal(b, "attempts before the wait of rate limiting has passed", len(seen.all()), 2)
			b.pass(2 * time.Second)
			got := seen.all()
			slices.Sort(got)
			again := 20*time.Second + failsAfter
			equal(b, "attempts", strings.Join(got, ","), fmt.Sprintf("bad at 0s,bad at %v,slow at 0s,slow at %v", again, again))
		})
	}
}

func TestPutBack_InModeNone(t *testing.T) {
	inModes(t, everyMode[:1], func(b *bed) {
		b.orders(core.Config{}, func(context.Context, *core.Message) error { return core.PutBack(errBoom, core.Pause{}) })
		b.put("m1")
		b.only("error")
		equal(b, "lines that say why", len(b.logs.about("PutBack(0s) was asked for, but transaction mode None cannot give a message back")), 1)
	})
}
