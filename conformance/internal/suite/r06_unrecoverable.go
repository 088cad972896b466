package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var unrecoverableCases = []testCase{
	{rule: "R6", title: "a message with an unrecoverable failure is attempted once", run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		errInvalid := errors.New("the order is invalid")
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(3), t.delayed(2)
			c.Recoverability.Unrecoverable = []error{errInvalid}
			// A message that cannot be decoded does not reach a handler, but it does
			// reach middleware.
			c.Middleware = []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error { return seen.failWith(m, next(ctx, m)) }
			})}
		})
		failures := map[string]error{
			"listed":  errInvalid,
			"wrapped": fmt.Errorf("order 7: %w", errInvalid),
			"verdict": core.GiveUp(errors.New("no such customer")),
		}
		for body, err := range failures {
			s.handle(body, func(context.Context, *core.Message) error { return err })
			t.send(transport, t.command(s.queue, body, body))
		}
		const undecodable = "this is no JSON"
		core.Handle(s.Endpoint, undecodableType, func(context.Context, *core.Message, map[string]int) error { return nil })
		t.send(transport, t.command(s.queue, "undecodable", undecodable))
		s.run()
		s.wantMoved(len(failures) + 1)
		s.wantDrained("after all messages went to the error queue")
		for body := range failures {
			t.wantAttempts(&seen, body, 1)
		}
		t.wantAttempts(&seen, undecodable, 1)
	}},
	{rule: "R6", title: "a message that cannot be parsed goes to the error queue under any policy, without a handler", needs: []need{corruption}, run: malformedToErrorQueue},
	{rule: "R6", title: "a message that names no type goes to the error queue at once", run: func(t *caseT) {
		transport := t.open()
		var seen, handled attempts
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(3), t.delayed(2)
			c.Middleware = []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error { return seen.failWith(m, next(ctx, m)) }
			})}
		})
		s.handle("order", handled.fail)
		sent := map[string]core.Outgoing{"no header": t.message(s.queue, "no header")}
		for body, value := range map[string]string{"blanks": "  ", "only separators": ";;,;"} {
			m := t.message(s.queue, body)
			m.Headers.Set(headers.MessageTypes, value)
			sent[body] = m
		}
		for _, m := range sent {
			t.send(transport, m)
		}
		s.run()
		moved := s.wantMoved(len(sent))
		s.wantDrained("after all messages went to the error queue")
		for body, m := range sent {
			t.wantAttempts(&seen, body, 1)
			if got := handled.forBody(body); len(got) > 0 {
				t.fail("no handler gets a message that names no type", "message %q: %v, with the headers %q", body, got, got[0].headers.Map())
			}
			if in := moved[body]; in != nil {
				t.wantFailedWith(in, m)
				t.wantFailedFrom(in, transport, s.queue)
			}
		}
	}},
	{rule: "R6", title: "a handler's verdict Unrecoverable is found in any wrapped error", run: func(t *caseT) {
		transport := t.open()
		s, seen := t.runVerdict(transport, errors.Join(errors.New("beside it"), fmt.Errorf("around it: %w", core.GiveUp(errors.New("hopeless")))), nil)
		t.wantFailedHeaders(s.wantOneMoved(), "hopeless")
		t.wantAttempts(seen, "judged", 1)
	}},
}

func malformedToErrorQueue(t *caseT) {
	transport := t.open()
	var ran counter
	s := t.service(transport, func(c *core.Config) {
		c.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			ran.add("policy")
			return core.ImmediateRetry(), nil
		}
		c.Middleware = append(c.Middleware, core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				ran.add("middleware for " + string(m.RawBody()))
				return next(ctx, m)
			}
		}))
	})
	s.handle("Sound", func(context.Context, *core.Message) error {
		ran.add("handler")
		return nil
	})
	body := t.suite.h.Corrupt(t, s.queue)
	t.send(transport, t.command(s.queue, "Sound", "sound"))
	s.run()
	address, err := transport.Address(s.queue)
	if err != nil {
		t.stop("Address takes the input queue's name", "%v", err)
	}
	r := t.receiver(transport, s.errorQueue, 1)
	d := r.next()
	in := d.Incoming()
	if in.Malformed != nil && !strings.Contains(in.Headers.Get(headers.ExceptionMessage), in.Malformed.Error()) {
		t.fail("the messages that the engine sends to the error queue can be parsed, but for a body that stays as it was sent", "%v", in.Malformed)
	}
	if !bytes.Equal(in.Body, body) {
		t.fail(fmt.Sprintf("the raw body is in the error queue, %s", excerpt(body)), "%s", excerpt(in.Body))
	}
	if got := in.Headers.Get(headers.FailedQ); got != address {
		t.fail(fmt.Sprintf("%s names the queue that the message failed in, %q", headers.FailedQ, address), "%q", got)
	}
	if in.Headers.Get(headers.ExceptionMessage) == "" {
		t.fail(headers.ExceptionMessage+" says why the message could not be parsed", "it is empty")
	}
	t.complete(d)
	r.close()
	t.await("the sound message behind a malformed one is handled", func() bool { return ran.get("handler") == 1 })
	if err := s.stop(); err != nil {
		t.fail("the endpoint goes on after a malformed message", "Run returned %v", err)
	}
	if ran.get("policy") != 1 && !t.caps.MayDuplicate || ran.get("middleware for sound") != 1 || ran.total()-ran.get("policy") != 2 {
		t.fail("the policy is asked once about a message that cannot be parsed, and neither middleware nor a handler runs for it", "the handlers that ran, and how often: %s", listed(ran.counts()))
	}
	t.wantLeft(s.queue, "the input queue, after a malformed and a sound message")
	t.wantLeft(s.errorQueue, "the error queue, after its one message was taken")
}
