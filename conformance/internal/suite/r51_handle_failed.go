package suite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

var handleFailedCases = []testCase{
	{rule: "R51", title: "HandleFailed consumes a message, and its messages are sent", run: func(t *caseT) {
		transport := t.open()
		out := t.queue(transport)
		s := t.handleFailedFixture(transport, func(m *core.Message, f *core.Failed) error {
			f.TakeOver()
			return errors.Join(m.Send(out, doneType.Of([]byte("apology"))), m.Send(out, doneType.Of([]byte("report"))))
		})
		t.wantLeft(out, "the messages of a HandleFailed that consumed its message", "apology", "report")
		s.end()
		s.wantRuns(t)
		t.wantLeft(s.queue, "after HandleFailed took the only message over")
		t.wantLeft(s.errorQueue, "after HandleFailed took the only message over")
	}},
	{rule: "R51", title: "the messages of HandleFailed are sent with the move", run: func(t *caseT) {
		transport := t.open()
		out := t.queue(transport)
		s := t.handleFailedFixture(transport, func(m *core.Message, _ *core.Failed) error {
			return errors.Join(m.Send(out, doneType.Of([]byte("apology"))), m.Send(out, doneType.Of([]byte("report"))))
		})
		t.wantLeft(out, "the messages of a HandleFailed that did not consume its message", "apology", "report")
		t.wantFailedHeaders(s.wantOneMoved(), "the handler failed")
		s.wantRuns(t)
	}},
	{rule: "R51", title: "a failed HandleFailed does not prevent the move, and its messages are not sent", run: func(t *caseT) {
		transport := t.open()
		out := t.queue(transport)
		s := t.handleFailedFixture(transport, func(m *core.Message, f *core.Failed) error {
			f.TakeOver()
			return errors.Join(m.Send(out, doneType.Of([]byte("apology"))), errors.New("the last resort failed too"))
		})
		t.wantFailedHeaders(s.wantOneMoved(), "the handler failed")
		s.wantRuns(t)
		t.wantLeft(out, "nothing of a HandleFailed that failed is sent")
	}},
	{rule: "R51", title: "a HandleFailed that sends to a queue that does not exist does not prevent the move", run: func(t *caseT) {
		transport := t.open()
		missing := t.uniqueName()
		s := t.handleFailedFixture(transport, func(m *core.Message, _ *core.Failed) error {
			return m.Send(missing, doneType.Of([]byte("apology")))
		})
		t.wantFailedHeaders(s.wantOneMoved(), "the handler failed")
		s.wantRuns(t)
	}},
}

// handleFailedFixture is an endpoint with HandleFailed.
type handleFailedFixture struct {
	*service
	handled, fallbacks atomic.Int64
	retries            int64
}

// handleFailedFixture runs an endpoint with HandleFailed in which a message fails.
func (t *caseT) handleFailedFixture(transport core.Transport, resort func(m *core.Message, f *core.Failed) error) *handleFailedFixture {
	l := &handleFailedFixture{}
	l.service = t.service(transport, func(c *core.Config) {
		if t.mode != core.TransactionNone {
			l.retries = 1
			c.Recoverability.Immediate = core.Immediate{NumberOfRetries: 1}
		}
	})
	l.handle("job", func(context.Context, *core.Message) error {
		if l.handled.Add(1) > endless {
			return nil
		}
		return errHandler
	})
	core.HandleFailed(l.Endpoint, jobType, func(_ context.Context, m *core.Message, _ []byte, f *core.Failed) error {
		l.fallbacks.Add(1)
		return resort(m, f)
	})
	l.run()
	t.send(transport, t.command(l.queue, "job", "fails"))
	return l
}

// wantRuns checks the number of handler calls.
func (l *handleFailedFixture) wantRuns(t *caseT) {
	if n := l.handled.Load(); !t.attemptsFit(int(n), int(l.retries)+1) {
		t.fail(fmt.Sprintf("the handler runs %d times", l.retries+1), "%d times", n)
	}
	if n := l.fallbacks.Load(); !t.attemptsFit(int(n), 1) {
		t.fail("HandleFailed runs once", "%d times", n)
	}
}
