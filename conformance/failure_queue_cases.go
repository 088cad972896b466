package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// What an endpoint does with the queues beside its error queue.

var failureQueueCases = []testCase{
	{rule: "R62", title: "a message that its handler rejects goes to the dead-letter queue of the endpoint", run: func(t *trial) {
		transport := t.open()
		dead := t.queue(transport)
		s, seen := t.answered(transport, core.Reject(errors.New("no good")), func(c *core.Config) {
			c.Recoverability.DeadLetter, c.Recoverability.DeadLetterQueue = core.DeadLettersRejected, dead
		})
		for _, in := range t.left(dead, "the message that its handler rejected", "judged") {
			t.failedHeaders(in, "no good")
			t.failedBecause(in, core.FailureRejected)
		}
		s.end()
		t.attempted(seen, "judged", 1)
		t.left(s.queue, "after a message was dead-lettered and another handled")
		t.left(s.errorQueue, "after a message was dead-lettered instead")
	}},
	{rule: "R62", title: "a message whose retries are used up becomes a dead letter, and is handled when it is sent back", run: func(t *trial) {
		transport := t.open()
		dead := t.queue(transport)
		var seen tally
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate = t.immediate(1)
			c.Recoverability.DeadLetter, c.Recoverability.DeadLetterQueue = core.DeadLettersAll, dead
		})
		attempts := 2
		if t.mode == core.TransactionNone {
			attempts = 1
		}
		s.handle("job", func(context.Context, *core.Message) error {
			if seen.add("attempt"); seen.of("attempt") <= attempts {
				return errors.New("down for now")
			}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "job", "letter"))
		letters := t.left(dead, "the message whose retries are used up", "letter")
		if len(letters) == 0 {
			t.stop("a message whose retries are used up is in the dead-letter queue", "it is empty")
		}
		in := letters[0]
		t.failedHeaders(in, "down for now")
		t.failedBecause(in, core.FailureRetriesExhausted)
		back := core.Outgoing{ID: in.ID, Queue: in.Headers.Get(core.HeaderFailedQ), Headers: in.Headers, Body: in.Body, Properties: in.Properties}
		t.send(transport, back)
		t.await("a dead letter that is sent back to the queue that it names is handled", func() bool { return seen.of("attempt") > attempts })
		s.end()
		t.left(s.queue, "after a dead letter was sent back and handled")
		t.left(s.errorQueue, "after a message was dead-lettered instead")
		t.left(dead, "after its message was taken away")
	}},
	{rule: "R63", title: "a message that its handler calls invalid goes to the invalid queue", run: func(t *trial) {
		transport := t.open()
		invalid := t.queue(transport)
		s, seen := t.answered(transport, core.Invalid(errors.New("no customer")), func(c *core.Config) { c.Recoverability.InvalidQueue = invalid })
		for _, in := range t.left(invalid, "the message that its handler called invalid", "judged") {
			t.failedHeaders(in, "no customer")
			t.failedBecause(in, core.FailureInvalid)
		}
		s.end()
		t.attempted(seen, "judged", 1)
		t.left(s.queue, "after a message was called invalid and another handled")
		t.left(s.errorQueue, "after a message went to the invalid queue instead")
	}},
	{rule: "R63", title: "a body that cannot be decoded goes to the invalid queue as it is", run: func(t *trial) {
		transport := t.open()
		invalid := t.queue(transport)
		s := t.service(transport, func(c *core.Config) { c.Recoverability.InvalidQueue = invalid })
		if err := core.Handle(s.Endpoint, "number", func(context.Context, *core.Inbound[int]) error { return nil }); err != nil {
			t.stop("core.Handle takes a handler", "%v", err)
		}
		s.run()
		const body = "{\"no\": number\x00\xff"
		t.send(transport, t.command(s.queue, "number", body))
		for _, in := range t.left(invalid, "the message whose body is no number", body) {
			t.failedBecause(in, core.FailureUndecodable)
		}
		s.end()
		t.left(s.queue, "after a message went to the invalid queue")
		t.left(s.errorQueue, "after a message went to the invalid queue instead")
	}},
	{rule: "R63", title: "a message that cannot be parsed goes to the invalid queue, with its raw body", needs: []need{corruption}, run: func(t *trial) {
		transport := t.open()
		invalid := t.queue(transport)
		s := t.service(transport, func(c *core.Config) { c.Recoverability.InvalidQueue = invalid })
		s.handle("job", func(context.Context, *core.Message) error {
			t.fail("no handler gets a message that cannot be parsed", "one did")
			return nil
		})
		body := t.suite.h.Corrupt(t, s.queue)
		s.run()
		found := t.contents(invalid, 1)
		if len(found) == 0 {
			t.stop("a message that cannot be parsed is in the invalid queue", "it is empty")
		}
		if in := found[0]; !bytes.Equal(in.Body, body) {
			t.fail(fmt.Sprintf("the raw body is in the invalid queue, %s", excerpt(body)), "%s", excerpt(in.Body))
		}
		t.failedBecause(found[0], core.FailureMalformed)
		s.end()
		t.left(s.queue, "after a message went to the invalid queue")
		t.left(s.errorQueue, "after a message went to the invalid queue instead")
	}},
}

// failedBecause checks what a message in a dead-letter or invalid queue says of the reason.
func (t *trial) failedBecause(in *core.Incoming, want core.FailureReason) {
	if got := in.Headers.Get(core.HeaderFailureReason); got != string(want) {
		t.fail(fmt.Sprintf("a message in such a queue has the reason %q in the header %s", want, core.HeaderFailureReason), "%q", got)
	}
	if in.Headers.Get(core.HeaderFailedQ) == "" {
		t.fail("a moved message has the address of its queue in the header "+core.HeaderFailedQ, "%q", in.Headers.Map())
	}
}
