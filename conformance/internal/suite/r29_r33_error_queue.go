package suite

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var errorQueueCases = []testCase{
	{rule: "R29", title: "a handler's changes to its message have no effect on other deliveries and copies", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		sent := t.command(s.queue, "order", "m1")
		sent.Headers.Set("Company.Customer", "4711")
		core.Handle(s.Endpoint, orderType, func(_ context.Context, m *core.Message, body []byte) error {
			if n := seen.add(m); n > endless {
				return nil
			}
			h := m.Headers
			h.Del(headers.Retries, headers.RetriesTimestamp, headers.Attempts)
			if got, want := h.Map(), sent.Headers.Map(); !maps.Equal(got, want) || !bytes.Equal(body, sent.Body) {
				t.fail(fmt.Sprintf("every attempt gets the body and headers that were sent, %s and %s", excerpt(sent.Body), excerptHeaders(want, got)),
					"%v: %s and %s", attempt{number: m.Attempt, delayedRetries: m.DelayedRetries, headers: m.Headers}, excerpt(body), excerptHeaders(got, want))
			}
			clear(body)
			m.Headers.Set("Company.Customer", "changed")
			m.Headers.Del("Sender")
			return errHandler
		})
		s.run()
		t.send(transport, sent)
		t.wantFailedWith(s.wantOneMoved(), sent)
	}},
	{rule: "R29", title: "a policy's changes to its headers have no effect on other deliveries and copies", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		sent := t.command(t.queue(transport), "order", "m1")
		sent.Headers.Set("Company.Customer", "4711")
		want := sent // with a separate copy of the headers
		want.Headers = core.Headers{}
		for key, value := range sent.Headers.All() {
			want.Headers.Set(key, value)
		}
		unchanged := func(where string, h core.Headers) {
			h.Del(headers.Retries, headers.RetriesTimestamp, headers.Attempts)
			if got, want := h.Map(), want.Headers.Map(); !maps.Equal(got, want) {
				t.fail(fmt.Sprintf("every attempt and every decision gets the headers that were sent, %s", excerptHeaders(want, got)), "%s: %s", where, excerptHeaders(got, want))
			}
		}
		s := t.serviceOn(transport, sent.Queue, t.queue(transport), func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
			c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
				unchanged("the policy", failure.Message.Headers)
				action, err := core.DefaultPolicy(ctx, config, failure)
				failure.Message.Headers.Set("Company.Customer", "changed")
				failure.Message.Headers.Set("Company.Policy", "was here")
				failure.Message.Headers.Del("Sender", headers.MessageID, headers.MessageTypes)
				return action, err
			}
		})
		s.handle("order", func(_ context.Context, m *core.Message) error {
			unchanged("the handler", m.Headers)
			return seen.failWith(m, errHandler)
		})
		s.run()
		t.send(transport, sent)
		t.wantFailedWith(s.wantOneMoved(), want)
		times := 4
		switch {
		case t.mode == core.TransactionNone:
			times = 1
		case !t.canDelay():
			times = 2
		}
		t.wantAttempts(&seen, "m1", times)
	}},
	{rule: "R30", title: "in mode None a failed message goes to the error queue", modes: inNone, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) { // the defaults
			c.Recoverability.Immediate, c.Recoverability.Delayed = core.Immediate{}, core.Delayed{}
		})
		s.handle("order", seen.fail)
		var sent []core.Outgoing
		for i := range 5 {
			sent = append(sent, t.command(s.queue, "order", fmt.Sprintf("m%d", i)))
		}
		t.send(transport, sent...)
		s.run()
		moved := s.wantMoved(len(sent))
		s.wantDrained("after all messages went to the error queue")
		for _, out := range sent {
			t.wantAttempts(&seen, string(out.Body), 1)
			if in := moved[string(out.Body)]; in != nil {
				t.wantFailedWith(in, out)
			}
		}
	}},
	{rule: "R31", title: "failed messages go to the default error queue if theirs does not exist", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.policyEndpoint(transport, core.MoveToError(t.uniqueName()))
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(s.queue, "order", "m1")
		t.send(transport, sent)
		t.wantFailedWith(s.wantOneMoved(), sent)
		t.wantAttempts(&seen, "m1", 1)
	}},
	{rule: "R33", title: "a message in the error queue has every round of attempts", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(2)
		})
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		in := s.wantOneMoved()
		var got, want []string
		for _, r := range headers.ParseAttempts(in.Headers.Get(headers.Attempts)) {
			if _, err := headers.ParseTime(r.At); err != nil {
				t.fail("each round in the header Reprise.Attempts has its time", "%v", err)
			}
			got = append(got, fmt.Sprintf("%d attempts, %s, then %s %s", r.Attempts, r.Error, r.Action, r.Delay))
		}
		perRound := 2
		if t.mode == core.TransactionNone {
			perRound = 1
		}
		if t.canDelay() {
			round := fmt.Sprintf("%d attempts, *errors.errorString, then DelayedRetry %v", perRound, t.shortDelay())
			want = append(want, round, round)
		}
		want = append(want, fmt.Sprintf("%d attempts, *errors.errorString, then MoveToError ", perRound))
		if !slices.Equal(got, want) {
			t.fail(fmt.Sprintf("the header %s, which each delayed copy carries on, tells of each round: %q", headers.Attempts, want),
				"%q, from %q", got, in.Headers.Get(headers.Attempts))
		}
	}},
}
