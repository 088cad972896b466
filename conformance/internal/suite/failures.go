package suite

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// Messages that an endpoint cannot handle, and the checks of their copies in an error
// queue.

// enableRetries turns on all retries that the transport can make, so that the case shows
// that a verdict causes none.
func (t *caseT) enableRetries(c *core.Config) {
	if t.mode != core.TransactionNone {
		c.Recoverability.Immediate = core.Immediate{NumberOfRetries: 3}
	}
	if t.canDelay() {
		c.Recoverability.Delayed = core.Delayed{NumberOfRetries: 2, TimeIncrease: t.delay()}
	}
}

// runVerdict runs an endpoint whose handler returns the verdict for the message "judged"
// and succeeds for the message "after". It waits until both were handled, and returns the
// endpoint and the attempts.
func (t *caseT) runVerdict(transport core.Transport, verdict error, change func(c *core.Config)) (*service, *attempts) {
	seen := &attempts{}
	s := t.service(transport, func(c *core.Config) {
		t.enableRetries(c)
		if change != nil {
			change(c)
		}
	})
	s.handle("job", func(_ context.Context, m *core.Message) error {
		if string(m.RawBody()) == "after" {
			seen.add(m)
			return nil
		}
		return seen.failWith(m, verdict)
	})
	s.run()
	t.send(transport, t.command(s.queue, "job", "judged"), t.command(s.queue, "job", "after"))
	t.awaitCount("messages handled, one with a verdict and one after it", 2, func() int {
		return min(1, len(seen.forBody("judged"))) + min(1, len(seen.forBody("after")))
	})
	return s, seen
}

// policyEndpoint makes an endpoint whose policy always returns the action.
func (t *caseT) policyEndpoint(transport core.Transport, action core.Action) *service {
	return t.service(transport, func(c *core.Config) {
		c.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			return action, nil
		}
	})
}

// wantFallback checks that the engine turns a policy's action into a move to the default
// error queue.
func (t *caseT) wantFallback(action core.Action) {
	transport := t.open()
	var seen attempts
	s := t.policyEndpoint(transport, action)
	s.handle("order", seen.fail)
	s.run()
	sent := t.command(s.queue, "order", "m1")
	t.send(transport, sent)
	in := s.wantOneMoved()
	t.wantAttempts(&seen, "m1", 1)
	t.wantFailedFrom(in, transport, s.queue)
	if got, want := original(in.Headers), sent.Headers.Map(); !maps.Equal(got, want) {
		t.fail(fmt.Sprintf("the message in the error queue has the headers that were sent, %s", excerptHeaders(want, got)), "%s", excerptHeaders(got, want))
	}
}

const (
	arrivesInError = "messages that cannot be handled arrive in the error queue"
	movedAway      = "after the message went to the error queue"
)

// wantMoved waits until n messages are in the error queue, and returns them by their
// bodies.
func (s *service) wantMoved(n int) map[string]*core.Incoming {
	return s.t.wantArrivals(s.errorQueue, arrivesInError, n)
}

// wantOneMoved returns the only message in the error queue, stops the endpoint, and
// checks that its queue is empty. It stops the case if there is no such message.
func (s *service) wantOneMoved() *core.Incoming {
	var moved *core.Incoming
	for _, moved = range s.wantMoved(1) {
	}
	s.wantDrained(movedAway)
	if moved == nil {
		s.t.stop(arrivesInError, "nothing arrived")
	}
	return moved
}

// wantFailedWith checks that a message in an error queue is the sent one.
func (t *caseT) wantFailedWith(in *core.Incoming, sent core.Outgoing) {
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

// wantFailedFrom checks that the headers of a message in an error queue name the queue in
// which it failed.
func (t *caseT) wantFailedFrom(in *core.Incoming, transport core.Transport, queue string) {
	address, err := transport.Address(queue)
	if err != nil {
		t.stop("Address takes a queue's name", "%v", err)
	}
	if got := in.Headers.Get(headers.FailedQ); got != address {
		t.fail(fmt.Sprintf("the header %s is Address(%q), %q", headers.FailedQ, queue, address), "%q", got)
	}
}

// wantFailedHeaders checks the headers of a failed message in the queue to which it was
// moved.
func (t *caseT) wantFailedHeaders(in *core.Incoming, cause string) {
	if got := in.Headers.Get(headers.ExceptionMessage); !strings.Contains(got, cause) {
		t.fail(fmt.Sprintf("a moved message has its error %q in the header %s", cause, headers.ExceptionMessage), "%q", got)
	}
	if in.Headers.Get(headers.FailedQ) == "" {
		t.fail("a moved message has the address of its queue in the header "+headers.FailedQ, "%q", in.Headers.Map())
	}
	for _, key := range []string{headers.Retries, headers.RetriesTimestamp, headers.Deferrals} {
		if value, has := in.Headers.Lookup(key); has {
			t.fail("a moved message has no headers of retries: not "+key, "%q", value)
		}
	}
	if got := in.Headers.Get(headers.MessageTypes); got != "job" {
		t.fail("a moved message has its own headers still, such as its type, \"job\"", "%q", got)
	}
}

// original returns a failed message's headers without those added by the move to the
// error queue.
func original(h core.Headers) map[string]string {
	h.Del(
		headers.FailedQ, headers.FailureReason, headers.Cause, headers.TimeOfFailure, headers.Attempts,
		headers.ExceptionType, headers.ExceptionMessage, headers.ExceptionStackTrace,
		headers.ExceptionSource, headers.ExceptionInnerType,
		headers.HandlerType, headers.HandlerStartTime, headers.HandlerFailureTime, headers.HandledMessageType,
		headers.ProcessingEndpoint, headers.ProcessingMachine, headers.HostID, headers.HostDisplayName,
	)
	return h.Map()
}
