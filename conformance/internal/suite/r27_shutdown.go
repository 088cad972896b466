package suite

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

var shutdownCases = []testCase{
	{rule: "R27", title: "a stopping endpoint waits for the running handlers, and settles their messages", run: func(t *caseT) {
		jobs := t.blockingHandler()
		transport := t.open()
		out := t.queue(transport)
		s := t.service(transport, func(c *core.Config) { c.Concurrency, c.DrainTimeout = 3, 2*t.timeout() })
		var cut counter
		s.handle("job", func(ctx context.Context, m *core.Message) error {
			err := jobs.handle(ctx, m)
			if ctx.Err() != nil {
				cut.add(m.ID)
			}
			if err != nil {
				return err
			}
			return m.Send(out, doneType.Of(m.RawBody()))
		})
		s.run()
		msgs := t.jobs(s.queue, 2)
		t.send(transport, msgs...)
		t.awaitCount("handlers at the same time", 2, jobs.running)
		s.endRun()
		t.wantSteady("the number of handlers after Run's context was cancelled", 2, jobs.running)
		if s.hasEnded() {
			t.fail("Run returns after its handlers, for which it waits DrainTimeout", "it returned %v while two handlers run", s.ended())
		}
		jobs.releaseAll()
		s.end()
		if n := cut.total(); n > 0 {
			t.fail("handlers' contexts go on for DrainTimeout after Run's context ended", "%d were cancelled", n)
		}
		t.wantOnce(msgs, jobs)
		t.wantLeft(out, "the messages of the handlers that ended during the drain", "job 0", "job 1")
		t.wantLeft(s.queue, "after the messages that were handled during the drain")
		t.wantLeft(s.errorQueue, "after the messages that were handled during the drain")
	}},
	{rule: "R27", title: "a stopping endpoint releases the messages that it has not started", modes: withRedelivery, run: func(t *caseT) {
		firstJobs, secondJobs := t.blockingHandler(), t.blockingHandler()
		transport := t.open()
		first := t.service(transport, func(c *core.Config) { c.Concurrency, c.DrainTimeout = 2, 2*t.timeout() })
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, nil)
		first.handle("job", firstJobs.handle)
		second.handle("job", secondJobs.handle)
		secondJobs.releaseAll()
		msgs := t.jobs(first.queue, 12)
		t.send(transport, msgs...)
		first.run()
		t.awaitCount("of 12 messages, handlers of the first instance at the same time", 2, firstJobs.running)
		first.endRun()
		second.run()
		t.awaitCount("while the first instance stops with 2 messages in its handlers, messages that the second instance handles", 10, secondJobs.messages)
		firstJobs.releaseAll()
		first.end()
		second.end()
		t.wantOnce(msgs, firstJobs, secondJobs)
		t.wantLeft(first.queue, "after all was handled")
		t.wantLeft(first.errorQueue, "after all was handled")
	}},
	{rule: "R27", title: "a message whose handler is stopped after DrainTimeout keeps its delivery count", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		jobs := t.blockingHandler()
		drain := 2 * t.quietPeriod()
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
		t.awaitCount("handlers at the same time", 3, jobs.running)
		began := time.Now()
		s.end()
		mu.Lock()
		took := cut.Sub(began)
		mu.Unlock()
		if took < drain {
			t.fail("handlers' contexts are cancelled DrainTimeout after Run's, "+drain.String(), "after %v", took)
		}
		t.wantLeft(s.errorQueue, "after handlers were cut off, which is no failure of theirs")
		for _, in := range t.wantLeft(s.queue, "an interrupted message is released", "job 0", "job 1", "job 2") {
			if in.DeliveryCount != 1 && !t.caps.CountsReleases {
				t.fail("a message that was released by a shutdown has not failed: it is redelivered with count 1", "%q has count %d", in.Body, in.DeliveryCount)
			}
		}
	}},
	{rule: "R27", title: "a failure whose decision is interrupted by the shutdown is decided again", modes: withRedelivery, run: func(t *caseT) {
		const byPolicy, byHandleFailed = "job 0", "job 1" // the messages cut off in the policy and in HandleFailed
		transport := t.open()
		out := t.queue(transport)
		var policies, resorts, counted counter
		deciding := make(chan struct{}, 2)
		cutOff := func(ctx context.Context) error {
			deciding <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		s := t.service(transport, func(c *core.Config) {
			c.DrainTimeout = t.quietPeriod()
			c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				if body := string(f.Message.RawBody()); policies.add(body) == 1 && body == byPolicy && cutOff(ctx) != nil {
					return core.Action{}, nil
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
		core.HandleFailed(s.Endpoint, jobType, func(ctx context.Context, m *core.Message, body []byte, _ *core.Failed) error {
			if err := m.Send(out, reportType.Of(body)); err != nil {
				return err
			}
			if resorts.add(string(body)) == 1 && string(body) == byHandleFailed {
				return cutOff(ctx)
			}
			return nil
		})
		s.run()
		t.send(transport, t.jobs(s.queue, 2)...)
		t.awaitSignal(deciding, "a policy or HandleFailed is asked about a message that failed")
		t.awaitSignal(deciding, "a policy or HandleFailed is asked about a message that failed")
		s.end()
		t.wantLeft(s.errorQueue, "after policy and HandleFailed were cut off before they decided")
		t.wantLeft(out, "the messages of an interrupted HandleFailed")
		s.run()
		t.awaitCount("runs of HandleFailed, of which one was cut off", 3, resorts.total)
		t.await("both messages are moved", func() bool { return s.Health().InFlight == 0 })
		s.end()
		if n := counted.counts(); len(n) > 0 && !t.caps.CountsReleases && !t.caps.MayDuplicate {
			t.fail("a message that was released by a shutdown is redelivered with count 1", "with a higher one: %s", listed(n))
		}
		t.wantLeft(s.errorQueue, "after the failures were decided in the next run", byPolicy, byHandleFailed)
		t.wantLeft(out, "the messages of HandleFailed are sent once", byPolicy, byHandleFailed)
		t.wantLeft(s.queue, "after all failures were decided")
	}},
	{rule: "R27", title: "a retry that the shutdown interrupts keeps its attempt count", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		var seen attempts
		started, done := make(chan struct{}, endless), make(chan struct{}, endless)
		s := t.service(transport, func(c *core.Config) {
			c.DrainTimeout = 20 * time.Millisecond
			c.Recoverability.Immediate = core.Immediate{NumberOfRetries: 3}
		})
		s.handle("order", func(ctx context.Context, m *core.Message) error {
			switch seen.add(m) {
			case 1:
				return errHandler // so that there is a count to keep
			case 2:
				started <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			default:
				done <- struct{}{}
				return nil
			}
		})
		s.run()
		t.send(transport, t.command(s.queue, "order", "m1"))
		t.awaitSignal(started, "an abandoned message is delivered again")
		s.end()
		s.run()
		t.awaitSignal(done, "a message that was released at the shutdown is delivered to the next Run")
		s.wantDrained("after the next Run handled the message")
		t.wantAttempts(&seen, "m1", 3)
		t.wantLeft(s.errorQueue, "after the next Run handled the message")
		third := seen.forBody("m1")[2].number
		switch {
		case t.caps.NativeDeliveryCount && !t.caps.CountsReleases && third != 2:
			t.fail("after the release, the DeliveryCount is that of the attempt which was cut off, 2", "%d", third)
		case t.caps.NativeDeliveryCount && third < 2:
			t.fail("after the release, the DeliveryCount is at least that of the attempt which was cut off, 2", "%d", third)
		case third < 1 || third > 2 && !t.caps.CountsReleases:
			t.fail("after the release, the DeliveryCount is 2, or 1 where the next receiver begins to count again", "%d", third)
		}
	}},
}
