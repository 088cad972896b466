package suite

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var originalMessageCases = []testCase{
	{rule: "R22", title: "a delayed retry is the original, with its retries counted", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
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
		t.awaitSignal(done, "a delayed retry is delivered")
		t.sleep(t.shortDelay() + t.caps.DelayPrecision) // a second copy would arrive at about the same time
		s.wantDrained("after the delayed retry succeeded")
		t.wantAttempts(&seen, "m1", 2)
		h := seen.forBody("m1")[1].headers
		if got := h.Get(headers.Retries); got != "1" {
			t.fail(fmt.Sprintf("the delayed copy's header %s is 1", headers.Retries), "%q", got)
		}
		if _, err := headers.ParseTime(h.Get(headers.RetriesTimestamp)); err != nil {
			t.fail(fmt.Sprintf("the delayed copy's header %s is a time", headers.RetriesTimestamp), "%v", err)
		}
		h.Del(headers.Retries, headers.RetriesTimestamp, headers.Attempts)
		if got, want := h.Map(), sent.Headers.Map(); !maps.Equal(got, want) {
			t.fail(fmt.Sprintf("besides those of the retry, the delayed copy has the headers that were sent, %s", excerptHeaders(want, got)), "%s", excerptHeaders(got, want))
		}
		t.wantLeft(s.errorQueue, "after the delayed retry succeeded")
	}},
	{rule: "R22", title: "a delayed retry has the native properties of the original", modes: withRedelivery, needs: []need{delays, nativeMessages}, run: func(t *caseT) {
		transport := t.open()
		s := t.service(transport, func(c *core.Config) { c.Recoverability.Delayed = t.delayed(1) })
		natives := make(chan any, endless)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			natives <- m.Native()
			return errHandler
		})
		s.run()
		describe := t.suite.h.SendNative(t, s.queue, "order")
		in := s.wantOneMoved()
		if len(natives) != 2 {
			t.stop("a native message that fails is attempted twice", "it was attempted %d times", len(natives))
		}
		want := describe(<-natives)
		if got := describe(<-natives); got != want {
			t.fail(fmt.Sprintf("the delayed retry has the native properties of the first attempt, %s", want), "%s", got)
		}
		if got := describe(in.Native); got != want {
			t.fail(fmt.Sprintf("the error queue has the native properties of the first attempt, %s", want), "%s", got)
		}
	}},
	{rule: "R23", title: "the error queue has the original and its failure", run: func(t *caseT) {
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
		in := s.wantOneMoved()
		ended := time.Now()
		t.wantFailedWith(in, sent)
		t.wantFailedFrom(in, transport, s.queue)
		if got := in.Headers.Get(headers.ExceptionMessage); got != errHandler.Error() {
			t.fail(fmt.Sprintf("the header %s is the error's text, %q", headers.ExceptionMessage, errHandler), "%q", got)
		}
		if got := in.Headers.Get(headers.ExceptionType); got != "*errors.errorString" {
			t.fail(fmt.Sprintf("the header %s is the error's type, *errors.errorString", headers.ExceptionType), "%q", got)
		}
		// Headers carry microseconds.
		at, err := headers.ParseTime(in.Headers.Get(headers.TimeOfFailure))
		if err != nil || at.Before(began.Truncate(time.Microsecond)) || at.After(ended) {
			t.fail(fmt.Sprintf("the header %s is a time between %v and %v", headers.TimeOfFailure, began.UTC(), ended.UTC()), "%v, %v", at, err)
		}
	}},
	{rule: "R23", title: "a failed message can be sent back to the queue that it names", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		s := t.service(transport, nil)
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(s.queue, "order", "m1")
		t.send(transport, sent)
		in := s.wantOneMoved()
		// Like an operator, from a separate process.
		t.send(t.open(), core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Headers: in.Headers, Body: in.Body})
		returned := t.wantArrivals(s.queue, "a message that is sent to the queue that NServiceBus.FailedQ names arrives where it failed", 1)["m1"]
		if returned == nil {
			t.stop("the message that was sent to the queue which NServiceBus.FailedQ names is delivered from it", "it is not")
		}
		t.wantFailedWith(returned, sent)
	}},
	{rule: "R23", title: "a failed message has the native properties of the original, also when it is sent back", modes: inHighest, needs: []need{nativeMessages}, run: func(t *caseT) {
		transport := t.open()
		s := t.service(transport, nil)
		natives := make(chan any, endless)
		s.handle("order", func(_ context.Context, m *core.Message) error {
			natives <- m.Native()
			return errHandler
		})
		s.run()
		describe := t.suite.h.SendNative(t, s.queue, "order")
		in := s.wantOneMoved()
		want := describe(<-natives)
		if got := describe(in.Native); got != want {
			t.fail(fmt.Sprintf("the error queue has the native properties of the attempt, %s", want), "%s", got)
		}
		t.send(t.open(), core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Headers: in.Headers, Body: in.Body, Native: in.Native})
		for _, returned := range t.wantArrivals(s.queue, "a message that is sent to the queue that NServiceBus.FailedQ names arrives where it failed", 1) {
			if got := describe(returned.Native); got != want {
				t.fail(fmt.Sprintf("the message that was sent back has the native properties of the attempt, %s", want), "%s", got)
			}
		}
	}},
	{rule: "R23", title: "an edited failed message arrives as edited, and can be sent back", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		const text, team = "[redacted]\n\tünïcode", "billing ✓"
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.EditFailed = func(_ context.Context, _ core.ErrorContext, h *core.Headers) {
				h.Set(headers.ExceptionMessage, text)
				h.Set("Company.Team", team)
				h.Del(headers.ExceptionStackTrace, "Company.Customer", headers.FailedQ, headers.MessageID)
			}
		})
		s.handle("order", seen.fail)
		s.run()
		sent := t.command(s.queue, "order", "personal data")
		sent.Headers.Set("Company.Customer", "4711")
		t.send(transport, sent)
		in := s.wantOneMoved()
		edited := sent
		edited.Headers.Del("Company.Customer")
		edited.Headers.Set("Company.Team", team)
		t.wantFailedWith(in, edited)
		t.wantFailedFrom(in, transport, s.queue)
		if got := in.Headers.Get(headers.ExceptionMessage); got != text {
			t.fail(fmt.Sprintf("the header %s has the value that EditFailed set, %q", headers.ExceptionMessage, text), "%q", got)
		}
		if got, ok := in.Headers.Lookup(headers.ExceptionStackTrace); ok {
			t.fail(fmt.Sprintf("the header %s, which EditFailed dropped, is not there", headers.ExceptionStackTrace), "%s", excerpt([]byte(got)))
		}
		t.send(transport, core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Headers: in.Headers, Body: in.Body})
		returned := t.wantArrivals(s.queue, "an edited message that is sent to the queue which NServiceBus.FailedQ names arrives where it failed", 1)["personal data"]
		if returned == nil {
			t.stop("the edited message that was sent back is delivered", "it is not")
		}
		t.wantFailedWith(returned, edited)
	}},
}
