package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var failureQueueCases = []testCase{
	{rule: "R62", title: "a message that its handler gives up to DeadLetterQueue goes to that of the endpoint", run: func(t *caseT) {
		transport := t.open()
		dead := t.queue(transport)
		s, seen := t.runVerdict(transport, core.GiveUpTo(errors.New("no good"), core.DeadLetterQueue), func(c *core.Config) {
			c.Recoverability.DeadLetterQueue = dead
		})
		for _, in := range t.wantLeft(dead, "the message that its handler gave up", "judged") {
			t.wantFailedHeaders(in, "no good")
			t.wantFailedBecause(in, headers.FailureRejected)
		}
		s.end()
		t.wantAttempts(seen, "judged", 1)
		t.wantLeft(s.queue, "after a message was dead-lettered and another handled")
		t.wantLeft(s.errorQueue, "after a message was dead-lettered instead")
	}},
	{rule: "R62", title: "a message whose retries are used up becomes a dead letter, and is handled when it is sent back", run: func(t *caseT) {
		transport := t.open()
		dead := t.queue(transport)
		var seen counter
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate = t.immediate(1)
			c.Recoverability.DeadLetter, c.Recoverability.DeadLetterQueue = true, dead
		})
		attempts := 2
		if t.mode == core.TransactionNone {
			attempts = 1
		}
		s.handle("job", func(context.Context, *core.Message) error {
			if seen.add("attempt"); seen.get("attempt") <= attempts {
				return errors.New("down for now")
			}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "job", "letter"))
		letters := t.wantLeft(dead, "the message whose retries are used up", "letter")
		if len(letters) == 0 {
			t.stop("a message whose retries are used up is in the dead-letter queue", "it is empty")
		}
		in := letters[0]
		t.wantFailedHeaders(in, "down for now")
		t.wantFailedBecause(in, headers.FailureRetriesExhausted)
		returned := core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Headers: in.Headers, Body: in.Body, Properties: in.Properties}
		t.send(transport, returned)
		t.await("a dead letter that is sent back to the queue that it names is handled", func() bool { return seen.get("attempt") > attempts })
		s.end()
		t.wantLeft(s.queue, "after a dead letter was sent back and handled")
		t.wantLeft(s.errorQueue, "after a message was dead-lettered instead")
		t.wantLeft(dead, "after its message was taken away")
	}},
	{rule: "R62", title: "messages go to the error queue while the dead-letter queue cannot be reached, and to it afterwards", run: func(t *caseT) {
		t.replacedWhileMissing(core.GiveUpTo(errHandler, core.DeadLetterQueue), headers.FailureRejected, func(c *core.Config, queue string) {
			c.Recoverability.DeadLetterQueue = queue
		})
	}},
	{rule: "R62", title: "dead letters go to the error queue if the dead-letter queue does not exist", run: func(t *caseT) {
		transport := t.open()
		unchecked := &faultTransport{Transport: transport} // which is no core.Checker: otherwise Run would report the missing queue
		var seen attempts
		s := t.serviceOn(unchecked, t.queue(transport), t.queue(transport), func(c *core.Config) {
			c.Recoverability.DeadLetterQueue = t.uniqueName()
		})
		s.handle("job", func(_ context.Context, m *core.Message) error {
			return seen.failWith(m, core.GiveUpTo(errHandler, core.DeadLetterQueue))
		})
		s.run()
		t.send(transport, t.command(s.queue, "job", "rejected"))
		in := s.wantOneMoved()
		t.wantFailedHeaders(in, errHandler.Error())
		t.wantFailedBecause(in, headers.FailureRejected)
		t.wantAttempts(&seen, "rejected", 1)
	}},
	{rule: "R62", title: "a dead letter keeps 33 KiB of its sender's headers", run: func(t *caseT) {
		transport := t.open()
		dead := t.queue(transport)
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.DeadLetterQueue = dead
		})
		s.handle("job", func(context.Context, *core.Message) error { return core.GiveUpTo(errHandler, core.DeadLetterQueue) })
		s.run()
		sent := t.command(s.queue, "job", "letter")
		size := 33 << 10
		if limit := t.caps.MaxHeaderBytes; limit > 0 {
			size = min(size, limit)
		}
		for i := 0; sent.Headers.Bytes()+1<<10 <= size; i++ {
			sent.Headers.Set(fmt.Sprintf("large-%d", i), strings.Repeat("x", 1000))
		}
		t.send(transport, sent)
		for _, in := range t.wantLeft(dead, "the message that its handler gave up", "letter") {
			if got, want := original(in.Headers), sent.Headers.Map(); !maps.Equal(got, want) {
				t.fail(fmt.Sprintf("a dead letter has the %d headers that were sent", len(want)), "%d headers of %d bytes", len(got), in.Headers.Bytes())
			}
			if limit := t.caps.MaxHeaderBytes; limit == 0 || limit >= size+8<<10 {
				t.wantFailedHeaders(in, errHandler.Error())
				t.wantFailedBecause(in, headers.FailureRejected)
			}
		}
		s.wantDrained("after a message was dead-lettered")
		t.wantLeft(s.errorQueue, "after a message was dead-lettered instead")
	}},
	{rule: "R62", title: "a crash between a dead letter and the end of its message leaves a second copy with the same id", modes: inReceiveOnly, run: func(t *caseT) {
		transport := t.open()
		queue, errorQueue, dead := t.queue(transport), t.queue(transport), t.queue(transport)
		crashed := make(chan struct{}, endless)
		lossy := &faultTransport{Transport: transport, complete: func(context.Context, core.Delivery) error {
			crashed <- struct{}{}
			return errInjected
		}}
		instance := func(on core.Transport) *service {
			s := t.serviceOn(on, queue, errorQueue, func(c *core.Config) {
				c.Recoverability.DeadLetterQueue = dead
			})
			s.handle("job", func(context.Context, *core.Message) error { return core.GiveUpTo(errHandler, core.DeadLetterQueue) })
			s.run()
			return s
		}
		first := instance(lossy)
		sent := t.command(queue, "job", "letter")
		t.send(transport, sent)
		t.awaitSignal(crashed, "a dead letter is accepted before its message is completed")
		first.end()                   // this also closes the receiver, which gives the message back
		second := instance(transport) // which has no memory of the first one's attempts
		for _, in := range t.wantLeft(dead, "one copy of each of the two instances", "letter", "letter") {
			if in.ID != sent.ID {
				t.fail("each copy of a dead letter has the id of the message, "+sent.ID, "%s", in.ID)
			}
			t.wantFailedBecause(in, headers.FailureRejected)
		}
		second.wantDrained("after the second instance dead-lettered the message")
		t.wantLeft(errorQueue, "after a message was dead-lettered instead")
	}},
	{rule: "R63", title: "messages go to the error queue while the invalid queue cannot be reached, and to it afterwards", run: func(t *caseT) {
		t.replacedWhileMissing(core.GiveUpTo(errHandler, core.InvalidQueue), headers.FailureInvalid, func(c *core.Config, queue string) { c.Recoverability.InvalidQueue = queue })
	}},
	{rule: "R63", title: "without an invalid queue an invalid message is a dead letter", run: func(t *caseT) {
		transport := t.open()
		dead := t.queue(transport)
		s, seen := t.runVerdict(transport, core.GiveUpTo(errHandler, core.InvalidQueue), func(c *core.Config) {
			c.Recoverability.DeadLetter, c.Recoverability.DeadLetterQueue = true, dead
		})
		for _, in := range t.wantLeft(dead, "the message that its handler called invalid", "judged") {
			t.wantFailedHeaders(in, errHandler.Error())
			t.wantFailedBecause(in, headers.FailureInvalid)
		}
		s.wantDrained("after a message was dead-lettered and another handled")
		t.wantAttempts(seen, "judged", 1)
		t.wantLeft(s.errorQueue, "after a message was dead-lettered instead")
	}},
	{rule: "R63", title: "a message that its handler calls invalid goes to the invalid queue", run: func(t *caseT) {
		transport := t.open()
		invalid := t.queue(transport)
		s, seen := t.runVerdict(transport, core.GiveUpTo(errors.New("no customer"), core.InvalidQueue), func(c *core.Config) { c.Recoverability.InvalidQueue = invalid })
		for _, in := range t.wantLeft(invalid, "the message that its handler called invalid", "judged") {
			t.wantFailedHeaders(in, "no customer")
			t.wantFailedBecause(in, headers.FailureInvalid)
		}
		s.end()
		t.wantAttempts(seen, "judged", 1)
		t.wantLeft(s.queue, "after a message was called invalid and another handled")
		t.wantLeft(s.errorQueue, "after a message went to the invalid queue instead")
	}},
	{rule: "R63", title: "a message whose body cannot be decoded goes unchanged to the invalid queue", run: func(t *caseT) {
		transport := t.open()
		invalid := t.queue(transport)
		s := t.service(transport, func(c *core.Config) { c.Recoverability.InvalidQueue = invalid })
		core.Handle(s.Endpoint, numberType, func(context.Context, *core.Message, int) error { return nil })
		s.run()
		const body = "{\"no\": number\x00\xff"
		t.send(transport, t.command(s.queue, "number", body))
		for _, in := range t.wantLeft(invalid, "the message whose body is no number", body) {
			t.wantFailedBecause(in, headers.FailureUndecodable)
		}
		s.end()
		t.wantLeft(s.queue, "after a message went to the invalid queue")
		t.wantLeft(s.errorQueue, "after a message went to the invalid queue instead")
	}},
	{rule: "R63", title: "a message that cannot be parsed goes to the invalid queue, with its raw body", needs: []need{corruption}, run: func(t *caseT) {
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
		t.wantFailedBecause(found[0], headers.FailureMalformed)
		s.end()
		t.wantLeft(s.queue, "after a message went to the invalid queue")
		t.wantLeft(s.errorQueue, "after a message went to the invalid queue instead")
	}},
}

