package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// quotaError is an error of a type that differs from that of other errors.
type quotaError struct{ text string }

func (e *quotaError) Error() string { return e.text }

var causeCases = []testCase{
	{rule: "R67", title: "failures with one cause have one fingerprint, and others have others", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		s.handle("order", func(_ context.Context, m *core.Message) error {
			text, isQuota := strings.CutPrefix(string(m.RawBody()), "quota: ")
			if isQuota {
				return seen.failWith(m, &quotaError{text})
			}
			return seen.failWith(m, errors.New(text))
		})
		s.run()
		// Each list has one cause.
		lists := [][]string{
			{"order 4711 of d290f1ee-6c54-4b01-90e6-d701748f0851 is locked until 2026-11-30T15:00:00Z", "order 17 of 9b3c7f0e-0000-4b01-90e6-d701748f0851 is locked until 2026-12-01T08:30:12Z"},
			{"payments: status 404"}, {"payments: status 503"},
			{"dial tcp 10.0.0.1:5432: connection refused", "dial tcp 10.244.7.12:5432: connection refused"},
			{"quota: dial tcp 10.0.0.1:5432: connection refused"},
		}
		var sent []core.Outgoing
		for _, list := range lists {
			for _, text := range list {
				m := t.command(s.queue, "order", text)
				m.Headers.Set(headers.Cause, "1:000000000000") // of a sender
				sent = append(sent, m)
			}
		}
		t.send(transport, sent...)
		moved := s.wantMoved(len(sent))
		known := map[string]string{}
		for _, list := range lists {
			var first string
			for i, text := range list {
				if moved[text] == nil {
					continue
				}
				cause := t.wantCause(moved[text])
				switch other, ok := known[cause]; {
				case i > 0 && cause != first:
					t.fail(fmt.Sprintf("the failures %q and %q have one cause, %s", list[0], text, first), "%s", cause)
				case i == 0 && ok:
					t.fail(fmt.Sprintf("the failures %q and %q have two causes", other, text), "both have %s", cause)
				case i == 0:
					first, known[cause] = cause, text
				}
			}
		}
		s.wantDrained(movedAway)
	}},
	{rule: "R67", title: "a failed message without room for its stack trace has its cause", needs: []need{messageLimit, tryable}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Immediate = t.immediate(1) })
		s.handle("order", func(_ context.Context, m *core.Message) error {
			return seen.failWith(m, errors.New(strings.Repeat("a long story. ", 1<<10)))
		})
		s.run()
		sent := t.command(s.queue, "order", "")
		const room = 4 << 10
		sent.Body = bytes.Repeat([]byte("x"), t.caps.MaxMessageBytes-sent.Headers.Bytes()-room)
		t.send(transport, sent)
		in := s.wantOneMoved()
		if trace, ok := in.Headers.Lookup(headers.ExceptionStackTrace); ok {
			t.fail(fmt.Sprintf("a message with room for %d bytes of headers has no stack trace in the error queue", room), "it has %d bytes", len(trace))
		}
		t.wantCause(in)
	}},
}

// wantCause returns the fingerprint of a failed message.
func (t *caseT) wantCause(in *core.Incoming) string {
	cause := in.Headers.Get(headers.Cause)
	if !regexp.MustCompile(`^\d+:[0-9a-f]{12}$`).MatchString(cause) || strings.HasSuffix(cause, ":000000000000") {
		t.fail("a failed message has the fingerprint of its failure in the header "+headers.Cause+", such as 1:9f3c21ab77e0", "%q", cause)
	}
	return cause
}
