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

func FuzzFailureHeaders(f *testing.F) {
	f.Add("handler failed", byte(0), "app", "value", "", "body", 0, 0)
	f.Add("\xff\x00", byte(1), headers.ExceptionType, "stale", "[]", "", 300, 0)
	f.Add(strings.Repeat("\x00", 5000), byte(2), headers.FailedQ, "stale", `[{"action":"MoveToError"},{}]`, "body", 0, 900)
	f.Add("x", byte(3), "k", strings.Repeat("v", 500), `[{"error":"<<<<"}]`, strings.Repeat("b", 100), 100, 200)
	f.Add("x", byte(6), headerExceptionPrefix+"Data", "v", strings.Repeat("[", 100), "b", 50000, 50)
	f.Fuzz(func(t *testing.T, text string, shape byte, key, value, trace, body string, maxHeaders, maxMessage int) {
		message := failureAfter(int(shape), 1, errorOf(text, shape))
		message.body = []byte(body)
		message.headers = HeadersFromMap(map[string]string{key: value, "app": "value", headers.Attempts: trace, headers.Retries: "1"})
		before := message.headers.Map()
		caps := Capabilities{Limits: Limits{MaxHeaderBytes: max(maxHeaders, 0), MaxMessageBytes: max(maxMessage, 0)}}

		moved := copyForError(&message, &decision{action: MoveToError("error")}, testHost, caps)
		all := headersForError(&message, &decision{action: MoveToError("error")}, testHost)
		if !fits(moved, message.body, caps) && !maps.Equal(moved.Map(), all.Map()) {
			t.Errorf("%d bytes of headers do not fit into %+v, and are not all", moved.Bytes(), caps)
		}
		if moved.Get(headers.FailedQ) != "input" {
			t.Errorf("FailedQ is %q", moved.Get(headers.FailedQ))
		}
		for _, h := range []Headers{moved, copyForRetry(&message, DelayedRetry(1)), copyForDeferral(&message), copyForRefusal(&message), copyForErrorMinimal(&message)} {
			ours := slices.Concat(droppedHeaders, retryHeaders, []string{headers.FailedQ, headers.MessageID})
			for k, v := range before {
				if got, ok := h.Lookup(k); !slices.Contains(ours, k) && !strings.HasPrefix(k, headerExceptionPrefix) && (got != v || !ok) {
					t.Errorf("header %q was %q and is %q", k, v, got)
				}
			}
			for k, v := range h.All() {
				if before[k] != v && (!utf8.ValidString(v) || strings.Contains(v, "\x00")) {
					t.Errorf("header %q is not UTF-8 without NUL: %q", k, v)
				}
			}
			if size := len(h.Get(headers.Attempts)); h.Get(headers.Attempts) != trace && size > headers.MaxAttempts {
				t.Errorf("the trace has %d bytes", size)
			}
		}
		if len(moved.Get(headers.ExceptionMessage)) > maxErrorText || len(moved.Get(headers.ExceptionStackTrace)) > maxErrorText {
			t.Error("the error's text is not bounded")
		}
		if string(message.body) != body || !maps.Equal(message.headers.Map(), before) {
			t.Error("R29 the message has changed")
		}
	})
}

// errorOf makes errors of many shapes.
func errorOf(text string, shape byte) error {
	err := errors.New(text)
	switch shape % 7 {
	case 1:
		for range shape {
			err = fmt.Errorf("%s: %w", text, err)
		}
	case 2:
		err = errors.Join(GiveUp(err), codeError{int(shape)}, err)
	case 3:
		err = &PanicError{Value: err, Stack: []byte(text)}
	case 4:
		err = Discard(errors.New(text))
	case 5:
		err = snapshotError(newDecodeError(text, text, err, ""))
	case 6:
		err = joined{nil, err}
	}
	return err
}

func FuzzPolicyAction(f *testing.F) {
	for kind := -1; kind <= 8; kind++ {
		f.Add(kind, int64(kind)*int64(time.Second), "queue", "reason", byte(kind), int64(0), 1)
	}
	f.Add(int(ActionDelayedRetry), int64(1)<<62, "", "", byte(2), int64(time.Minute), 1)
	f.Fuzz(func(t *testing.T, kind int, delay int64, queue, reason string, modes byte, maxDelay int64, deliveries int) {
		answer := Action{Kind: ActionKind(kind), Delay: time.Duration(delay), Queue: queue}
		r := rulesOf(t, Recoverability{Policy: func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) {
			if modes&0x80 != 0 {
				panic(reason)
			}
			return answer, nil
		}})
		r.mode = TransactionNone + TransactionMode(modes%3)
		r.caps.DelayedDelivery = modes&0x40 == 0
		r.caps.MaxDelay = time.Duration(max(maxDelay, 0))
		failure := failureAfter(deliveries, deliveries/2, errFailed)
		d := r.decide(t.Context(), failure)
		switch d.action.Kind {
		case ActionImmediateRetry:
			if r.mode == TransactionNone {
				t.Error("R8 immediate retry in mode None")
			}
		case ActionDelayedRetry:
			if r.mode == TransactionNone || !r.caps.DelayedDelivery || d.action.Delay < 0 || r.caps.MaxDelay > 0 && d.action.Delay > r.caps.MaxDelay {
				t.Errorf("R8 %v in mode %v with %+v", d.action, r.mode, r.caps)
			}
		case ActionMoveToError:
			if d.action.Queue == "" {
				t.Error("no error queue")
			}
		case ActionDiscard:
		default:
			t.Errorf("%v is none of the four", d.action)
		}
		if d.action.Kind != answer.Kind && d.action != MoveToError("error") {
			t.Errorf("%v was asked for, %v decided", answer, d.action)
		}
		if d.action.Kind != answer.Kind && d.reason.text == "" && d.reason.cause == nil {
			t.Error("nothing says why")
		}
		_ = copyForRetry(&failure, d.action)
		_ = copyForError(&failure, &d, testHost, r.caps)
	})
}
