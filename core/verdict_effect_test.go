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
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestVerdict_DecidesAtTheFirstAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		verdict error
		queue   string // where the message ends; "" is nowhere
		text    string
		log     string
		attrs   []string
	}{
		"GiveUp":           {core.GiveUp(errBoom), "error", "boom", "moving message to the error queue", []string{"queue", "error"}},
		"GiveUpTo":         {core.GiveUpTo(errBoom, "shipping"), "shipping", "boom", "moving message to the error queue", []string{"queue", "shipping"}},
		"GiveUpTo missing": {core.GiveUpTo(errBoom, "nowhere"), "error", "boom", "queue does not exist", []string{"instead_of", "nowhere"}},
		"Discard":          {core.Discard(errors.New("too old")), "", "", "discarding message", nil},
		"several":          {errors.Join(core.RetryAfter(errBoom, 0), core.Defer(errors.New("not yet"), 0), core.GiveUp(errBoom), core.Discard(errors.New("wins"))), "", "", "discarding message", nil},
	} {
		for _, wrapped := range []bool{false, true} {
			t.Run(name+" wrapped "+strconv.FormatBool(wrapped), func(t *testing.T) {
				inModes(t, allModes, func(fx *fixture) {
					verdict := c.verdict
					if wrapped {
						verdict = fmt.Errorf("outer: %w", errors.Join(errors.New("other"), verdict))
					}
					runs := 0
					fx.runOrders(core.Config{AuditQueue: "audit"}, func(context.Context, *core.Message) error {
						runs++
						return verdict
					})
					fx.enqueue("m1")
					time.Sleep(time.Hour)
					fx.wantDepth("orders", 0)
					fx.wantDepth("audit", 0)
					equal(fx, "runs", runs, 1)
					for _, queue := range []string{"error", "shipping"} {
						want := 0
						if queue == c.queue {
							want = 1
						}
						fx.wantDepth(queue, want)
					}
					if c.queue != "" {
						text := fx.onlyMessage(c.queue).Headers.Get(headers.ExceptionMessage)
						if !containsAll(text, c.text) {
							fx.Errorf("error text is %q", text)
						}
						equal(fx, "FailedQ", fx.onlyMessage(c.queue).Headers.Get(headers.FailedQ), "orders")
					}
					equal(fx, "lines with "+c.log, len(fx.logs.find(c.log, append(c.attrs, "message_id", "m1")...)), 1)
				})
			})
		}
	}
}

func TestDefer_IsNotCountedAsAFailure(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		start := time.Now()
		var seen recorder[string]
		fx.runOrders(core.Config{Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: 10 * time.Second}, RequeueDelay: 3 * time.Second,
		}}, func(_ context.Context, m *core.Message) error {
			n := seen.add(fmt.Sprint(time.Since(start), " retries ", m.DelayedRetries, " deferrals ", m.Headers.Get(headers.Deferrals), " attempt ", m.Attempt))
			switch n {
			case 1:
				return errBoom // one delayed retry
			case 2:
				return core.Defer(errors.New("not yet"), 0)
			case 3:
				return core.Defer(errBoom, 7*time.Second)
			}
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{
			"0s retries 0 deferrals  attempt 1", "10s retries 1 deferrals  attempt 1",
			"13s retries 1 deferrals 1 attempt 1", "20s retries 1 deferrals 2 attempt 1",
		}
		if got := seen.all(); !slices.Equal(got, want) {
			fx.Errorf("attempts %q, want %q", got, want)
		}
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		lines := fx.logs.find("deferring message", "message_id", "m1", "delay", "3s")
		if len(lines) != 1 || lines[0].level != slog.LevelInfo {
			fx.Errorf("logged %+v", lines)
		}
	})
}

