package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

var pumpCases = slices.Concat(concurrencyCases, stopCases, renewalCases, conversationCases, soakCases)

var concurrencyCases = []testCase{
	{rule: "C3", title: "an endpoint handles as many messages at the same time as it may, and no more", run: func(t *trial) {
		jobs := t.crowd()
		transport := t.open()
		s := t.service(transport, func(c *core.Config) { c.Concurrency = 5 })
		s.handle("job", jobs.handle)
		s.run()
		msgs := t.jobs(s.queue, 12)
		t.send(transport, msgs...)
		t.reach("12 messages wait for 5 handlers; handlers at the same time", 5, jobs.running)
		t.steady("the number of handlers, of which none has ended,", 5, jobs.running)
		jobs.open()
		t.reach("messages handled in the end", 12, jobs.messages)
		s.end()
		if most := jobs.peak(); most > 5 {
			t.fail("an endpoint with Concurrency 5 runs no more than 5 handlers at the same time", "%d", most)
		}
		t.once(msgs, jobs)
		t.left(s.queue, "after all was handled")
		t.left(s.errorQueue, "after all was handled")
	}},
	{rule: "C3", title: "the concurrency of an endpoint follows every change while messages are handled", run: func(t *trial) {
		jobs := t.crowd()
		transport := t.open()
		s := t.service(transport, func(c *core.Config) { c.Concurrency = 5 })
		s.handle("job", jobs.handle)
		s.run()
		change := func(n int) {
			if err := s.SetConcurrency(n); err != nil {
				t.stop("SetConcurrency accepts a number above 0", "%v", err)
			}
		}
		msgs := t.jobs(s.queue, 40)
		t.send(transport, msgs...)
		t.reach("with 40 messages in the queue and concurrency 5, handlers at the same time", 5, jobs.running)
		change(10)
		t.reach("after the concurrency was raised to 10, handlers at the same time", 10, jobs.running)
		t.steady("the number of handlers at concurrency 10", 10, jobs.running)
		change(2)
		jobs.pass(9) // eight surplus handlers, and one whose slot another handler takes
		t.reach("after nine of ten ended at concurrency 2, messages that were begun", 11, jobs.messages)
		t.reach("after nine of ten ended at concurrency 2, handlers at the same time", 2, jobs.running)
		jobs.peak()
		jobs.pass(4)
		t.reach("after four more ended, messages that were begun", 15, jobs.messages)
		t.steady("the number of handlers at concurrency 2", 2, jobs.running)
		if most := jobs.peak(); most > 2 {
			t.fail("after the concurrency was lowered to 2, no more than 2 handlers at the same time", "%d", most)
		}
		for _, n := range []int{9, 3, 12, 1, 4} {
			change(n)
		}
		jobs.pass(12) // as many as may have started in between
		t.await("after several changes at once, of which the last was to 4, there are 4 handlers at the same time", func() bool { return jobs.running() == 4 })
		jobs.peak()
		jobs.pass(4)
		t.reach("after several changes at once and four that ended, handlers at the same time", 4, jobs.running)
		t.rest(t.quiet())
		if most := jobs.peak(); most > 4 {
			t.fail("after the concurrency was lowered to 4, no more than 4 handlers at the same time", "%d", most)
		}
		jobs.open()
		t.reach("messages handled in the end", 40, jobs.messages)
		s.end()
		t.once(msgs, jobs)
		t.left(s.queue, "after all was handled")
	}},
	{rule: "C3", title: "a paused endpoint fetches nothing and holds nothing that another instance could have", in: givingBack, run: func(t *trial) {
		firstJobs, secondJobs := t.crowd(), t.crowd()
		transport := t.open()
		first := t.service(transport, func(c *core.Config) { c.Concurrency = 2 })
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, func(c *core.Config) { c.Concurrency = 2 })
		first.handle("job", firstJobs.handle)
		second.handle("job", secondJobs.handle)
		secondJobs.open()
		msgs := t.jobs(first.queue, 10)
		t.send(transport, msgs...)
		first.run()
		t.reach("of 10 messages, handlers of the first instance at the same time", 2, firstJobs.running)
		first.Pause()
		second.run()
		begun := 2
		if t.caps.CountsReleases { // the first instance handles its prefetched messages
			firstJobs.open()
			t.reach("while the first instance is paused, messages that are handled", len(msgs), func() int { return firstJobs.messages() + secondJobs.messages() })
			t.await("a paused endpoint comes to rest", func() bool { return first.Health().InFlight == 0 })
			begun = firstJobs.messages()
		} else {
			t.reach("while the first instance is paused with 2 messages in its handlers, messages that the second instance handles", 8, secondJobs.messages)
			firstJobs.pass(2)
		}
		second.Pause()
		t.await("a paused endpoint comes to rest", func() bool { return second.Health().InFlight == 0 })
		handled := func() int { return firstJobs.messages() + secondJobs.messages() }
		send := func(bodies ...string) {
			more := t.jobs(first.queue, len(bodies))
			for i := range more {
				more[i].Body = []byte(bodies[i])
			}
			msgs = append(msgs, more...)
			t.send(transport, more...)
		}
		if t.caps.CountsReleases {
			t.await("soon after the pause, paused endpoints fetch nothing", func() bool {
				before := handled()
				send(fmt.Sprintf("probe %d", len(msgs)))
				t.rest(t.quiet())
				return handled() == before
			})
			begun = firstJobs.messages()
		}
		before := handled()
		send("more 1", "more 2", "more 3")
		t.steady("the number of messages begun by instances that are paused", before, handled)
		if !t.caps.CountsReleases {
			firstJobs.open()
		}
		first.Resume()
		t.reach("after Resume, messages that the first instance has begun", begun+len(msgs)-before, firstJobs.messages)
		first.end()
		second.end()
		t.once(msgs, firstJobs, secondJobs)
		t.left(first.queue, "after all was handled")
		t.left(first.errorQueue, "after all was handled")
	}},
	{rule: "C16", title: "two instances of an endpoint share its messages, each handled once", run: func(t *trial) {
		transport := t.open()
		firstJobs, secondJobs := t.crowd(), t.crowd()
		first := t.service(transport, func(c *core.Config) { c.Concurrency = 4 })
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, func(c *core.Config) { c.Concurrency = 4 })
		first.handle("job", firstJobs.handle)
		second.handle("job", secondJobs.handle)
		first.run()
		second.run()
		msgs := t.jobs(first.queue, 100)
		t.send(transport, msgs[:40]...)
		both := func(count func(c *crowd) int) func() int {
			return func() int { return count(firstJobs) + count(secondJobs) }
		}
		t.reach("handlers of two instances with 4 places each, at the same time", 8, both((*crowd).running))
		firstJobs.open()
		secondJobs.open()
		for part := range slices.Chunk(msgs[40:], 10) {
			t.send(transport, part...)
		}
		t.reach("messages handled by two instances together", 100, both((*crowd).messages))
		first.end()
		second.end()
		t.once(msgs, firstJobs, secondJobs)
		t.left(first.queue, "after all was handled")
		t.left(first.errorQueue, "after all was handled")
	}},
}

