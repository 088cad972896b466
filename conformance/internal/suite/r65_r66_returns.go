package suite

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// returned is a message that an operator's tool returns to its queue, with options.
func (t *caseT) returned(queue, messageType, body, options string) core.Outgoing {
	out := t.command(queue, messageType, body)
	out.Headers.Set(headers.Replay, options)
	return out
}

var returnCases = []testCase{
	{rule: "R66", title: "a message that is returned to be tried once is moved after one attempt, and has all of them at its next return", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		s.handle("job", seen.fail)
		s.run()
		t.send(transport, t.returned(s.queue, "job", "once", "once, and others"))
		moved := t.wantLeft(s.errorQueue, "a message that is tried once and fails", "once")
		t.wantAttempts(&seen, "once", 1)
		if len(moved) == 0 {
			t.stop(arrivesInError, "nothing arrived")
		}
		in := moved[0]
		t.wantFailedHeaders(in, errHandler.Error())
		if options := in.Headers.Get(headers.Replay); options != "" {
			t.fail("a failed message lacks the header "+headers.Replay+", so that its next return has all attempts", "it has %q", options)
		}
		t.send(transport, core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Headers: in.Headers, Body: in.Body, Properties: in.Properties})
		s.wantOneMoved()
		all := 1
		if t.mode != core.TransactionNone {
			all *= 2
		}
		if t.canDelay() {
			all *= 2
		}
		t.wantAttempts(&seen, "once", 1+all)
	}},
	{rule: "R66", title: "a returned message that is to be tried once can be deferred", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, t.enableRetries)
		var deferred atomic.Bool
		s.handle("job", func(_ context.Context, m *core.Message) error {
			if deferred.CompareAndSwap(false, true) {
				return seen.failWith(m, core.Defer(errors.New("not yet"), t.delay()))
			}
			return seen.failWith(m, errHandler)
		})
		s.run()
		t.send(transport, t.returned(s.queue, "job", "once", "once"))
		in := s.wantOneMoved()
		t.wantFailedHeaders(in, errHandler.Error())
		t.wantAttempts(&seen, "once", 2) // the attempt after the deferral is not retried
	}},
}