// replacedWhileMissing lets messages fail with a verdict while the queue configured for them
// is unreachable, and again afterwards.
func (t *caseT) replacedWhileMissing(verdict error, reason headers.Failure, configure func(c *core.Config, queue string)) {
	transport := t.open()
	queue, missingQueue, errorQueue := t.queue(transport), t.queue(transport), t.queue(transport)
	var isBack atomic.Bool
	lossy := refusingTransport(transport, math.MaxInt64, func(o core.Outgoing) bool { return o.Queue == missingQueue && !isBack.Load() })
	s := t.serviceOn(lossy, queue, errorQueue, func(c *core.Config) { configure(c, missingQueue) })
	s.handle("job", func(context.Context, *core.Message) error { return verdict })
	s.run()
	t.send(transport, t.command(queue, "job", "while it is away"))
	for _, in := range t.wantLeft(errorQueue, "the message whose queue is away", "while it is away") {
		t.wantFailedHeaders(in, errHandler.Error())
		t.wantFailedBecause(in, reason)
	}
	isBack.Store(true)
	t.sleep(2 * time.Second) // the engine tries an unreachable queue again after a second
	t.send(transport, t.command(queue, "job", "when it is back"))
	for _, in := range t.wantLeft(missingQueue, "the message whose queue is back", "when it is back") {
		t.wantFailedBecause(in, reason)
	}
	s.wantDrained("after both messages were moved")
	t.wantLeft(errorQueue, "after the other queue was back")
}

// wantFailedBecause checks the reason in the headers of a message that was moved.
func (t *caseT) wantFailedBecause(in *core.Incoming, want headers.Failure) {
	if got := in.Headers.Get(headers.FailureReason); got != string(want) {
		t.fail(fmt.Sprintf("a moved message has the reason %q in the header %s", want, headers.FailureReason), "%q", got)
	}
	if in.Headers.Get(headers.FailedQ) == "" {
		t.fail("a moved message has the address of its queue in the header "+headers.FailedQ, "%q", in.Headers.Map())
	}
}