var stopCases = []testCase{
	{rule: "C14", title: "an endpoint that runs again gets what was sent meanwhile", run: func(t *trial) {
		jobs := t.crowd()
		jobs.open()
		transport := t.open()
		s := t.service(transport, nil)
		s.handle("job", jobs.handle)
		msgs := t.jobs(s.queue, 7)
		t.send(transport, msgs[0])
		s.run()
		t.reach("messages handled in the first run", 1, jobs.messages)
		s.end()
		t.send(transport, msgs[1:4]...)
		t.steady("the number of messages handled by an endpoint that is stopped", 1, jobs.messages)
		s.run()
		t.reach("messages handled when it runs again", 4, jobs.messages)
		t.send(transport, msgs[4:]...)
		t.reach("messages handled that were sent while it runs again", 7, jobs.messages)
		s.end()
		t.once(msgs, jobs)
		t.left(s.queue, "after all was handled")
	}},
	{rule: "R27", title: "stopping waits for the handlers under way, and settles their messages", run: func(t *trial) {
		jobs := t.crowd()
		transport := t.open()
		out := t.queue(transport)
		s := t.service(transport, func(c *core.Config) { c.Concurrency, c.DrainTimeout = 3, 2*t.patience() })
		var cut tally
		s.handle("job", func(ctx context.Context, m *core.Message) error {
			err := jobs.handle(ctx, m)
			if ctx.Err() != nil {
				cut.add(m.ID)
			}
			if err != nil {
				return err
			}
			return m.Send(out, "done", m.RawBody())
		})
		s.run()
		msgs := t.jobs(s.queue, 2)
		t.send(transport, msgs...)
		t.reach("handlers at the same time", 2, jobs.running)
		s.endRun()
		t.steady("the number of handlers after Run's context was cancelled", 2, jobs.running)
		if s.hasEnded() {
			t.fail("Run returns after its handlers, for which it waits DrainTimeout", "it returned %v while two handlers run", s.ended())
		}
		jobs.open()
		s.end()
		if n := cut.total(); n > 0 {
			t.fail("handlers' contexts go on for DrainTimeout after Run's context ended", "%d were cancelled", n)
		}
		t.once(msgs, jobs)
		t.left(out, "what the handlers sent that ended during the drain", "job 0", "job 1")
		t.left(s.queue, "after what was handled during the drain")
		t.left(s.errorQueue, "after what was handled during the drain")
	}},
	{rule: "R27", title: "what was not started is free for others while a handler is waited for", in: givingBack, run: func(t *trial) {
		firstJobs, secondJobs := t.crowd(), t.crowd()
		transport := t.open()
		first := t.service(transport, func(c *core.Config) { c.Concurrency, c.DrainTimeout = 2, 2*t.patience() })
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, nil)
		first.handle("job", firstJobs.handle)
		second.handle("job", secondJobs.handle)
		secondJobs.open()
		msgs := t.jobs(first.queue, 12)
		t.send(transport, msgs...)
		first.run()
		t.reach("of 12 messages, handlers of the first instance at the same time", 2, firstJobs.running)
		first.endRun()
		second.run()
		t.reach("while the first instance stops with 2 messages in its handlers, messages that the second instance handles", 10, secondJobs.messages)
		firstJobs.open()
		first.end()
		second.end()
		t.once(msgs, firstJobs, secondJobs)
		t.left(first.queue, "after all was handled")
		t.left(first.errorQueue, "after all was handled")
	}},
	{rule: "R27", title: "a handler that is cut off after DrainTimeout leaves its message with the count it had", in: givingBack, run: func(t *trial) {
		transport := t.open()
		jobs := t.crowd()
		drain := 2 * t.quiet()
		s := t.service(transport, func(c *core.Config) { c.Concurrency, c.DrainTimeout = 3, drain })
		var mu sync.Mutex
		var cut time.Time
		s.handle("job", func(ctx context.Context, m *core.Message) error {
			err := jobs.handle(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			cut = time.Now()
			return err
		})
		s.run()
		t.send(transport, t.jobs(s.queue, 3)...)
		t.reach("handlers at the same time", 3, jobs.running)
		began := time.Now()
		s.end()
		mu.Lock()
		took := cut.Sub(began)
		mu.Unlock()
		if took < drain {
			t.fail("handlers' contexts are cancelled DrainTimeout after Run's, "+drain.String(), "after %v", took)
		}
		t.left(s.errorQueue, "after handlers were cut off, which is no failure of theirs")
		for _, in := range t.left(s.queue, "what was cut off is given back", "job 0", "job 1", "job 2") {
			if in.DeliveryCount != 1 && !t.caps.CountsReleases {
				t.fail("what was given back by a shutdown has not failed: it is delivered with count 1 again", "%q has count %d", in.Body, in.DeliveryCount)
			}
		}
	}},
	{rule: "R27", title: "a failure that is being decided when the endpoint is cut off is decided again", in: givingBack, run: func(t *trial) {
		const byPolicy, byHandleFailed = "job 0", "job 1" // the messages cut off in the policy and in HandleFailed
		transport := t.open()
		out := t.queue(transport)
		var policies, resorts, counted tally
		deciding := make(chan struct{}, 2)
		cutOff := func(ctx context.Context) error {
			deciding <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		s := t.service(transport, func(c *core.Config) {
			c.DrainTimeout = t.quiet()
			c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, f core.ErrorContext) core.Action {
				if policies.add(string(f.Body)) == 1 && string(f.Body) == byPolicy && cutOff(ctx) != nil {
					return core.Action{}
				}
				return core.DefaultPolicy(ctx, config, f)
			}
		})
		s.handle("job", func(_ context.Context, m *core.Message) error {
			if m.Attempt > 1 {
				counted.add(string(m.RawBody()))
			}
			return errHandler
		})
		core.HandleFailed(s.Endpoint, "job", func(ctx context.Context, m *core.TypedMessage[[]byte], _ *core.Failed) error {
			if err := m.Send(out, "report", m.Body); err != nil {
				return err
			}
			if resorts.add(string(m.Body)) == 1 && string(m.Body) == byHandleFailed {
				return cutOff(ctx)
			}
			return nil
		})
		s.run()
		t.send(transport, t.jobs(s.queue, 2)...)
		t.receives(deciding, "a policy or HandleFailed is asked about a message that failed")
		t.receives(deciding, "a policy or HandleFailed is asked about a message that failed")
		s.end()
		t.left(s.errorQueue, "after policy and HandleFailed were cut off before they decided")
		t.left(out, "what a HandleFailed sent that was cut off")
		s.run()
		t.reach("runs of HandleFailed, of which one was cut off", 3, resorts.total)
		t.await("both messages are moved", func() bool { return s.Health().InFlight == 0 })
		s.end()
		if n := counted.counts(); len(n) > 0 && !t.caps.CountsReleases && !t.caps.MayDuplicate {
			t.fail("what was given back by a shutdown is delivered with count 1 again", "with a higher one: %s", listed(n))
		}
		t.left(s.errorQueue, "after the failures were decided in the next run", byPolicy, byHandleFailed)
		t.left(out, "what HandleFailed sends leaves once", byPolicy, byHandleFailed)
		t.left(s.queue, "after all failures were decided")
	}},
}

