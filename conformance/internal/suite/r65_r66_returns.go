package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// returned is a job that an operator's tool returns to its queue, with options.
func (t *caseT) returned(queue, body, options string) core.Outgoing {
	out := t.command(queue, "job", body)
	out.Headers.Set(headers.Replay, options)
	return out
}

// reported is a returned message whose outcome the tool wants to know in a queue.
func (t *caseT) reported(queue, body, reports string) core.Outgoing {
	out := t.returned(queue, body, "report")
	out.Headers.Set(headers.RetryAckQueue, reports)
	out.Headers.Set(headers.RetryUniqueMessageID, "return of "+body)
	return out
}

var returnCases = []testCase{
	{rule: "R65", title: "each final outcome of a returned message is reported once", run: func(t *caseT) {
		transport := t.open()
		reports, other := t.queue(transport), t.queue(transport)
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.RetryAckQueues = []string{reports}
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		s.handle("job", func(_ context.Context, m *core.Message) error {
			switch body := string(m.RawBody()); {
			case body == "discarded":
				return seen.failWith(m, core.Discard(errHandler))
			case body == "moved":
				return seen.failWith(m, core.GiveUpTo(errHandler, other))
			case body == "failed", body == "retried" && m.DelayedRetries == 0 && t.canDelay():
				return seen.failWith(m, errHandler)
			}
			return nil
		})
		s.run()
		want := map[string]string{
			"handled": "succeeded ", "retried": "succeeded ", "discarded": "discarded ",
			"failed": "failed " + s.errorQueue, "moved": "failed " + other,
		}
		var sent []core.Outgoing
		for _, body := range slices.Sorted(maps.Keys(want)) {
			sent = append(sent, t.reported(s.queue, body, reports))
		}
		t.send(transport, append(sent, t.command(s.queue, "job", "not returned"))...)
		found := t.drainQueue(reports, func(found []*core.Incoming) bool { return len(found) >= len(want) })
		failed := t.wantArrivals(s.errorQueue, arrivesInError, 1)["failed"]
		got := map[string]string{}
		for _, report := range found {
			body := strings.TrimPrefix(report.Headers.Get(headers.RetryUniqueMessageID), "return of ")
			outcome := report.Headers.Get(headers.ReplayOutcome) + " " + report.Headers.Get(headers.ReplayQueue)
			switch {
			case want[body] == "":
				t.fail("no message is reported that was not returned", "%q", report.Headers.Map())
			case outcome != want[body]:
				t.fail(fmt.Sprintf("the outcome of %q is reported as %q", body, want[body]), "%q", outcome)
			case got[body] != "" && !t.caps.MayDuplicate:
				t.fail(fmt.Sprintf("the outcome of %q is reported once", body), "twice")
			case body == "failed" && failed != nil && report.Headers.Get(headers.Cause) != t.wantCause(failed):
				t.fail("the report of a failure has the cause of the message in the error queue, "+failed.Headers.Get(headers.Cause), "%q", report.Headers.Get(headers.Cause))
			}
			got[body] = outcome
		}
		for body, outcome := range want {
			if got[body] == "" {
				t.fail(fmt.Sprintf("the outcome of %q is reported as %q", body, outcome), "it is not reported%s", t.log.told())
			}
		}
		t.wantLeft(other, "the message that was given up to another queue", "moved")
		s.wantDrained("after all messages have an outcome")
	}},
	{rule: "R65", title: "a failure is reported when the message is in the error queue", run: func(t *caseT) {
		transport := t.open()
		reports := t.queue(transport)
		waits, goes := make(chan struct{}, endless), make(chan struct{})
		watched := &faultTransport{Transport: transport, send: func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error {
			if out[0].Reason == core.ReasonAcknowledgement {
				waits <- struct{}{}
				select {
				case <-goes:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return next(ctx)
		}}
		s := t.serviceOn(watched, t.queue(transport), t.queue(transport), func(c *core.Config) { c.RetryAckQueues = []string{reports} })
		s.handle("job", func(context.Context, *core.Message) error { return core.GiveUp(errHandler) })
		s.run()
		t.send(transport, t.reported(s.queue, "failed", reports))
		t.awaitSignal(waits, "the outcome of a returned message is reported")
		t.wantLeft(s.errorQueue, "the message whose failure is about to be reported", "failed")
		close(goes)
		t.wantLeft(reports, "the report, which has no body", "")
		s.wantDrained("after its message has failed")
	}},
	{rule: "R65", title: "a report that is refused decides nothing", run: func(t *caseT) {
		transport := t.open()
		missing := t.uniqueName()
		var seen attempts
		unchecked := &faultTransport{Transport: transport} // which is no core.Checker: otherwise Run would report the missing queue
		s := t.serviceOn(unchecked, t.queue(transport), t.queue(transport), func(c *core.Config) {
			c.RetryAckQueues = []string{missing}
			c.Recoverability.Immediate = t.immediate(1)
		})
		outcomes := map[string]error{"handled": nil, "failed": core.GiveUp(errHandler), "discarded": core.Discard(errHandler)}
		s.handle("job", func(_ context.Context, m *core.Message) error {
			if seen.add(m) > endless {
				return core.Discard(errHandler)
			}
			return outcomes[string(m.RawBody())]
		})
		s.run()
		for body := range outcomes {
			t.send(transport, t.reported(s.queue, body, missing))
		}
		t.wantLeft(s.errorQueue, "the message that has failed", "failed")
		t.awaitCount("messages handled", len(outcomes), func() (n int) {
			for body := range outcomes {
				n += min(1, len(seen.forBody(body)))
			}
			return n
		})
		s.wantDrained("after the reports of its messages were refused")
		for body := range outcomes {
			t.wantAttempts(&seen, body, 1)
		}
	}},
	{rule: "R66", title: "a message that is returned to be tried once is moved after one attempt, and has all of them at its next return", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		s.handle("job", seen.fail)
		s.run()
		t.send(transport, t.returned(s.queue, "once", "once, and others"))
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
	{rule: "R66", title: "a returned message becomes a dead letter without its options", modes: withRedelivery, needs: []need{deadLettering, deadLetterView}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
			c.Recoverability.DeadLetter = true
		})
		s.handle("job", seen.fail)
		s.run()
		t.send(transport, t.returned(s.queue, "once", "once"))
		h := t.wantDeadLetters(s.queue, 1)[0].Headers
		if options := h.Get(headers.Replay); options != "" {
			t.fail("a dead letter lacks the header "+headers.Replay+", or has it without a value", "it has %q", options)
		}
		t.wantAttempts(&seen, "once", 1)
		s.wantDrained("after its message was dead-lettered")
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
		t.send(transport, t.returned(s.queue, "once", "once"))
		in := s.wantOneMoved()
		t.wantFailedHeaders(in, errHandler.Error())
		t.wantAttempts(&seen, "once", 2) // the attempt after the deferral is not retried
	}},
}
