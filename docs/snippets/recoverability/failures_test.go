package recoverability_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type Order struct{ ID string }

var (
	ErrUnknownCustomer = errors.New("unknown customer")
	ErrBusy            = errors.New("too many requests")
	ErrFraud           = errors.New("looks like fraud")
)

// snippet: verdicts
func handle(ctx context.Context, _ *core.Message, body Order) error {
	err := charge(ctx, body)
	switch {
	case errors.Is(err, ErrUnknownCustomer):
		return core.GiveUp(err) // error queue, no retries
	case errors.Is(err, ErrBusy):
		return core.RetryAfter(err, time.Minute) // the partner said when
	case errors.Is(err, ErrFraud):
		return core.GiveUpTo(err, "fraud") // somebody else's queue
	case errors.Is(err, ErrTimedOut):
		return core.Discard(errors.New("the offer has expired")) // gone
	case errors.Is(err, ErrOtherBusiness):
		return core.Defer(err, time.Hour) // no failure: it is Sunday
	}
	return err // nil, or a failure for the policy
}

// end

func charge(_ context.Context, o Order) error {
	return map[string]error{
		"unknown": ErrUnknownCustomer, "busy": ErrBusy, "fraud": ErrFraud, "late": ErrTimedOut, "sunday": ErrOtherBusiness,
		"broken": errors.New("deadlock"),
	}[o.ID]
}

func TestVerdicts(t *testing.T) {
	for order, want := range map[string][]string{
		"fine":    nil,
		"unknown": {`MoveToError("error")`},
		"busy":    append(slices.Repeat([]string{"DelayedRetry(1m0s)"}, 61), `MoveToError("error")`),
		"fraud":   {`MoveToError("fraud")`},
		"late":    {"Discard"},
		"sunday":  {"Defer(1h0m0s)", "Defer(1h0m0s)"}, // and so on
		"broken":  slices.Concat(slices.Repeat([]string{"ImmediateRetry"}, 5), []string{"DelayedRetry(10s)"}, slices.Repeat([]string{"ImmediateRetry"}, 5)),
	} {
		t.Run(order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen []string
				transport := inmemory.Open()
				if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"fraud"}}); err != nil {
					t.Fatal(err)
				}
				ep, err := core.New("billing", transport, core.Config{Logger: quiet, Observers: []core.Observer{{Recovered: func(_ context.Context, e core.Recovery) {
					seen = append(seen, fmt.Sprint(e.Action))
				}}}})
				if err != nil {
					t.Fatal(err)
				}
				core.Handle(ep, placed, handle)
				coretest.Run(t, ep)
				if err := ep.Send(t.Context(), "billing", placed.Of(Order{ID: order})); err != nil {
					t.Fatal(err)
				}
				time.Sleep(90 * time.Minute)
				synctest.Wait()
				if len(seen) < len(want) || !slices.Equal(seen[:len(want)], want) {
					t.Errorf("%v; want %v", seen, want)
				}
			})
		})
	}
}

type Refused struct{ OrderID string }

// takeOver registers the handlers of the guide.
func takeOver(ep *core.Endpoint) {
	// snippet: handle-failed
	core.HandleFailed(ep, placed, func(_ context.Context, m *core.Message, body Order, f *core.Failed) error {
		if errors.Is(f.Err, ErrUnknownCustomer) {
			f.TakeOver() // not moved: the answer below is all there is to do
		}
		return m.Reply(refused.Of(Refused{OrderID: body.ID}))
	})
	// end
}

func TestHandleFailed(t *testing.T) {
	for order, moved := range map[string]int{"unknown": 0, "broken": 1} {
		synctest.Test(t, func(t *testing.T) {
			transport := inmemory.Open()
			if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"web"}}); err != nil {
				t.Fatal(err)
			}
			ep, err := core.New("billing", transport, core.Config{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(ep, placed, handle)
			takeOver(ep)
			coretest.Run(t, ep)
			if err := ep.Send(t.Context(), "billing", placed.Of(Order{ID: order}).With(core.SendOptions{ReplyTo: "web"})); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			answers, err := transport.Depth(t.Context(), "web")
			failed, errFailed := transport.Depth(t.Context(), "error")
			if answers.Ready != 1 || failed.Ready != moved || err != nil || errFailed != nil {
				t.Errorf("%s: %d answers, %d moved; want 1, %d", order, answers.Ready, failed.Ready, moved)
			}
		})
	}
}

// billing is a service whose ledger cannot be opened.
type billing struct{ seen core.Headers }

func (s *billing) Charge(_ context.Context, m *core.Message, _ Order) error {
	if m.Attempt == 1 && m.DelayedRetries == 0 {
		s.seen = m.Headers
	}
	return fmt.Errorf("charge: %w", &os.PathError{Op: "open", Path: "ledger", Err: io.ErrUnexpectedEOF})
}

