package core_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/health/probes"
	"github.com/reprise-go/reprise/core/logformat"
)

// lineLimit is more than any log line may have. A byte of a text takes up to six in JSON.
const lineLimit = 6 * (3 * 16 << 10)

// lineSizes is a log whose lines are counted.
type lineSizes struct {
	lines          int
	total, longest int
	text           bytes.Buffer
}

func (l *lineSizes) Write(line []byte) (int, error) {
	l.lines++
	l.total += len(line)
	l.longest = max(l.longest, len(line))
	if l.total < 16<<20 {
		l.text.Write(line)
	}
	return len(line), nil
}

// huge is a message of 2 MiB whose sender chose a long id and a long type.
func huge(id, messageType, character string) core.Outgoing {
	long := strings.Repeat(character, (1<<20)/len(character))
	out := order(id + long)
	out.Headers.Set(headers.MessageTypes, messageType+long)
	out.Headers.Set(headers.ConversationID, "conversation"+long)
	return out
}

// A message of 2 MiB wrote 500 MiB in 25 lines.
func TestLogBounds_HugeIDAndType(t *testing.T) {
	fail := func(_ context.Context, m *core.Message) error {
		return fmt.Errorf("while handling %s of the type %s: %w", m.ID, m.Type, errBoom)
	}
	tests := map[string]struct {
		config     core.Config
		register   func(fx *fixture, ep *core.Endpoint)
		unreached  []string // queues
		messageOf  func(id string) core.Outgoing
		wantInText string
	}{
		"no handler":         {messageOf: func(id string) core.Outgoing { return huge(id, "unknown", "x") }, wantInText: "no handler for the message type"},
		"control characters": {messageOf: func(id string) core.Outgoing { return huge(id, "unknown", "\x01") }, wantInText: "no handler for the message type"},
		"default handler": {
			register:  func(_ *fixture, ep *core.Endpoint) { core.HandleDefault(ep, fail) },
			messageOf: func(id string) core.Outgoing { return huge(id, "unknown", "x") }, wantInText: "boom",
		},
		"a policy that fails": {
			config: core.Config{Recoverability: core.Recoverability{Policy: func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
				panic(strings.Repeat("x", 1<<20))
			}}},
			messageOf: func(id string) core.Outgoing { return huge(id, "unknown", "x") }, wantInText: "recoverability policy failed",
		},
		"error queue that cannot be reached": {
			unreached: []string{"error"},
			messageOf: func(id string) core.Outgoing { return huge(id, "unknown", "x") }, wantInText: "critical error",
		},
		"error queue and own queue that cannot be reached": {
			unreached: []string{"error", "orders"},
			messageOf: func(id string) core.Outgoing { return huge(id, "unknown", "x") }, wantInText: "critical error",
		},
		"subscription by message": {
			messageOf: func(id string) core.Outgoing {
				out := huge(id, "", "x")
				out.Body = nil
				out.Headers.Del(headers.MessageTypes)
				out.Headers.Set(headers.ControlMessage, "True")
				out.Headers.Set(headers.MessageIntent, "Subscribe")
				out.Headers.Set("SubscriptionMessageType", strings.Repeat("x", 1<<20))
				out.Headers.Set(headers.ReplyToAddress, strings.Repeat("x", 1<<20))
				return out
			}, wantInText: "a subscription by message is ignored",
		},
		"acknowledgement for another queue": {
			register: func(_ *fixture, ep *core.Endpoint) {
				core.HandleDefault(ep, func(context.Context, *core.Message) error { return nil })
			},
			messageOf: func(id string) core.Outgoing {
				out := huge(id, "unknown", "x")
				out.Headers.Set(headers.RetryAckQueue, strings.Repeat("x", 1<<20))
				out.Headers.Set(headers.RetryUniqueMessageID, strings.Repeat("x", 1<<20))
				return out
			}, wantInText: "acknowledgement",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				var sizes lineSizes
				config := test.config
				config.Logger = slog.New(logformat.AddMessageAttrs(slog.NewJSONHandler(&sizes, &slog.HandlerOptions{Level: slog.LevelDebug})))
				ep := fx.newEndpoint("orders", config)
				if test.register != nil {
					test.register(fx, ep)
				}
				fx.run(ep)
				fx.failSendsTo(test.unreached...)
				fx.send(test.messageOf("id of "))
				fx.advance(2 * time.Minute)
				if sizes.lines < 2 || sizes.total > 5<<20 || sizes.longest > lineLimit {
					fx.Errorf("%d lines, %d bytes, the longest has %d", sizes.lines, sizes.total, sizes.longest)
				}
				for _, part := range []string{test.wantInText, "id of x", " bytes)"} {
					if !strings.Contains(strings.ReplaceAll(sizes.text.String(), "\\u0001", "x"), part) {
						fx.Errorf("no line has %q", part)
					}
				}
			})
		})
	}
}

