package suite

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var panicCases = []testCase{
	{rule: "R26", title: "a panic in a handler is a failure", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		const text = "nil map\n\tin line 2, ünïcode"
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Immediate = t.immediate(1) })
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if seen.add(m) <= endless {
				panic(text)
			}
			return nil
		})
		s.run()
		sent := t.command(s.queue, "order", "m1")
		t.send(transport, sent)
		in := s.wantOneMoved()
		want := 2
		if t.mode == core.TransactionNone {
			want = 1
		}
		t.wantAttempts(&seen, "m1", want)
		t.wantFailedWith(in, sent)
		if got, want := in.Headers.Get(headers.ExceptionMessage), "panic: "+text; got != want {
			t.fail(fmt.Sprintf("the header %s is %q, all of its lines", headers.ExceptionMessage, want), "%q", got)
		}
		stack := in.Headers.Get(headers.ExceptionStackTrace)
		if !strings.Contains(stack, "goroutine ") || strings.Count(stack, "\n\t") < 2 {
			t.fail(fmt.Sprintf("the header %s has the stack of the panic, with its lines and tabs", headers.ExceptionStackTrace), "%s", excerpt([]byte(stack)))
		}
	}},
}
