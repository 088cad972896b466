package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestVerdict_DecidesAtTheFirstAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		verdict error
		queue   string // where the message ends; "" is nowhere
		text    string
		log     string
	}{
		"Unrecoverable":  {core.Unrecoverable(errBoom), "error", "boom", "Moving message 'm1' to the error queue 'error'"},
		"Reject":         {core.Reject(errBoom), "error", "boom", "Moving message 'm1' to the error queue 'error'"},
		"MoveTo":         {core.MoveTo(errBoom, "shipping"), "shipping", "boom", "Moving message 'm1' to the error queue 'shipping'"},
		"MoveTo missing": {core.MoveTo(errBoom, "nowhere"), "error", "boom", "'nowhere' does not exist"},
		"Discard":        {core.Discard("too old"), "", "", "Discarding message with id 'm1'. Reason: too old"},
		"DiscardError":   {core.DiscardError(errBoom, "too old"), "", "", "Discarding message with id 'm1'. Reason: too old"},
		"several":        {errors.Join(core.RetryAfter(errBoom, 0), core.Defer(0), core.Unrecoverable(errBoom), core.Discard("wins")), "", "", "Reason: wins"},
	} {
		for _, wrapped := range []bool{false, true} {
			t.Run(name+" wrapped "+strconv.FormatBool(wrapped), func(t *testing.T) {
				inModes(t, everyMode, func(b *bed) {
					verdict := c.verdict
					if wrapped {
						verdict = fmt.Errorf("outer: %w", errors.Join(errors.New("other"), verdict))
					}
					runs := 0
					b.orders(core.Config{AuditQueue: "audit"}, func(context.Context, *core.Message) error {
						runs++
						return verdict
					})
					b.put("m1")
					time.Sleep(time.Hour)
					b.holds("orders", 0)
					b.holds("audit", 0)
					equal(b, "runs", runs, 1)
					for _, queue := range []string{"error", "shipping"} {
						want := 0
						if queue == c.queue {
							want = 1
						}
						b.holds(queue, want)
					}
					if c.queue != "" {
						text := b.only(c.queue).Headers.Get(core.HeaderExceptionMessage)
						if !containsAll(text, c.text) {
							b.Errorf("error text is %q", text)
						}
						equal(b, "FailedQ", b.only(c.queue).Headers.Get(core.HeaderFailedQ), "orders")
					}
					equal(b, "lines with "+c.log, len(b.logs.about(c.log)), 1)
				})
			})
		}
	}
}

func TestDefer_IsNotCountedAsAFailure(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		start := time.Now()
		var seen record[string]
		b.orders(core.Config{Recoverability: core.Recoverability{
			Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 1, Increase: 10 * time.Second}, RequeueDelay: 3 * time.Second,
		}}, func(_ context.Context, m *core.Message) error {
			n := seen.add(fmt.Sprint(time.Since(start), " retries ", m.DelayedRetries, " deferrals ", m.Headers.Get(core.HeaderDeferrals), " attempt ", m.Attempt))
			switch n {
			case 1:
				return errBoom // one delayed retry
			case 2:
				return core.Defer(0)
			case 3:
				return core.DeferError(errBoom, 7*time.Second)
			}
			return nil
		})
		b.put("m1")
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{
			"0s retries 0 deferrals  attempt 1", "10s retries 1 deferrals  attempt 1",
			"13s retries 1 deferrals 1 attempt 1", "20s retries 1 deferrals 2 attempt 1",
		}
		if got := seen.all(); !slices.Equal(got, want) {
			b.Errorf("attempts %q, want %q", got, want)
		}
		b.holds("orders", 0)
		b.holds("error", 0)
		lines := b.logs.about("Deferring message 'm1' for 00:00:03.")
		if len(lines) != 1 || lines[0].level != slog.LevelInfo {
			b.Errorf("logged %+v", lines)
		}
	})
}

