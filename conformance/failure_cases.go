package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

var failureCases = []testCase{
	{rule: "R22", title: "a delayed retry is the original, with its retries counted", in: givingBack, needs: []need{delays}, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Delayed = t.delayed(1) })
		done := make(chan struct{}, endless)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			if seen.add(m) < 2 {
				return errHandler
			}
			done <- struct{}{}
			return nil
		})
		s.run()
		sent := t.command(s.queue, "order", "m1")
		t.send(transport, sent)
		t.receives(done, "a delayed retry is delivered")
		t.rest(t.shortDelay() + t.caps.DelayPrecision) // a second copy would arrive at about the same time
		s.leftNothing("after the delayed retry succeeded")
		t.attempted(&seen, "m1", 2)
		h := seen.of("m1")[1].headers
		if got := h.Get(core.HeaderRetries); got != "1" {
			t.fail(fmt.Sprintf("the delayed copy's header %s is 1", core.HeaderRetries), "%q", got)
		}
		if _, err := core.ParseTime(h.Get(core.HeaderRetriesTimestamp)); err != nil {
			t.fail(fmt.Sprintf("the delayed copy's header %s is a time", core.HeaderRetriesTimestamp), "%v", err)
		}
		h.Del(core.HeaderRetries, core.HeaderRetriesTimestamp, core.HeaderAttempts)
		if got, want := h.Map(), sent.Headers.Map(); !maps.Equal(got, want) {
			t.fail(fmt.Sprintf("besides those of the retry, the delayed copy has the headers that were sent, %s", excerptHeaders(want, got)), "%s", excerptHeaders(got, want))
		}
		t.left(s.errorQueue, "after the delayed retry succeeded")
	}},
	{rule: "R22", title: "a delayed retry outlives the time to be received", in: givingBack, slow: true, needs: []need{delays, expiry}, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		const brief = time.Second
		delay := brief + max(50*time.Millisecond, t.caps.DelayPrecision)
		if t.caps.MaxDelay > 0 && delay > t.caps.MaxDelay {
			t.note("not tried: MaxDelay is %v, and a time to be received of %v is to end before it", t.caps.MaxDelay, brief)
			return
		}
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Delayed = core.Delayed{Retries: 1, Increase: delay} })
		s.handle("order", seen.fail)
		s.run()
		t.receivedInTime(transport, brief, t.command(s.queue, "order", "m1"), func() int { return len(seen.of("m1")) })
		s.movedOne()
		t.attempted(&seen, "m1", 2)
	}},
	{rule: "R23", title: "the error queue has the original and its failure", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		s.handle("order", seen.fail)
		sent := t.command(s.queue, "order", "\x00 any bytes \xff")
		began := time.Now()
		t.send(transport, sent)
		s.run()
		in := s.movedOne()
		ended := time.Now()
		t.failedWith(in, sent)
		t.failedFrom(in, transport, s.queue)
		if got := in.Headers.Get(core.HeaderExceptionMessage); got != errHandler.Error() {
			t.fail(fmt.Sprintf("the header %s is the error's text, %q", core.HeaderExceptionMessage, errHandler), "%q", got)
		}
		if got := in.Headers.Get(core.HeaderExceptionType); got != "*errors.errorString" {
			t.fail(fmt.Sprintf("the header %s is the error's type, *errors.errorString", core.HeaderExceptionType), "%q", got)
		}
		// Headers carry microseconds.
		at, err := core.ParseTime(in.Headers.Get(core.HeaderTimeOfFailure))
		if err != nil || at.Before(began.Truncate(time.Microsecond)) || at.After(ended) {
			t.fail(fmt.Sprintf("the header %s is a time between %v and %v", core.HeaderTimeOfFailure, began.UTC(), ended.UTC()), "%v, %v", at, err)
		}
	}},
	{rule: "R23", title: "a failed message can be sent back to the queue that it names", in: once, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, nil)
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(s.queue, "order", "m1")
		t.send(transport, sent)
		in := s.movedOne()
		// Like an operator, from a separate process.
		t.send(t.open(), core.Outgoing{ID: in.ID, Queue: in.Headers.Get(core.HeaderFailedQ), Headers: in.Headers, Body: in.Body})
		back := t.arrive(s.queue, "what is sent to the queue that NServiceBus.FailedQ names arrives where it failed", 1)["m1"]
		if back == nil {
			t.stop("the message that was sent to the queue which NServiceBus.FailedQ names is delivered from it", "it is not")
		}
		t.failedWith(back, sent)
	}},
	{rule: "R23", title: "an edited failed message arrives as edited, and can be sent back", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		const body, text, team = "\x00 redacted \xff", "[redacted]\n\tünïcode", "billing ✓"
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.EditFailed = func(_ context.Context, _ core.ErrorContext, m *core.FailedCopy) {
				m.Headers.Set(core.HeaderExceptionMessage, text)
				m.Headers.Set("Company.Team", team)
				m.Headers.Del(core.HeaderExceptionStackTrace, "Company.Customer", core.HeaderFailedQ, core.HeaderMessageID)
				m.Body = []byte(body)
			}
		})
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(s.queue, "order", "personal data")
		sent.Headers.Set("Company.Customer", "4711")
		t.send(transport, sent)
		in := s.movedOne()
		edited := sent
		edited.Body = []byte(body)
		edited.Headers.Del("Company.Customer")
		edited.Headers.Set("Company.Team", team)
		t.failedWith(in, edited)
		t.failedFrom(in, transport, s.queue)
		if got := in.Headers.Get(core.HeaderExceptionMessage); got != text {
			t.fail(fmt.Sprintf("the header %s is what EditFailed made of it, %q", core.HeaderExceptionMessage, text), "%q", got)
		}
		if got, ok := in.Headers.Lookup(core.HeaderExceptionStackTrace); ok {
			t.fail(fmt.Sprintf("the header %s, which EditFailed dropped, is not there", core.HeaderExceptionStackTrace), "%s", excerpt([]byte(got)))
		}
		t.send(transport, core.Outgoing{ID: in.ID, Queue: in.Headers.Get(core.HeaderFailedQ), Headers: in.Headers, Body: in.Body})
		back := t.arrive(s.queue, "an edited message that is sent to the queue which NServiceBus.FailedQ names arrives where it failed", 1)[body]
		if back == nil {
			t.stop("the edited message that was sent back is delivered with its body", "it is not")
		}
		t.failedWith(back, edited)
	}},
	{rule: "R26", title: "a panic in a handler is a failure", run: func(t *trial) {
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
		in := s.movedOne()
		want := 2
		if t.mode == core.TransactionNone {
			want = 1
		}
		t.attempted(&seen, "m1", want)
		t.failedWith(in, sent)
		if got, want := in.Headers.Get(core.HeaderExceptionMessage), "panic: "+text; got != want {
			t.fail(fmt.Sprintf("the header %s is %q, all of its lines", core.HeaderExceptionMessage, want), "%q", got)
		}
		stack := in.Headers.Get(core.HeaderExceptionStackTrace)
		if !strings.Contains(stack, "goroutine ") || strings.Count(stack, "\n\t") < 2 {
			t.fail(fmt.Sprintf("the header %s has the stack of the panic, with its lines and tabs", core.HeaderExceptionStackTrace), "%s", excerpt([]byte(stack)))
		}
	}},
	{rule: "R29", title: "what a handler overwrites reaches nobody else", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
		})
		sent := t.command(s.queue, "order", "m1")
		sent.Headers.Set("Company.Customer", "4711")
		core.Handle(s.Endpoint, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
			if n := seen.add(m.Message); n > endless {
				return nil
			}
			headers := m.Headers
			headers.Del(core.HeaderRetries, core.HeaderRetriesTimestamp, core.HeaderAttempts)
			if got, want := headers.Map(), sent.Headers.Map(); !maps.Equal(got, want) || !bytes.Equal(m.Body, sent.Body) {
				t.fail(fmt.Sprintf("every attempt gets the body and headers that were sent, %s and %s", excerpt(sent.Body), excerptHeaders(want, got)),
					"%v: %s and %s", attempt{number: m.Attempt, delayedRetries: m.DelayedRetries, headers: m.Headers}, excerpt(m.Body), excerptHeaders(got, want))
			}
			clear(m.Body)
			m.Headers.Set("Company.Customer", "changed")
			m.Headers.Del("Sender")
			return errHandler
		})
		s.run()
		t.send(transport, sent)
		t.failedWith(s.movedOne(), sent)
	}},
	{rule: "R29", title: "what a policy writes to the headers that it got reaches nobody else", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		sent := t.command(t.queue(transport), "order", "m1")
		sent.Headers.Set("Company.Customer", "4711")
		want := sent // with a separate copy of the headers
		want.Headers = core.Headers{}
		for key, value := range sent.Headers.All() {
			want.Headers.Set(key, value)
		}
		unchanged := func(where string, headers core.Headers) {
			headers.Del(core.HeaderRetries, core.HeaderRetriesTimestamp, core.HeaderAttempts)
			if got, want := headers.Map(), want.Headers.Map(); !maps.Equal(got, want) {
				t.fail(fmt.Sprintf("every attempt and every decision gets the headers that were sent, %s", excerptHeaders(want, got)), "%s: %s", where, excerptHeaders(got, want))
			}
		}
		s := t.serviceOn(transport, sent.Queue, t.queue(transport), func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
			c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) core.Action {
				unchanged("the policy", failure.Headers)
				action := core.DefaultPolicy(ctx, config, failure)
				failure.Headers.Set("Company.Customer", "changed")
				failure.Headers.Set("Company.Policy", "was here")
				failure.Headers.Del("Sender", core.HeaderMessageID, core.HeaderMessageTypes)
				return action
			}
		})
		s.handle("order", func(_ context.Context, m *core.Message) error {
			unchanged("the handler", m.Headers)
			return seen.failWith(m, errHandler)
		})
		s.run()
		t.send(transport, sent)
		t.failedWith(s.movedOne(), want)
		times := 4
		switch {
		case t.mode == core.TransactionNone:
			times = 1
		case !t.canDelay():
			times = 2
		}
		t.attempted(&seen, "m1", times)
	}},
	{rule: "R30", title: "in mode None a failed message goes to the error queue", in: inNone, run: func(t *trial) {
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
		moved := s.moved(len(sent))
		s.leftNothing("after all messages went to the error queue")
		for _, out := range sent {
			t.attempted(&seen, string(out.Body), 1)
			if in := moved[string(out.Body)]; in != nil {
				t.failedWith(in, out)
			}
		}
	}},
	{rule: "R31", title: "an error queue that does not exist gives way to the default one", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.deciding(transport, core.MoveToError(t.uniqueName()))
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(s.queue, "order", "m1")
		t.send(transport, sent)
		t.failedWith(s.movedOne(), sent)
		t.attempted(&seen, "m1", 1)
	}},
	{rule: "R33", title: "the error queue shows every round of attempts", run: func(t *trial) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(2)
		})
		s.handle("order", seen.fail)
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		in := s.movedOne()
		var got, want []string
		for _, r := range core.Rounds(in.Headers) {
			if _, err := core.ParseTime(r.At); err != nil {
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
			t.fail(fmt.Sprintf("the header %s, which each delayed copy carries on, tells of each round: %q", core.HeaderAttempts, want),
				"%q, from %q", got, in.Headers.Get(core.HeaderAttempts))
		}
	}},
}

// failedWith checks that a message in an error queue is the sent one.
func (t *trial) failedWith(in *core.Incoming, sent core.Outgoing) {
	if in.ID != sent.ID {
		t.fail(fmt.Sprintf("the failed message has the id that was sent, %q", sent.ID), "%q", in.ID)
	}
	if !bytes.Equal(in.Body, sent.Body) {
		t.fail(fmt.Sprintf("the failed message has the body that was sent, %s", excerpt(sent.Body)), "%s", excerpt(in.Body))
	}
	if got, want := original(in.Headers), sent.Headers.Map(); !maps.Equal(got, want) {
		t.fail(fmt.Sprintf("besides those of its failure, and without those of its retries, the failed message has the headers that were sent, %s", excerptHeaders(want, got)), "%s", excerptHeaders(got, want))
	}
}