var renewalCases = []testCase{
	{rule: "C17", title: "a handler that takes longer than the lock keeps its message", in: givingBack, needs: []need{locks}, shortLocks: true, run: func(t *trial) {
		jobs := t.crowd()
		transport := t.open()
		first := t.service(transport, nil)
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, nil)
		for _, s := range []*service{first, second} {
			s.handle("job", func(ctx context.Context, m *core.Message) error {
				jobs.enter(string(m.RawBody()))
				defer jobs.leave()
				select {
				case <-time.After(t.lock() * 5 / 2):
				case <-t.ctx.Done():
				}
				if err := ctx.Err(); err != nil {
					t.fail("the lock of a message is renewed while its handler runs", "the handler's context ended: %v", context.Cause(ctx))
				}
				return nil
			})
			s.run()
		}
		msgs := t.jobs(first.queue, 3)
		t.send(transport, msgs...)
		t.reach("handlers at the same time", 3, jobs.running)
		t.rest(t.lock() * 2)
		t.await("handlers that take 2.5 times the lock have ended", func() bool { return jobs.running() == 0 })
		first.end()
		second.end()
		t.once(msgs, jobs)
		t.left(first.queue, "after all was handled")
		t.left(first.errorQueue, "after all was handled")
	}},
	{rule: "C17", title: "what waits behind a slow handler is not lost to its lock", in: givingBack, needs: []need{locks}, shortLocks: true, run: func(t *trial) {
		jobs := t.crowd()
		transport := t.open()
		s := t.service(transport, func(c *core.Config) { c.Concurrency = 2 })
		s.handle("job", func(ctx context.Context, m *core.Message) error {
			if jobs.messages() < 20 { // with quick handlers, the endpoint prefetches if it may
				jobs.enter(string(m.RawBody()))
				jobs.leave()
				return nil
			}
			return jobs.handle(ctx, m)
		})
		s.run()
		msgs := t.jobs(s.queue, 32)
		t.send(transport, msgs...)
		t.reach("messages begun, of which the last two are slow", 22, jobs.messages)
		t.rest(t.lock() * 3 / 2)
		jobs.open()
		t.reach("messages begun when the slow ones have ended, which took 1.5 times the lock", 32, jobs.messages)
		s.end()
		t.once(msgs, jobs)
		t.left(s.queue, "after all was handled")
		t.left(s.errorQueue, "after all was handled")
	}},
}
