package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/headers"
)

var testHost = hostInfo{endpoint: "billing", instance: "billing-1", machine: "host-7", hostID: "id-7"}

// failedMessage is a message with application headers and those of two delayed retries,
// and of an earlier stay in an error queue.
func failedMessage(err error) *failure {
	f := failureAfter(6, 2, err)
	f.deferrals = 4
	f.body = []byte("body")
	f.headers = HeadersFromMap(map[string]string{
		"app": "value", "empty": "", headers.MessageID: "m1", headers.TimeSent: "then", headers.TimeToBeReceived: "00:01:00",
		headers.Retries: "2", headers.RetriesTimestamp: "before", headers.Deferrals: "4", headerLegacyImmediateRetries: "1",
		headers.FailedQ: "stale", headers.TimeOfFailure: "stale", headers.ExceptionType: "stale", headers.ExceptionMessage: "stale",
		headers.ExceptionStackTrace: "stale", headers.ExceptionSource: "stale", headers.ExceptionInnerType: "stale",
		headerExceptionPrefix + "Data.Reason": "stale", headerExceptionPrefix + "HelpLink": "stale",
		headers.ProcessingEndpoint: "stale", headers.ProcessingMachine: "stale", headers.HostID: "stale", headers.HostDisplayName: "stale",
	})
	return &f
}

// Rule R22.
func TestDelayedRetry_Headers(t *testing.T) {
	f := failedMessage(errFailed)
	before := f.headers.Map()
	got := copyForRetry(f, DelayedRetry(time.Minute)).Map()
	want := maps.Clone(before)
	want[headers.Retries] = "3"
	want[headers.RetriesTimestamp] = "2026-03-01 12:00:00:000000 Z"
	want[headers.Attempts] = got[headers.Attempts] // R33
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if !maps.Equal(f.headers.Map(), before) {
		t.Error("R29 the message's own headers have changed")
	}
	t.Run("the first one, of a message without headers", func(t *testing.T) {
		f := failureAfter(6, 0, errFailed)
		h := copyForRetry(&f, DelayedRetry(time.Minute))
		if h.Get(headers.Retries) != "1" || h.Get(headers.MessageID) != "m1" || h.Len() != 4 {
			t.Errorf("%v", h.Map())
		}
	})
}