func TestDefer_TooOftenMovesToTheErrorQueue(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		runs := 0
		b.orders(core.Config{Recoverability: core.Recoverability{RequeueLimit: 3}}, func(context.Context, *core.Message) error {
			runs++
			return core.DeferError(errBoom, time.Second)
		})
		b.put("m1")
		time.Sleep(time.Minute)
		failed := b.only("error")
		equal(b, "runs", runs, 4)
		if value, ok := failed.Headers.Lookup(core.HeaderDeferrals); ok {
			b.Errorf("the error queue shows %s deferrals", value)
		}
		equal(b, "error text", failed.Headers.Get(core.HeaderExceptionMessage), "deferred more often than RequeueLimit (3): boom")
		lines := b.logs.about("Moving message 'm1' to the error queue 'error'")
		if len(lines) != 1 || !errors.Is(lines[0].attrs["error"].(error), core.ErrRequeueLimitExceeded) {
			b.Errorf("logged %+v", lines)
		}
	})
}

func TestDefer_HasNoLimitByDefault(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		runs := 0
		b.orders(core.Config{}, func(context.Context, *core.Message) error {
			if runs++; runs <= 2000 {
				return core.Defer(time.Second)
			}
			return nil
		})
		b.put("m1")
		time.Sleep(time.Hour)
		b.holds("orders", 0)
		b.holds("error", 0)
		equal(b, "runs", runs, 2001)
	})
}

func TestRetryAfter_CountsAsADelayedRetry(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		start := time.Now()
		var at record[time.Duration]
		b.orders(core.Config{Recoverability: core.Recoverability{Delayed: core.Delayed{Retries: 2}}}, func(context.Context, *core.Message) error {
			at.add(time.Since(start))
			return core.RetryAfter(errBoom, time.Hour)
		})
		b.put("m1")
		time.Sleep(24 * time.Hour)
		b.only("error")
		if got := at.all(); !slices.Equal(got, []time.Duration{0, time.Hour, 2 * time.Hour}) {
			b.Errorf("attempts after %v", got)
		}
	})
}

func TestReject_DeadLetters(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var recovered recoveries
		b.orders(core.Config{Recoverability: core.Recoverability{DeadLetter: core.DeadLettersRejected}, Observers: []core.Observer{recovered.observer()}}, func(ctx context.Context, m *core.Message) error {
			work(ctx, "insert")
			if m.ID == "moved" {
				return core.Unrecoverable(errBoom)
			}
			return core.Reject(fmt.Errorf("why: %w", errBoom))
		})
		b.put("m1", "moved")
		b.holds("orders", 0)
		equal(b, "moved", b.only("error").ID, "moved")
		letter := b.only(inmemory.DeadLetterQueue("orders"))
		equal(b, "id", letter.ID, "m1")
		equal(b, "body", string(letter.Body), "body of m1")
		equal(b, "description", letter.Headers.Get(inmemory.HeaderDeadLetterDescription), "why: boom")
		equal(b, "work committed", b.broker.committed.len(), 0)
		equal(b, "lines", len(b.logs.about("Moving message 'm1' to the broker's dead-letter queue")), 1)
		for _, e := range recovered.all() {
			equal(b, "dead-lettered "+e.MessageID, e.DeadLettered, e.MessageID == "m1")
		}
	})
}

func TestR50_LimitStopsTheEndpoint(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		release := make(chan struct{})
		var handled record[string]
		ep, run := b.orders(core.Config{Recoverability: core.Recoverability{UnacceptableMessageLimit: 3}}, func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			switch m.ID {
			case "slow":
				<-release
			case "discard 1", "discard 2", "discard 3":
				return core.Discard("not counted")
			case "custom":
				return core.MoveTo(errBoom, "shipping")
			case "bad 1", "bad 2", "bad 3":
				return core.Unrecoverable(errBoom)
			}
			return nil
		})
		b.put("slow", "good", "discard 1", "discard 2", "discard 3", "bad 1", "custom")
		equal(b, "ended after two", run.hasEnded(), false)
		b.put("bad 2")
		equal(b, "ended while a handler runs", run.hasEnded(), false)
		b.put("bad 3", "late")
		equal(b, "messages not started after the third", b.depth("orders").Ready, 2)
		close(release)
		err := run.wait()
		if !errors.Is(err, core.ErrUnacceptableMessageLimit) || !containsAll(err.Error(), `"orders"`, "3 messages") {
			b.Errorf("Run returned %v", err)
		}
		b.holds("orders", 2)
		equal(b, "messages handled", handled.len(), 8)

		b.run(ep) // goes on, and counts from the start
		b.holds("orders", 0)
		b.holds("error", 3)
		b.holds("shipping", 1)
		equal(b, "messages handled, each once", handled.len(), 10)
	})
}