// The cause is at the end of an error, and behind an id.
func TestLogBounds_CauseIsReadable(t *testing.T) {
	bubble(t, func(fx *fixture) {
		long := strings.Repeat("x", 1<<20)
		fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if m.ID == "text" {
				return fmt.Errorf("%s: %w", long, errBoom)
			}
			return fmt.Errorf("while handling %s: %w", m.ID, errBoom)
		})
		fx.enqueue("text", "id"+long)
		for _, text := range []string{" bytes left out) ...xxx", "while handling idxx"} {
			found := false
			for _, line := range fx.logs.find("moving message to the error queue") {
				err, _ := line.attrs["error"].(error)
				if err == nil {
					fx.Fatalf("the attribute error is %v", line.attrs["error"])
				}
				if !errors.Is(err, errBoom) || !strings.HasSuffix(err.Error(), ": "+errBoom.Error()) {
					fx.Errorf("error %.100q, want it to end with its cause", err)
				}
				found = found || strings.Contains(err.Error(), text)
			}
			if !found {
				fx.Errorf("no error has %s", text)
			}
		}
	})
}

// Short texts are the handler's own values.
func TestLogBounds_ShortTextsAreUnchanged(t *testing.T) {
	bubble(t, func(fx *fixture) {
		id, err := strings.Repeat("x", 256), errors.New(strings.Repeat("y", 16<<10))
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return err })
		fx.enqueue(id)
		lines := fx.logs.find("moving message to the error queue")
		if len(lines) != 1 || lines[0].attrs["message_id"] != id || lines[0].attrs["error"] != any(err) {
			fx.Errorf("logged %+v", lines)
		}
	})
}

// Middleware logs with the endpoint's logger.
func TestLogBounds_LoggerOfMiddleware(t *testing.T) {
	bubble(t, func(fx *fixture) {
		long := strings.Repeat("x", 1<<20)
		var sizes lineSizes
		m := describedMiddleware{describe: func(s core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
			log := s.Logger().With("message_id", long, "error", errors.New(long))
			log.WithGroup("middleware").Info(long, "message_type", long, "text", long, "list", []string{long, long})
			return nil, nil
		}}
		fx.newEndpoint("orders", core.Config{Logger: slog.New(slog.NewJSONHandler(&sizes, nil)), Middleware: []core.Middleware{m}})
		if sizes.lines != 1 || sizes.longest > 5*17<<10 {
			fx.Errorf("%d lines, the longest has %d bytes", sizes.lines, sizes.longest)
		}
	})
}

// The error of UnacceptableMessageLimit has ids, and probes show errors on request: ten ids
// of 5 MiB were 50 MiB for each probe.
func TestLogBounds_Probes(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var critical recorder[int]
		rules := noRetries
		rules.UnacceptableMessageLimit.Count = 10
		ep := fx.newEndpoint("orders", core.Config{Recoverability: rules, Observers: []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.add(len(err.Error())) }}}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		p, err := probes.New(probes.Config{ErrorTexts: true}, ep)
		fx.noError(err)
		ep.RaiseCritical(errors.New(strings.Repeat("x", 5<<20)))
		run := fx.run(ep)
		fx.failSendsTo("error")
		size := func() int {
			w := httptest.NewRecorder()
			p.Liveness().ServeHTTP(w, httptest.NewRequestWithContext(fx.Context(), http.MethodGet, "/livez", nil))
			return w.Body.Len()
		}
		if got := size(); got > 8<<10 {
			fx.Errorf("/livez has %d bytes after a critical error of 5 MiB", got)
		}
		fx.enqueue(strings.Repeat("0", 5<<20))
		fx.advance(time.Second)
		if got := size(); got > 64<<10 || critical.len() < 2 {
			fx.Errorf("/livez has %d bytes after %d critical errors", got, critical.len())
		}
		for _, n := range critical.all()[1:] {
			if n > 4<<10 {
				fx.Errorf("a critical error has %d bytes", n)
			}
		}
		fx.failSendsTo()
		for i := range 10 {
			fx.enqueue(strings.Repeat(fmt.Sprint(i), 5<<20))
		}
		fx.advance(time.Minute)
		synctest.Wait()
		if err := run.wait(); !errors.Is(err, core.ErrUnacceptableMessageLimit) || len(err.Error()) > 10*300 {
			fx.Errorf("Run returned an error of %d bytes", len(err.Error()))
		}
		if got := size(); got > 64<<10 {
			fx.Errorf("/livez has %d bytes", got)
		}
		state, err := json.Marshal(ep.Health())
		fx.noError(err)
		if !strings.Contains(string(state), "unacceptable message limit reached: 10 messages failed for good") {
			fx.Errorf("health is %s", state)
		}
	})
}