// Rule R22.
func TestDeferral_Headers(t *testing.T) {
	f := failedMessage(Defer(errors.New("not yet"), time.Minute))
	want := f.headers.Map()
	want[headers.Deferrals] = "5"
	if got := copyForDeferral(f).Map(); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// unrecoverableMove is the decision about an unrecoverable error.
var unrecoverableMove = &decision{action: MoveToError("error"), reason: reason{kind: headers.FailureUnrecoverable}}

// Rule R23.
func TestFailureHeaders_InTheErrorQueue(t *testing.T) {
	f := failedMessage(fmt.Errorf("save: %w", codeError{7}))
	before := f.headers.Map()
	got := copyForError(f, unrecoverableMove, testHost, Capabilities{}).Map()
	want := map[string]string{
		"app": "value", "empty": "", headers.MessageID: "m1", headers.TimeSent: "then", headers.TimeToBeReceived: "00:01:00",
		headers.FailedQ:             "input",
		headers.FailureReason:       "Unrecoverable",
		headers.Cause:               got[headers.Cause], // R67
		headers.TimeOfFailure:       "2026-03-01 12:00:00:000000 Z",
		headers.ExceptionType:       "core.codeError",
		headers.ExceptionInnerType:  "core.codeError",
		headers.ExceptionMessage:    "save: code 7",
		headers.ExceptionSource:     "github.com/reprise-go/reprise/core",
		headers.ExceptionStackTrace: "*fmt.wrapError: save: code 7\n  core.codeError: code 7\n",
		headers.ProcessingEndpoint:  "billing",
		headers.ProcessingMachine:   "host-7",
		headers.HostID:              "id-7",
		headers.HostDisplayName:     "billing-1",
		headers.Attempts:            got[headers.Attempts], // R33
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if !maps.Equal(f.headers.Map(), before) {
		t.Error("R29 the message's own headers have changed")
	}
	t.Run("the least of them", func(t *testing.T) {
		got := copyForErrorMinimal(f).Map()
		want := map[string]string{"app": "value", "empty": "", headers.MessageID: "m1", headers.TimeSent: "then", headers.TimeToBeReceived: "00:01:00", headers.FailedQ: "input"}
		if !maps.Equal(got, want) {
			t.Errorf("%v", got)
		}
	})
	t.Run("a message without an id gets the one it has here", func(t *testing.T) {
		f := failureAfter(1, 0, errFailed)
		if h := copyForError(&f, &decision{action: MoveToError("error")}, testHost, Capabilities{}); h.Get(headers.MessageID) != "m1" {
			t.Errorf("%v", h.Map())
		}
	})
}

// Rule R23.
func TestFailureHeaders_DescribeTheError(t *testing.T) {
	panicked := &PanicError{Value: "oh no", Stack: []byte("goroutine 7 [running]:\nmain.go:1")}
	for _, test := range []struct {
		name                   string
		err                    error
		kind, inner, text, way string
	}{
		{"a plain error", codeError{1}, "core.codeError", "", "code 1", "core.codeError: code 1\n"},
		{"a pointer", newDecodeError("", "", codeError{1}, ""), "core.codeError", "core.codeError", `decode "" from : code 1`, "*core.decodeError: "},
		{"a wrapped one", fmt.Errorf("a: %w", codeError{1}), "core.codeError", "core.codeError", "a: code 1", "*fmt.wrapError: a: code 1\n  core.codeError: code 1\n"},
		{"joined ones", errors.Join(codeError{1}, errFailed), "core.codeError", "core.codeError", "code 1\nhandler failed", "*errors.joinError: code 1"},
		{"joined ones, the first only a text", fmt.Errorf("%w: %w", errFailed, fmt.Errorf("a: %w", codeError{1})), "core.codeError", "core.codeError", "handler failed: a: code 1", "*fmt.wrapErrors: handler failed: a: code 1\n  *fmt.wrapError: a: code 1\n    core.codeError: code 1\n"},
		{"joined texts", errors.Join(errFailed, errors.New("x")), "*errors.errorString", "*errors.errorString", "handler failed\nx", "*errors.joinError: handler failed\nx\n  *errors.errorString: handler failed\n"},
		{"nothing but text", errors.New("x"), "*errors.errorString", "", "x", "*errors.errorString: x\n"},
		{"a verdict tells its error", GiveUp(codeError{1}), "core.codeError", "", "code 1", "core.codeError: code 1\n"},
		{"a verdict in between", fmt.Errorf("a: %w", GiveUp(codeError{1})), "core.codeError", "core.codeError", "a: code 1", "*fmt.wrapError: a: code 1\n  core.codeError: code 1\n"},
		{"a verdict", Defer(errors.New("not yet"), 0), "*errors.errorString", "", "not yet", "not yet"},
		{"a panic", panicked, "*core.PanicError", "", "panic: oh no", "*core.PanicError: panic: oh no\n\ngoroutine 7 [running]:\nmain.go:1"},
		{"a panic with an error, wrapped", fmt.Errorf("a: %w", &PanicError{Value: codeError{1}, Stack: []byte("stack")}), "core.codeError", "core.codeError", "a: panic: code 1", "\n\nstack"},
		{"an error without a package", errFunc(func() string { return "f" }), "core.errFunc", "", "f", "core.errFunc: f\n"},
		{"an empty join", joined{}, "core.joined", "", "joined", "core.joined: joined\n"},
		{"a join of nothing", joined{nil}, "core.joined", "", "joined", "core.joined: joined\n"},
		{"an error of text that was kept", snapshotError(codeError{1}), "core.codeError", "", "code 1", "core.codeError: code 1\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := failureAfter(1, 0, test.err)
			h := copyForError(&f, &decision{action: MoveToError("error")}, testHost, Capabilities{})
			if got := h.Get(headers.ExceptionType); got != test.kind {
				t.Errorf("type %q, want %q", got, test.kind)
			}
			if got, ok := h.Lookup(headers.ExceptionInnerType); got != test.inner || ok != (test.inner != "") {
				t.Errorf("inner type %q, %v, want %q", got, ok, test.inner)
			}
			if got := h.Get(headers.ExceptionMessage); got != test.text {
				t.Errorf("text %q, want %q", got, test.text)
			}
			if got := h.Get(headers.ExceptionStackTrace); !strings.Contains(got, test.way) {
				t.Errorf("trace %q, want %q in it", got, test.way)
			}
		})
	}
}

type errFunc func() string

func (f errFunc) Error() string { return f() }

type joined []error

func (joined) Error() string     { return "joined" }
func (j joined) Unwrap() []error { return j }

// Rule R23.
func TestFailureHeaders_TypedNilErrors(t *testing.T) {
	var missing *decodeError
	for name, err := range map[string]error{
		"alone":   missing,
		"wrapped": fmt.Errorf("load: %w", missing),
		"joined":  errors.Join(errFailed, fmt.Errorf("load: %w", missing)),
		"a panic": &PanicError{Value: fmt.Errorf("load: %w", missing)},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Message{}
			err := HandlerFunc(func(context.Context, *Message) error { return err }).callRecovered(t.Context(), m)
			f := failureAfter(1, 0, err)
			d := rulesOf(t, Recoverability{}).decide(t.Context(), f)
			h := copyForError(&f, &d, testHost, Capabilities{})
			if d.reason.cause != nil || d.action != ImmediateRetry() || h.Get(headers.ExceptionMessage) == "" {
				t.Errorf("%+v, %v", d, h.Map())
			}
		})
	}
}

