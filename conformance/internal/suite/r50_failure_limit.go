package suite

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

var failureLimitCases = []testCase{
	{rule: "R50", title: "an endpoint stops at its limit of failed messages, and continues when it runs again", run: func(t *caseT) {
		transport := t.open()
		s := t.service(transport, func(c *core.Config) {
			c.Concurrency = 1
			c.Recoverability.UnacceptableMessageLimit.Count = 6
		})
		s.handle("job", func(context.Context, *core.Message) error {
			t.sleep(5 * time.Millisecond) // otherwise a fast transport delivers all messages before Run has ended
			return errHandler
		})
		const n = 11 // more than the limit, and less than twice the limit
		msgs := t.jobs(s.queue, n)
		t.send(transport, msgs...)
		s.run()
		t.await("Run returns when 6 messages were moved to the error queue", s.hasEnded)
		if err := s.ended(); !errors.Is(err, core.ErrUnacceptableMessageLimit) {
			t.stop("Run returns core.ErrUnacceptableMessageLimit", "%v", err)
		}
		before := t.contents(s.errorQueue, 6)
		t.note("of %d messages %d failed before the endpoint stopped at its limit of 6", n, len(before))
		s.run()
		after := t.wantArrivals(s.errorQueue, "the messages that were left when the endpoint had stopped, and failed when it ran again", n-len(before))
		s.end()
		for _, m := range msgs {
			same := func(in *core.Incoming) bool { return bytes.Equal(in.Body, m.Body) }
			if !slices.ContainsFunc(before, same) && after[string(m.Body)] == nil {
				t.fail("an endpoint that stops at its limit loses nothing", "%q is missing", m.Body)
			}
		}
		t.wantLeft(s.queue, "after all have failed")
	}},
	{rule: "R50", title: "an endpoint that pauses at its limit leaves other messages to other instances, and continues after Resume", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		var s *service
		s = t.service(transport, func(c *core.Config) {
			c.Concurrency = 2
			c.Recoverability.UnacceptableMessageLimit.Count = 6
			c.Recoverability.UnacceptableMessageLimit.OnReached = func(context.Context, error) { s.Pause() }
		})
		var failed atomic.Int64
		s.handle("job", func(context.Context, *core.Message) error {
			t.sleep(5 * time.Millisecond) // otherwise a fast transport delivers all messages before the endpoint is paused
			failed.Add(1)
			return core.GiveUp(errHandler)
		})
		jobs := t.blockingHandler()
		jobs.releaseAll()
		other := t.serviceOn(t.open(), s.queue, s.errorQueue, nil)
		other.handle("job", jobs.handle)
		const n = 60 // more than the limit and the messages that are prefetched
		msgs := t.jobs(s.queue, n)
		t.send(transport, msgs...)
		s.run()
		t.await("after 6 messages were moved to the error queue, the endpoint is paused", func() bool { return s.Health().Paused })
		other.run()
		t.await("while one instance is paused the other one handles the rest", func() bool { return int(failed.Load())+jobs.messages() >= n })
		t.await("a paused endpoint comes to rest", func() bool { return s.Health().InFlight == 0 })
		before := int(failed.Load())
		t.note("of %d messages %d failed before the endpoint was paused at its limit of 6", n, before)
		if jobs.messages() == 0 && !t.caps.CountsReleases { // otherwise it may have prefetched all
			t.fail("an endpoint that is paused at its limit leaves messages in the queue", "all %d have failed", before)
		}
		other.end()
		moved := t.wantArrivals(s.errorQueue, "the messages that failed before the endpoint was paused", before)
		for _, m := range msgs {
			if moved[string(m.Body)] == nil && jobs.calls(string(m.Body)) == 0 {
				t.fail("an endpoint that is paused at its limit loses nothing", "%q is missing", m.Body)
			}
		}
		t.send(transport, t.jobs(s.queue, 3)...)
		t.wantSteady("messages that a paused endpoint has handled", before, func() int { return int(failed.Load()) })
		s.Resume()
		t.wantArrivals(s.errorQueue, "the messages that were sent to the paused endpoint, after Resume", 3)
		s.end()
		t.wantLeft(s.queue, "after all have failed or were handled")
	}},
}
