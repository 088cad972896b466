// Package planted looks for secrets, planted by a test into a configuration, in all output
// of a transport: errors, log lines, observer events, fmt, JSON.
package planted

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

var place = core.NewMessageType[[]byte]("place")

// mark is in every secret. No error, name or other text contains it.
const mark = "zqsecret"

// Oddities are characters that parsers of URLs, options and lists treat differently: the
// seeds of a fuzz test.
func Oddities() []string {
	return []string{
		"", "@", "/", "?", "#", ":", "%", "%4", "%zz", "%40", "%2F", "%00", "&", "=", "&a=", ";", ",", "+", " ", "\n", "\t", "\x00",
		`"`, `'`, "`", "`: ", "(", ")", "[", "]", "{", "<", "|", "^", `\`, "\xff", "\u00fc", "\u202e", "//", "://", "@/", "@?", "/@", "?@", ":@", "@:", "@@",
		"12", "12/", "12?", "12?a=", "12#", "12@", "@12/", "@12?a=", "@12:1/", ":1/", ",h:1/", "@[::1]/", "?password=", "&password=",
	}
}

// Secret returns a secret with odd characters in two places. Each part that a parser may
// split off can be recognised.
func Secret(odd string) string { return odd + mark + odd + mark }

// Forms returns the forms of a secret in URLs: unchanged, and percent-encoded as a
// password, as a part of a path and as an option.
func Forms(secret string) []string {
	_, password, _ := strings.Cut(url.UserPassword("", secret).String(), ":")
	return slices.Compact([]string{secret, password, url.PathEscape(secret), url.QueryEscape(secret)})
}

// Check fails the test if a value, or any value that contains it, shows a planted secret.
// subject names the origin of the value.
func Check(t testing.TB, subject string, value any) {
	t.Helper()
	for how, text := range shown(value) {
		if strings.Contains(strings.ToLower(text), mark) {
			t.Errorf("%s, %s: %s shows a secret", subject, how, text)
			return // the others have the same text
		}
	}
}

// shown returns the texts in which a value can appear in a log.
func shown(value any) map[string]string {
	type holder struct {
		Field any
		List  []any
		Map   map[string]any
	}
	held := &holder{value, []any{value}, map[string]any{"key": value}}
	texts := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		texts[verb] = fmt.Sprintf(verb+" "+verb, value, held)
	}
	text, err := json.Marshal(held)
	texts["encoding/json"] = fmt.Sprint(string(text), err)
	var b bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(handler).Info("text", "value", value, slog.Group("group", "value", held))
	}
	texts["log/slog"] = b.String()
	if err, ok := value.(error); ok {
		for i := 0; err != nil; i++ { // the texts of the wrapped errors: errors.As finds these
			texts[fmt.Sprintf("error %d of its chain", i)] = err.Error()
			err = errors.Unwrap(err)
		}
	}
	return texts
}

// Transport is a transport with its optional interfaces.
type Transport interface {
	core.Transport
	core.Provisioner
	core.Subscriber
	core.Checker
	core.Remover
}

// CheckTransport calls all methods of a transport that cannot reach its server, and fails
// the test if an error or a log line shows a planted secret.
func CheckTransport(t testing.TB, subject string, transport Transport) {
	t.Helper()
	Check(t, subject+": transport", transport)
	Check(t, subject+": unexported transport", struct {
		a any
		b Transport
	}{transport, transport})
	topology := core.Topology{InputQueue: "orders", Queues: []string{"orders"}}
	_, purged := transport.Purge(t.Context(), "orders")
	for call, err := range map[string]error{
		"Check":       transport.Check(t.Context(), topology),
		"Provision":   transport.Provision(t.Context(), topology),
		"Subscribe":   transport.Subscribe(t.Context(), "orders", "placed"),
		"Unsubscribe": transport.Unsubscribe(t.Context(), "orders", "placed"),
		"Purge":       purged,
		"Remove":      transport.Remove(t.Context(), []string{"orders"}, []string{"placed"}),
		"Send":        transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "orders"}),
		"Publish":     transport.Send(t.Context(), core.Outgoing{ID: "1", Topic: "placed"}),
	} {
		if err == nil {
			t.Errorf("%s: %s succeeded: the server can be reached, and this shows nothing", subject, call)
		}
		Check(t, subject+": "+call, err)
	}
	checkReceiver(t, subject, transport)
	checkEndpoint(t, subject, transport)
}

// checkReceiver opens a receiver, and waits until it reports that the server cannot be
// reached.
func checkReceiver(t testing.TB, subject string, transport Transport) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := &events{told: cancel}
	receiver, err := transport.OpenReceiver(ctx, core.ReceiverConfig{
		Queue: "orders", Mode: transport.Capabilities().Transactions[0], MaxInFlight: 1, ConnectionChanged: seen.ConnectionChanged,
	})
	if err == nil {
		_ = receiver.Close(ctx)
		t.Errorf("%s: OpenReceiver succeeded: the server can be reached, and this shows nothing", subject)
	}
	Check(t, subject+": OpenReceiver", err)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	Check(t, subject+": ConnectionChange", seen.changes)
	for _, change := range seen.changes {
		Check(t, subject+": ConnectionChange.Err", change.Err)
	}
}

// events are the events that an observer received.
type events struct {
	told    func()
	mu      sync.Mutex
	changes []core.ConnectionChange
}

// ConnectionChanged is the observer of a core.ReceiverConfig.
func (e *events) ConnectionChanged(change core.ConnectionChange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changes = append(e.changes, change)
	e.told()
}

func (e *events) sendEnd(_ context.Context, end core.Sending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changes = append(e.changes, core.ConnectionChange{Err: end.Err})
}

// checkEndpoint starts an endpoint, and checks its error, log, health and headers.
func checkEndpoint(t testing.TB, subject string, transport Transport) {
	t.Helper()
	var mu sync.Mutex
	var logs bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := &events{told: stop} // Run ends with the first report of an outage
	ep, err := core.New("orders", transport, core.Config{
		Observers: []core.Observer{{
			ConnectionChanged: seen.ConnectionChanged, SendEnd: seen.sendEnd,
			CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { Check(t, subject+": CriticalError", err) },
		}},
		Logger: slog.New(slog.NewTextHandler(writer(func(text []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return logs.Write(text)
		}), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		Check(t, subject+": core.New", err)
		t.Errorf("%s: core.New: %v", subject, err)
		return
	}
	core.Handle(ep, place, func(context.Context, *core.Message, []byte) error { return nil })
	err = ep.Send(t.Context(), "orders", place.Of([]byte("x")))
	Check(t, subject+": Endpoint.Send", err)
	ep.RaiseCritical(err) // a handler may do this, and the text gets into Health
	err = ep.Run(ctx)
	Check(t, subject+": Endpoint.Run", err)
	seen.mu.Lock()
	if err == nil && !slices.ContainsFunc(seen.changes, func(c core.ConnectionChange) bool { return c.RetryIn > 0 }) {
		t.Errorf("%s: Run returned nil: the server can be reached, and this shows nothing", subject)
	}
	for _, change := range seen.changes {
		err = cmp.Or(err, change.Err)
	}
	seen.mu.Unlock()
	Check(t, subject+": Endpoint.Health", ep.Health())
	Check(t, subject+": Endpoint", ep)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, change := range seen.changes {
		Check(t, subject+": SendEnd.Err", change.Err)
	}
	failed := core.Undeliverable{Queue: "orders", Err: err}.MoveHeaders(core.Headers{}, time.Now())
	for key, value := range failed.All() {
		Check(t, subject+": header "+key, value)
	}
	mu.Lock()
	defer mu.Unlock()
	Check(t, subject+": log", logs.String())
}

type writer func(text []byte) (int, error)

func (w writer) Write(text []byte) (int, error) { return w(text) }