// failForGood lets one message fail for good with the given configuration, and
// returns its headers before and after, and the log.
func failForGood(t *testing.T, c core.Recoverability) (before, after core.Headers, log string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		transport := inmemory.Open()
		ep, err := core.New("billing", transport, core.Config{
			Instance: "billing-1", Recoverability: c,
			Logger: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				switch a.Key {
				case slog.TimeKey:
					return slog.Attr{}
				case "handler": // as in a package of the reader
					_, method, _ := strings.Cut(a.Value.String(), "recoverability_test.")
					return slog.String(a.Key, "example.com/shop/billing."+method)
				}
				return a
			}})),
		})
		if err != nil {
			t.Fatal(err)
		}
		orders := &billing{}
		core.Handle(ep, placed, orders.Charge)
		coretest.Run(t, ep)
		if err := ep.Send(t.Context(), "billing", placed.Of(Order{ID: "42"}).With(core.SendOptions{ID: "m-42"})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		failed, err := transport.Browse(t.Context(), queues.Request{Queue: "error", Limit: 10})
		if err != nil || len(failed.Messages) != 1 {
			t.Fatalf("in the error queue: %v, %v", failed, err)
		}
		before, after, log = orders.seen, failed.Messages[0].Headers, lines.String()
	})
	return before, after, log
}

func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var smallRounds = core.Recoverability{
	Immediate: core.Immediate{NumberOfRetries: 1},
	Delayed:   core.Delayed{NumberOfRetries: 2},
}

func TestLog_OfTheGuide(t *testing.T) {
	_, _, log := failForGood(t, smallRounds)
	var shown []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "message_id=") {
			shown = append(shown, line)
		}
	}
	if got, want := strings.Join(shown, ""), file(t, "retries.log"); got != want {
		t.Errorf("the log is\n%s\nthe guide says\n%s", got, want)
	}
}

func TestLog_OfAHandlerThatLogsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if slices.Contains([]string{slog.LevelKey, slog.MessageKey, "attempt", "delayed_retries", "delay", "error", "queue"}, a.Key) {
				return a
			}
			return slog.Attr{}
		}}))
		// snippet: logs-attempts
		billing, err := core.New("billing", inmemory.Open(), core.Config{
			Logger: log,
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{NumberOfRetries: 3},
				Delayed:   core.Delayed{NumberOfRetries: 2},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(billing, placed, func(_ context.Context, m *core.Message, body Order) error {
			log.Info("charging order "+body.ID, "attempt", m.Attempt, "delayed_retries", m.DelayedRetries)
			return errors.New("the bank is down")
		})
		// end
		coretest.Run(t, billing)
		synctest.Wait()
		lines.Reset() // the start of the endpoint
		if err := billing.Send(t.Context(), "billing", placed.Of(Order{ID: "42"}).With(core.SendOptions{ID: "m-42"})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, want := lines.String(), file(t, "attempts.log"); got != want {
			t.Errorf("the log is\n%s\nthe guide says\n%s", got, want)
		}
	})
}

func TestFailureHeaders_OfTheGuide(t *testing.T) {
	before, after, _ := failForGood(t, smallRounds)
	guide := file(t, "../../recoverability.md")
	for key := range after.All() {
		if _, known := before.Lookup(key); !known && !strings.Contains(guide, "`"+key+"`") {
			t.Errorf("the guide does not tell of the header %s", key)
		}
	}
	for _, key := range []string{headers.Retries, headers.RetriesTimestamp} {
		if _, there := after.Lookup(key); there {
			t.Errorf("header %s is still there", key)
		}
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(after.Map())) {
		if _, known := before.Lookup(key); !known && key != headers.Attempts {
			fmt.Fprintf(&text, "%s: %s\n", key, strings.ReplaceAll(strings.TrimRight(after.Get(key), "\n"), "\n", "\n    "))
		}
	}
	// What differs from machine to machine, and from run to run.
	got := regexp.MustCompile(`(ProcessingMachine|hostid): .*`).ReplaceAllString(text.String(), "$1: ...")
	got = regexp.MustCompile(`(Handler type: ).*\.(\(\*billing\))`).ReplaceAllString(got, "${1}example.com/shop.$2")
	if want := file(t, "failed.txt"); got != want {
		t.Errorf("the headers are\n%s\nthe guide says\n%s", got, want)
	}
	trace := strings.ReplaceAll(after.Get(headers.Attempts), "},{", "},\n {") + "\n"
	if want := file(t, "trace.json"); trace != want {
		t.Errorf("the trace is\n%s\nthe guide says\n%s", trace, want)
	}
}

// snippet: edit-failed
var redacting = core.Recoverability{
	EditFailed: func(_ context.Context, _ core.ErrorContext, h *core.Headers) {
		// Error texts and the stacks of panics may name customers.
		h.Set(headers.ExceptionMessage, "[redacted]")
		h.Del(headers.ExceptionStackTrace)
		h.Set("Shop.Team", "billing")
	},
}

// end

func TestEditFailed(t *testing.T) {
	c := smallRounds
	c.EditFailed = redacting.EditFailed
	_, after, _ := failForGood(t, c)
	for key, want := range map[string]string{
		headers.ExceptionMessage: "[redacted]", headers.ExceptionStackTrace: "", "Shop.Team": "billing", headers.FailedQ: "billing",
	} {
		if got := after.Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if text := fmt.Sprint(after.Map()); strings.Contains(text, "ledger") {
		t.Errorf("the error queue is told of the ledger: %s", text)
	}
}
