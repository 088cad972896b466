package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var actionCases = []testCase{
	{rule: "R7", title: "a deferred message is redelivered after its delay, and has not failed", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		s := t.service(transport, t.enableRetries)
		delay := t.delay()
		seen := &attempts{}
		verdicts := make(chan time.Time, endless+2)
		s.handle("job", func(_ context.Context, m *core.Message) error {
			n := seen.add(m)
			if m.Deferrals != n-1 && !t.caps.MayDuplicate {
				t.fail(fmt.Sprintf("handling %d of a message that is deferred each time comes after %d deferrals", n, n-1), "Deferrals is %d", m.Deferrals)
			}
			verdicts <- time.Now()
			if n <= 2 {
				return core.Defer(errors.New("not yet"), delay)
			}
			return nil
		})
		sent := t.command(s.queue, "job", "deferred twice\x00\xff")
		stamp := headers.FormatTime(time.Now())
		sent.Headers.Set(headers.Retries, "1")
		sent.Headers.Set(headers.RetriesTimestamp, stamp)
		s.run()
		t.send(transport, sent)
		before := t.awaitTime(verdicts, "the handler runs")
		for n := range 2 {
			redelivered := t.awaitTime(verdicts, fmt.Sprintf("a message that was deferred %d times is redelivered", n+1))
			t.wantDue("a message that was deferred", delay, redelivered.Sub(before))
			before = redelivered
		}
		s.end()
		t.wantAttempts(seen, string(sent.Body), 3)
		for i, a := range seen.forBody(string(sent.Body)) {
			if a.number != 1 && !t.caps.MayDuplicate {
				t.fail("a deferred message has not failed: each of its copies is attempt 1", "copy %d is %v", i+1, a)
			}
			if got, at := a.headers.Get(headers.Retries), a.headers.Get(headers.RetriesTimestamp); got != "1" || at != stamp {
				t.fail(fmt.Sprintf("a deferred message keeps the count and time of its delayed retries, 1 and %s", stamp), "copy %d has %q and %q", i+1, got, at)
			}
			for key, want := range sent.Headers.All() {
				if got := a.headers.Get(key); got != want {
					t.fail(fmt.Sprintf("a deferred message keeps its header %s: %q", key, want), "copy %d has %q", i+1, got)
				}
			}
		}
		t.wantLeft(s.queue, "after the message was handled at last")
		t.wantLeft(s.errorQueue, "after the message was handled at last")
	}},
	{rule: "R7", title: "a refused message loses no attempt, and continues in its round", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate = t.immediate(1)
			c.Recoverability.RequeueLimit = 1
		})
		seen := &attempts{}
		done := make(chan struct{}, endless)
		s.handle("job", func(_ context.Context, m *core.Message) error {
			switch n := seen.add(m); {
			case n == 2:
				return errHandler
			case n <= 4:
				return core.Refuse(errHandler, t.delay())
			}
			done <- struct{}{}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "job", "refused"))
		t.awaitSignal(done, "a message that was refused three times is handled in the end")
		s.wantDrained("after the message was handled")
		t.wantLeft(s.errorQueue, "after the message was handled: a refusal is no deferral, and RequeueLimit does not bound it")
		t.wantAttempts(seen, "refused", 5)
		for i, want := range []int{1, 1, 2, 2, 2} {
			if a := seen.forBody("refused")[i]; (a.number != want || a.delayedRetries != 0) && !t.caps.MayDuplicate {
				t.fail(fmt.Sprintf("a refusal takes no attempt: delivery %d is attempt %d after 0 delayed retries", i+1, want), "it is %v", a)
			}
		}
	}},
	{rule: "R7", title: "a message that was deferred too often goes to the error queue", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		seen := &attempts{}
		s := t.service(transport, func(c *core.Config) {
			t.enableRetries(c)
			c.Recoverability.RequeueLimit = 2
			c.Recoverability.RequeueDelay = 10 * time.Millisecond
		})
		s.handle("job", func(_ context.Context, m *core.Message) error {
			return seen.failWith(m, core.Defer(errHandler, 0))
		})
		s.run()
		t.send(transport, t.command(s.queue, "job", "always deferred"))
		in := s.wantOneMoved()
		t.wantFailedHeaders(in, errHandler.Error())
		t.wantAttempts(seen, "always deferred", 3)
	}},
	{rule: "R7", title: "RetryAfter asks for one retry with the given delay, which is no counted delayed retry", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		seen := &attempts{}
		delay := t.delay()
		s := t.service(transport, func(c *core.Config) {
			t.enableRetries(c)
			c.Recoverability.RetryAfterLimit = delay / 2
		})
		s.handle("job", func(_ context.Context, m *core.Message) error {
			return seen.failWith(m, core.RetryAfter(errHandler, delay))
		})
		s.run()
		body := bytes.Repeat([]byte("slow down "), 20)
		t.send(transport, t.command(s.queue, "job", string(body)))
		t.wantFailedHeaders(s.wantOneMoved(), errHandler.Error())
		t.wantAttempts(seen, string(body), 2) // the first is granted, the second is later than the limit
		all := seen.forBody(string(body))
		for i, a := range all {
			if (a.number != 1 || a.delayedRetries != 0) && !t.caps.MayDuplicate {
				t.fail(fmt.Sprintf("run %d is attempt 1 after 0 delayed retries", i+1), "%v", a)
			}
			if i > 0 {
				t.wantDue("a message whose handler asked to be retried", delay, a.at.Sub(all[i-1].at))
			}
		}
	}},
	{rule: "R7", title: "a policy can retry a message immediately", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.policyEndpoint(transport, core.ImmediateRetry())
		done := make(chan struct{}, endless)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if seen.add(m) < 3 {
				return errHandler
			}
			done <- struct{}{}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.awaitSignal(done, "a message that was abandoned twice is delivered a third time")
		s.wantDrained("after the third attempt succeeded")
		t.wantAttempts(&seen, "m1", 3)
		t.wantLeft(s.errorQueue, "after the third attempt succeeded")
	}},
	{rule: "R7", title: "a policy can retry a message with a delay", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		delay := t.withinMaxDelay(max(50*time.Millisecond, t.caps.DelayPrecision*3/2))
		s := t.policyEndpoint(transport, core.DelayedRetry(delay))
		done := make(chan struct{}, endless)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if seen.add(m) < 2 {
				return errHandler
			}
			done <- struct{}{}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.awaitSignal(done, "a delayed retry is delivered")
		s.wantDrained("after the delayed retry succeeded")
		t.wantAttempts(&seen, "m1", 2)
		rounds := seen.forBody("m1")
		if waited := rounds[1].at.Sub(rounds[0].at); waited < delay && len(rounds) == 2 {
			t.fail(fmt.Sprintf("the retry comes %v after the failure, never earlier", delay), "after %v", waited)
		}
		t.wantLeft(s.errorQueue, "after the delayed retry succeeded")
	}},
	{rule: "R7", title: "a policy moves a message to a queue that it names", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		queue := t.queue(transport)
		s := t.policyEndpoint(transport, core.MoveToError(queue))
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		for _, in := range t.wantArrivals(queue, "a failed message arrives in the queue that the policy named", 1) {
			t.wantFailedFrom(in, transport, s.queue)
		}
		s.wantDrained("after the message was moved")
		t.wantAttempts(&seen, "m1", 1)
		t.wantLeft(s.errorQueue, "after the message was moved to another queue")
	}},
	{rule: "R7", title: "a policy can discard a message", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.policyEndpoint(transport, core.DiscardMessage())
		failed := make(chan struct{}, endless+1)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			failed <- struct{}{}
			return seen.failWith(m, errHandler)
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.awaitSignal(failed, "the message is delivered")
		s.wantDrained("after the message was discarded")
		t.wantAttempts(&seen, "m1", 1)
		t.wantLeft(s.errorQueue, "after the message was discarded")
	}},
	{rule: "R7", title: "a policy can ask the default policy first", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		other := t.queue(transport)
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
			c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
				action, err := core.DefaultPolicy(ctx, config, failure)
				if action.Kind == core.ActionMoveToError && failure.Message.Type == "exception" {
					return core.MoveToError(other), nil
				}
				return action, err
			}
		})
		s.handle("order", seen.fail)
		s.handle("exception", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"), t.command(s.queue, "exception", "m2"))
		t.wantArrivals(other, "the message of the policy's exception arrives in its queue", 1)
		s.wantOneMoved()
		want := 4
		switch {
		case t.mode == core.TransactionNone:
			want = 1
		case !t.canDelay():
			want = 2
		}
		t.wantAttempts(&seen, "m1", want)
		t.wantAttempts(&seen, "m2", want)
	}},
	{rule: "R7", title: "a message that its handler discards is consumed", run: func(t *caseT) {
		transport := t.open()
		audit := t.queue(transport)
		s, seen := t.runVerdict(transport, fmt.Errorf("wrapped: %w", core.Discard(errors.New("the case wants it"))), func(c *core.Config) { c.AuditQueue = audit })
		t.wantLeft(audit, "the copies of the handled messages, to which a discarded one does not belong", "after")
		s.end()
		t.wantAttempts(seen, "judged", 1)
		t.wantLeft(s.queue, "after a message was discarded and another handled")
		t.wantLeft(s.errorQueue, "after a message was discarded and another handled")
	}},
	{rule: "R7", title: "a handler moves its message to a queue that it names", run: func(t *caseT) {
		transport := t.open()
		custom := t.queue(transport)
		s, seen := t.runVerdict(transport, core.GiveUpTo(errors.New("it belongs elsewhere"), custom), nil)
		for _, in := range t.wantLeft(custom, "the message that its handler moved there", "judged") {
			t.wantFailedHeaders(in, "it belongs elsewhere")
		}
		s.end()
		t.wantAttempts(seen, "judged", 1)
		t.wantLeft(s.queue, "after a message was moved and another handled")
		t.wantLeft(s.errorQueue, "after a message was moved to another queue")
	}},
	{rule: "R7", title: "a message that its handler gives up goes to the error queue at once", run: func(t *caseT) {
		transport := t.open()
		s, seen := t.runVerdict(transport, core.GiveUp(errors.New("no good")), nil)
		t.wantFailedHeaders(s.wantOneMoved(), "no good")
		t.wantAttempts(seen, "judged", 1)
	}},
}