func TestR50_WindowForgetsOldMessages(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		recover := core.Recoverability{UnacceptableMessageLimit: 3, UnacceptableMessageWindow: time.Minute}
		_, run := b.orders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return core.Reject(errBoom) })
		for i := range 10 {
			b.put(fmt.Sprint("m", i))
			time.Sleep(31 * time.Second)
		}
		equal(b, "ended by three in more than a minute", run.hasEnded(), false)
		b.put("a", "b")
		if err := run.wait(); !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			b.Errorf("Run returned %v", err)
		}
	})
}

func TestR50_DeadLettersAndFailedDispatchesCount(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		recover := core.Recoverability{UnacceptableMessageLimit: 2, DeadLetter: core.DeadLettersRejected, Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Off: true}}
		_, run := b.orders(core.Config{Recoverability: recover}, func(_ context.Context, m *core.Message) error {
			if m.ID == "rejected" {
				return core.Reject(errBoom)
			}
			return m.Send("nowhere", "ship", "x")
		})
		b.put("rejected", "undispatched")
		if err := run.wait(); !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			b.Errorf("Run returned %v", err)
		}
	})
}

// The example of "How many attempts".
func TestR52_DeferralBeginsARoundOfAttempts(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var calls record[int]
		recover := immediate(2)
		recover.RequeueLimit = 3
		b.orders(core.Config{Recoverability: recover}, func(_ context.Context, m *core.Message) error {
			calls.add(m.Attempt)
			if m.Attempt == 3 {
				return core.Defer(time.Second)
			}
			return errBoom
		})
		b.put("m1")
		time.Sleep(time.Minute)
		failed := b.only("error")
		if want := slices.Repeat([]int{1, 2, 3}, 4); !slices.Equal(calls.all(), want) {
			b.Errorf("attempts %v, want %v", calls.all(), want)
		}
		rounds := core.Rounds(failed.Headers)
		if len(rounds) != 1 || rounds[0].Attempts != 3 || rounds[0].Deferrals != 3 {
			b.Errorf("rounds %+v", rounds)
		}
	})
}

func TestR53_MiddlewareDecides(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var order record[string]
		around := func(name string) core.Middleware {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					order.add(fmt.Sprint(name, " before ", m.ID, " ", m.Type, " ", m.Attempt))
					type key struct{}
					err := next(context.WithValue(ctx, key{}, 1), m)
					order.add(fmt.Sprint(name, " after ", err))
					if name == "outer" && m.Attempt == 2 {
						return core.Discard("middleware has seen enough: " + m.Headers.Get("Sender"))
					}
					return err
				}
			}
		}
		b.orders(core.Config{Middleware: []core.Middleware{around("outer"), around("inner")}}, func(ctx context.Context, m *core.Message) error {
			if from, ok := core.MessageFromContext(ctx); !ok || from != m {
				b.Error("the context has lost its message")
			}
			order.add("handler")
			return errBoom
		})
		b.put("m1")
		var want []string
		for attempt := 1; attempt <= 2; attempt++ {
			want = append(want, fmt.Sprint("outer before m1 order ", attempt), fmt.Sprint("inner before m1 order ", attempt), "handler", "inner after boom", "outer after boom")
		}
		if got := order.all(); !slices.Equal(got, want) {
			b.Errorf("calls %q, want %q", got, want)
		}
		b.holds("orders", 0)
		b.holds("error", 0)
		equal(b, "lines of the discard", len(b.logs.about("middleware has seen enough: unit \u00e9")), 1)
	})
}

func TestR53_MiddlewareHandlesAlone(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.orders(core.Config{Middleware: []core.Middleware{func(core.HandlerFunc) core.HandlerFunc {
			return func(_ context.Context, m *core.Message) error { return m.Send("shipping", "ship", "x") }
		}}}, func(context.Context, *core.Message) error {
			b.Error("the handler ran")
			return nil
		})
		b.put("m1")
		b.holds("orders", 0)
		b.holds("shipping", 1)
	})
}