func TestDefer_TooOftenMovesToTheErrorQueue(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		runs := 0
		fx.runOrders(core.Config{Recoverability: core.Recoverability{RequeueLimit: 3}}, func(context.Context, *core.Message) error {
			runs++
			return core.Defer(errBoom, time.Second)
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		failed := fx.onlyMessage("error")
		equal(fx, "runs", runs, 4)
		if value, ok := failed.Headers.Lookup(headers.Deferrals); ok {
			fx.Errorf("the error queue shows %s deferrals", value)
		}
		equal(fx, "error text", failed.Headers.Get(headers.ExceptionMessage), "deferred more often than RequeueLimit (3): boom")
		lines := fx.logs.find("moving message to the error queue", "message_id", "m1", "queue", "error")
		if len(lines) != 1 || !errors.Is(lines[0].attrs["error"].(error), core.ErrRequeueLimitExceeded) {
			fx.Errorf("logged %+v", lines)
		}
	})
}

func TestDefer_HasNoLimitByDefault(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		runs := 0
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			if runs++; runs <= 2000 {
				return core.Defer(errors.New("not yet"), time.Second)
			}
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(time.Hour)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		equal(fx, "runs", runs, 2001)
	})
}

func TestReject_DeadLetters(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var recovered recoveryRecorder
		fx.runOrders(core.Config{Recoverability: core.Recoverability{}, Observers: []core.Observer{recovered.observer()}}, func(ctx context.Context, m *core.Message) error {
			doWork(ctx, "insert")
			if m.ID == "moved" {
				return core.GiveUp(errBoom)
			}
			return core.GiveUpTo(fmt.Errorf("why: %w", errBoom), core.DeadLetterQueue)
		})
		fx.enqueue("m1", "moved")
		fx.wantDepth("orders", 0)
		equal(fx, "moved", fx.onlyMessage("error").ID, "moved")
		letter := fx.onlyMessage(inmemory.DeadLetterQueue("orders"))
		equal(fx, "id", letter.ID, "m1")
		equal(fx, "body", string(letter.Body), "body of m1")
		equal(fx, "description", letter.Headers.Get(inmemory.HeaderDeadLetterDescription), "why: boom")
		equal(fx, "work committed", fx.broker.committed.len(), 0)
		equal(fx, "lines", len(fx.logs.find("moving message to the broker's dead-letter queue", "message_id", "m1")), 1)
		for _, e := range recovered.all() {
			equal(fx, "dead-lettered "+e.Failure.Message.ID, e.DeadLettered, e.Failure.Message.ID == "m1")
		}
	})
}

// Rule R50.
func TestFailureLimit_StopsTheEndpoint(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		release := make(chan struct{})
		var handled recorder[string]
		ep, run := fx.runOrders(core.Config{Recoverability: core.Recoverability{UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 3}}}, func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			switch m.ID {
			case "slow":
				<-release
			case "discard 1", "discard 2", "discard 3":
				return core.Discard(errors.New("not counted"))
			case "custom":
				return core.GiveUpTo(errBoom, "shipping")
			case "bad 1", "bad 2", "bad 3":
				return core.GiveUp(errBoom)
			}
			return nil
		})
		fx.enqueue("slow", "good", "discard 1", "discard 2", "discard 3", "bad 1", "custom")
		equal(fx, "ended after two", run.hasEnded(), false)
		fx.enqueue("bad 2")
		equal(fx, "ended while a handler runs", run.hasEnded(), false)
		fx.enqueue("bad 3", "late")
		equal(fx, "messages not started after the third", fx.depth("orders").Ready, 2)
		close(release)
		err := run.wait()
		if !errors.Is(err, core.ErrUnacceptableMessageLimit) || !containsAll(err.Error(), `"orders"`, "3 messages") {
			fx.Errorf("Run returned %v", err)
		}
		fx.wantDepth("orders", 2)
		equal(fx, "messages handled", handled.len(), 8)

		fx.run(ep) // goes on, and counts from the start
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 3)
		fx.wantDepth("shipping", 1)
		equal(fx, "messages handled, each once", handled.len(), 10)
	})
}