// Rule R24.
func TestFailedCopy_TextIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("texts of a quarter of a megabyte: not in short runs")
	}
	t.Parallel()
	deep, wide := errFailed, []error{}
	for i := range 10_000 {
		deep = fmt.Errorf("%d: %w", i, deep)
		wide = append(wide, codeError{i})
	}
	const huge = 1 << 18
	for name, err := range map[string]error{
		"a huge text":                errors.New(strings.Repeat("x", huge)),
		"huge and not ASCII":         errors.New(strings.Repeat("ü€😀", huge/9)),
		"huge and not UTF-8":         errors.New(strings.Repeat("x\xff", huge/2)),
		"huge and nothing but bytes": errors.New(strings.Repeat("\xff", huge)),
		"many NULs":                  errors.New(strings.Repeat("\x00", maxErrorText)),
		"many bytes that are not UTF-8, below the limit": errors.New(strings.Repeat("\xffx", maxErrorText/2)),
		"a letter cut in two":                            errors.New(strings.Repeat("x", maxErrorText-13) + "😀😀😀😀😀"),
		"a deep chain":                                   deep,
		"a huge join":                                    errors.Join(wide...),
		"a huge panic":                                   &PanicError{Value: strings.Repeat("x", huge), Stack: []byte(strings.Repeat("stack\xff\n", huge))},
		"a huge text, wrapped often":                     fmt.Errorf("a: %w", fmt.Errorf("b: %w", errors.New(strings.Repeat("\x00", huge)))),
	} {
		t.Run(name, func(t *testing.T) {
			f := failureAfter(1, 0, err)
			h := copyForError(&f, &decision{action: MoveToError("error")}, testHost, Capabilities{})
			for _, key := range []string{headers.ExceptionMessage, headers.ExceptionStackTrace} {
				text := h.Get(key)
				if len(text) > 16<<10 || len(text) == 0 {
					t.Errorf("%s has %d bytes", key, len(text))
				}
				if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
					t.Errorf("%s is not UTF-8 without NUL", key)
				}
			}
		})
	}
	t.Run("a cut value has a note", func(t *testing.T) {
		for _, text := range []string{strings.Repeat("x", 101), strings.Repeat("\x00", 50), strings.Repeat("\xff", 200)} {
			if got := boundedText(text, 100); !strings.HasSuffix(got, " [truncated]") || len(got) > 100 {
				t.Errorf("%q", got)
			}
		}
	})
	t.Run("a value that fits is kept", func(t *testing.T) {
		for text, want := range map[string]string{"": "", "ü€😀": "ü€😀", strings.Repeat("x", 100): strings.Repeat("x", 100), "a\x00b\xffc": "a\uFFFDb\uFFFDc"} {
			if got := boundedText(text, 100); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}

// Rule R24.
func TestFailedCopy_HeadersGiveWayInOrder(t *testing.T) {
	order := []string{
		headers.ExceptionStackTrace, headers.Attempts, headers.ExceptionSource, headers.ExceptionInnerType,
		headers.HandlerFailureTime, headers.HandlerStartTime, headers.HandledMessageType, headers.HostDisplayName,
		headers.HostID, headers.ProcessingMachine, headers.ProcessingEndpoint, headers.HandlerType, headers.ExceptionMessage, headers.ExceptionType, headers.TimeOfFailure, headers.FailureReason,
		headers.Cause,
	}
	f := failedMessage(fmt.Errorf("save: %w", codeError{7}))
	f.Handler, f.handlerBegan, f.handlerFailed = "shop.charge", day, day
	f.body = []byte(strings.Repeat("b", 500))
	all := copyForError(f, unrecoverableMove, testHost, Capabilities{})
	for _, limit := range []struct {
		name string
		caps func(n int) Capabilities
		size func(Headers) int
	}{
		{"MaxHeaderBytes", func(n int) Capabilities { return Capabilities{Limits: Limits{MaxHeaderBytes: n}} }, Headers.Bytes},
		{"MaxMessageBytes", func(n int) Capabilities { return Capabilities{Limits: Limits{MaxMessageBytes: n}} }, func(h Headers) int { return h.Bytes() + 500 }},
	} {
		t.Run(limit.name, func(t *testing.T) {
			dropped := 0
			for n := limit.size(all) + 1; n > 0; n-- {
				got := copyForError(f, unrecoverableMove, testHost, limit.caps(n))
				want := all
				want.Del(order[:dropped]...)
				for limit.size(want) > n && dropped < len(order) {
					want.Del(order[dropped])
					dropped++
				}
				if limit.size(want) > n { // not even FailedQ fits: the limit is not the broker's
					want = all
				}
				if !maps.Equal(got.Map(), want.Map()) {
					t.Fatalf("at %d bytes\ngot  %q\nwant %q", n, slices.Sorted(maps.Keys(got.Map())), slices.Sorted(maps.Keys(want.Map())))
				}
			}
			if dropped != len(order) {
				t.Errorf("only %d headers gave way", dropped)
			}
		})
	}
}
