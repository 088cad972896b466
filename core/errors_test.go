package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestSendError(t *testing.T) {
	full := &TooLargeError{Limit: "MaxMessageBytes", Max: 10, Size: 11}
	err := fmt.Errorf("inmemory: send: %w", &SendError{Results: []SendResult{
		{ID: "m1", To: "a", State: SendAccepted},
		{ID: "m2", To: "b", State: SendRefused, Err: ErrQueueNotFound},
		{ID: "m3", To: "c", State: SendUnknown, Err: full},
	}})
	const want = `inmemory: send: 2 of 3 messages not accepted; message m2 to "b" refused: queue does not exist; ` +
		`message m3 to "c" unknown: message is too large: MaxMessageBytes is 10, the message has 11`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if !errors.Is(err, ErrQueueNotFound) || !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrClosed) {
		t.Error("the messages' errors are not found")
	}
	if found, ok := errors.AsType[*SendError](err); !ok || found.Results[2].State != SendUnknown {
		t.Error("the results are not found")
	}
	t.Run("does not flood", func(t *testing.T) {
		many := &SendError{}
		for i := range 1000 {
			many.Results = append(many.Results, SendResult{ID: fmt.Sprint("m", i), To: "q", State: SendRefused, Err: errFailed})
		}
		text := many.Error()
		if !strings.HasPrefix(text, "1000 of 1000 messages not accepted") || !strings.HasSuffix(text, "m2 to \"q\" refused: handler failed; ...") {
			t.Errorf("%.300s", text)
		}
		if len(many.Unwrap()) != 1000 {
			t.Errorf("%d errors", len(many.Unwrap()))
		}
	})
	t.Run("with nothing wrong, or nothing said", func(t *testing.T) {
		if text := (&SendError{}).Error(); text != "0 of 0 messages not accepted" {
			t.Error(text)
		}
		silent := &SendError{Results: []SendResult{{ID: "m1", To: "q"}}}
		if !strings.Contains(silent.Error(), `message m1 to "q" unknown`) || silent.Unwrap() != nil {
			t.Errorf("%v, %v", silent, silent.Unwrap())
		}
	})
}

func TestSendState_String(t *testing.T) {
	for state, want := range map[SendState]string{SendUnknown: "unknown", SendRefused: "refused", SendAccepted: "accepted", 9: "SendState(9)"} {
		if state.String() != want {
			t.Errorf("%q, want %q", state.String(), want)
		}
	}
}

func TestTooLargeError(t *testing.T) {
	err := fmt.Errorf("x: %w", &TooLargeError{Limit: "MaxHeaderBytes", Max: 1, Size: 2})
	if !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrInvalidHeader) {
		t.Errorf("%v", err)
	}
	if want := "x: message is too large: MaxHeaderBytes is 1, the message has 2"; err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestPanicError(t *testing.T) {
	for _, test := range []struct {
		value any
		text  string
		wraps error
	}{
		{"oh no", "panic: oh no", nil},
		{errFailed, "panic: handler failed", errFailed},
		{nil, "panic: <nil>", nil},
		{42, "panic: 42", nil},
	} {
		err := &PanicError{Value: test.value}
		if err.Error() != test.text || !errors.Is(errors.Unwrap(err), test.wraps) {
			t.Errorf("%q wraps %v", err, errors.Unwrap(err))
		}
	}
}