// Rule R50.
func TestFailureLimit_WindowForgetsOldMessages(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		recover := core.Recoverability{UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 3, Window: time.Minute}}
		_, run := fx.runOrders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return core.GiveUp(errBoom) })
		for i := range 10 {
			fx.enqueue(fmt.Sprint("m", i))
			time.Sleep(31 * time.Second)
		}
		equal(fx, "ended by three in more than a minute", run.hasEnded(), false)
		fx.enqueue("a", "b")
		if err := run.wait(); !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			fx.Errorf("Run returned %v", err)
		}
	})
}

// Rule R50.
func TestFailureLimit_DeadLettersAndFailedDispatchesCount(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		recover := core.Recoverability{UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 2}, Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
		_, run := fx.runOrders(core.Config{Recoverability: recover}, func(_ context.Context, m *core.Message) error {
			if m.ID == "rejected" {
				return core.GiveUpTo(errBoom, core.DeadLetterQueue)
			}
			return m.Send("nowhere", shipType.Of("x"))
		})
		fx.enqueue("rejected", "undispatched")
		if err := run.wait(); !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			fx.Errorf("Run returned %v", err)
		}
	})
}

// Rule R52.
// The example of "How many attempts".
func TestDeferral_BeginsARoundOfAttempts(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var calls recorder[int]
		recover := immediateRetries(2)
		recover.RequeueLimit = 3
		fx.runOrders(core.Config{Recoverability: recover}, func(_ context.Context, m *core.Message) error {
			calls.add(m.Attempt)
			if m.Attempt == 3 {
				return core.Defer(errors.New("not yet"), time.Second)
			}
			return errBoom
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		failed := fx.onlyMessage("error")
		if want := slices.Repeat([]int{1, 2, 3}, 4); !slices.Equal(calls.all(), want) {
			fx.Errorf("attempts %v, want %v", calls.all(), want)
		}
		rounds := headers.ParseAttempts(failed.Headers.Get(headers.Attempts))
		if len(rounds) != 1 || rounds[0].Attempts != 3 || rounds[0].Deferrals != 3 {
			fx.Errorf("rounds %+v", rounds)
		}
	})
}

// Rule R53.
func TestMiddleware_Decides(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var order recorder[string]
		around := func(name string) core.MiddlewareFunc {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					order.add(fmt.Sprint(name, " before ", m.ID, " ", m.Type, " ", m.Attempt))
					type key struct{}
					err := next(context.WithValue(ctx, key{}, 1), m)
					order.add(fmt.Sprint(name, " after ", err))
					if name == "outer" && m.Attempt == 2 {
						return core.Discard(errors.New("middleware has seen enough: " + m.Headers.Get("Sender")))
					}
					return err
				}
			}
		}
		fx.runOrders(core.Config{Middleware: []core.Middleware{around("outer"), around("inner")}}, func(ctx context.Context, m *core.Message) error {
			if from, ok := core.MessageFromContext(ctx); !ok || from != m {
				fx.Error("the context has lost its message")
			}
			order.add("handler")
			return errBoom
		})
		fx.enqueue("m1")
		var want []string
		for attempt := 1; attempt <= 2; attempt++ {
			want = append(want, fmt.Sprint("outer before m1 order ", attempt), fmt.Sprint("inner before m1 order ", attempt), "handler", "inner after boom", "outer after boom")
		}
		if got := order.all(); !slices.Equal(got, want) {
			fx.Errorf("calls %q, want %q", got, want)
		}
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		equal(fx, "lines of the discard", len(fx.logs.find("discarding message", "error", "middleware has seen enough: unit \u00e9")), 1)
	})
}

// Rule R53.
func TestMiddleware_HandlesAlone(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(func(core.HandlerFunc) core.HandlerFunc {
			return func(_ context.Context, m *core.Message) error { return m.Send("shipping", shipType.Of("x")) }
		})}}, func(context.Context, *core.Message) error {
			fx.Error("the handler ran")
			return nil
		})
		fx.enqueue("m1")
		fx.wantDepth("orders", 0)
		fx.wantDepth("shipping", 1)
	})
}
