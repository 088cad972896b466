package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

var verdictCases = slices.Concat(judgementCases, deferralCases, unacceptableCases, fallbackCases)

// retried turns on all retries that the transport can make, so that the case shows that a
// verdict causes none.
func (t *trial) retried(c *core.Config) {
	if t.mode != core.TransactionNone {
		c.Recoverability.Immediate = core.Immediate{Retries: 3}
	}
	if t.canDelay() {
		c.Recoverability.Delayed = core.Delayed{Retries: 2, Increase: t.delay()}
	}
}

// answered runs an endpoint whose handler returns the verdict for the message "judged"
// and succeeds for the message "after". It waits until both were handled, and returns the
// endpoint and the attempts.
func (t *trial) answered(transport core.Transport, verdict error, change func(c *core.Config)) (*service, *attempts) {
	seen := &attempts{}
	s := t.service(transport, func(c *core.Config) {
		t.retried(c)
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
	t.reach("messages handled, one with a verdict and one after it", 2, func() int {
		return min(1, len(seen.of("judged"))) + min(1, len(seen.of("after")))
	})
	return s, seen
}

var judgementCases = []testCase{
	{rule: "R7", title: "a message that its handler discards is gone", run: func(t *trial) {
		transport := t.open()
		audit := t.queue(transport)
		s, seen := t.answered(transport, fmt.Errorf("wrapped: %w", core.Discard("the case wants it")), func(c *core.Config) { c.AuditQueue = audit })
		t.left(audit, "the copies of what was handled, which a discarded message is not", "after")
		s.end()
		t.attempted(seen, "judged", 1)
		t.left(s.queue, "after a message was discarded and another handled")
		t.left(s.errorQueue, "after a message was discarded and another handled")
	}},
	{rule: "R7", title: "a handler moves its message to a queue that it names", run: func(t *trial) {
		transport := t.open()
		custom := t.queue(transport)
		s, seen := t.answered(transport, core.MoveTo(errors.New("it belongs elsewhere"), custom), nil)
		for _, in := range t.left(custom, "what its handler moved there", "judged") {
			t.failedHeaders(in, "it belongs elsewhere")
		}
		s.end()
		t.attempted(seen, "judged", 1)
		t.left(s.queue, "after a message was moved and another handled")
		t.left(s.errorQueue, "after a message was moved to another queue")
	}},
	{rule: "R7", title: "a message that its handler rejects goes to the error queue at once", run: func(t *trial) {
		transport := t.open()
		s, seen := t.answered(transport, core.Reject(errors.New("no good")), nil)
		t.failedHeaders(s.movedOne(), "no good")
		t.attempted(seen, "judged", 1)
	}},
	{rule: "R6", title: "a handler's verdict Unrecoverable is found through any wrapping", run: func(t *trial) {
		transport := t.open()
		s, seen := t.answered(transport, errors.Join(errors.New("beside it"), fmt.Errorf("around it: %w", core.Unrecoverable(errors.New("hopeless")))), nil)
		t.failedHeaders(s.movedOne(), "hopeless")
		t.attempted(seen, "judged", 1)
	}},
	{rule: "C22", title: "an endpoint that wants it rejects to the broker's own dead-letter queue", in: givingBack, needs: []need{deadLettering, deadLetterView}, run: func(t *trial) {
		transport := t.open()
		s, seen := t.answered(transport, core.Reject(errors.New("no good")), func(c *core.Config) { c.Recoverability.DeadLetter = core.DeadLettersRejected })
		var dead []DeadLetter
		t.await("the broker's own dead-letter queue gets what was rejected", func() bool {
			dead = append(dead, t.suite.h.DeadLetters(t, s.queue)...)
			return len(dead) > 0
		})
		s.end()
		dead = append(dead, t.suite.h.DeadLetters(t, s.queue)...)
		if d := dead[0]; len(dead) > 1 && !t.caps.MayDuplicate || string(d.Body) != "judged" || d.Reason != "Rejected" || !strings.Contains(d.Description, "no good") {
			t.fail(`the dead-letter queue has "judged" once, with the reason "Rejected" and the error "no good" as description`, "it has %s, the first with %q and %q", deadBodies(dead), d.Reason, d.Description)
		}
		t.attempted(seen, "judged", 1)
		t.left(s.queue, "after a message was dead-lettered and another handled")
		t.left(s.errorQueue, "after a message was dead-lettered instead")
	}},
	{rule: "R53", title: "middleware judges a message by its headers", run: func(t *trial) {
		transport := t.open()
		var seen tally
		s := t.service(transport, func(c *core.Config) {
			t.retried(c)
			c.Middleware = []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					seen.add("before")
					switch m.Headers.Get("Véto-By") {
					case "discard ✓":
						return core.Discard("the case wants it")
					case "":
						return next(ctx, m)
					default:
						return core.Reject(errors.New("vetoed"))
					}
				}
			}}
		})
		s.handle("job", func(context.Context, *core.Message) error {
			seen.add("handled")
			return nil
		})
		dropped, vetoed := t.command(s.queue, "job", "dropped"), t.command(s.queue, "job", "vetoed")
		dropped.Headers.Set("Véto-By", "discard ✓")
		vetoed.Headers.Set("Véto-By", "somebody")
		s.run()
		t.send(transport, dropped, vetoed, t.command(s.queue, "job", "good"))
		t.reach("messages that middleware sees", 3, func() int { return seen.of("before") })
		t.failedHeaders(s.movedOne(), "vetoed")
		if n := seen.of("handled"); n < 1 || n > 1 && !t.caps.MayDuplicate {
			t.fail("the one message on which middleware has no verdict is handled", "%d handled", n)
		}
	}},
}

// failedHeaders checks the headers of a failed message in the queue to which it was
// moved.
func (t *trial) failedHeaders(in *core.Incoming, cause string) {
	if got := in.Headers.Get(core.HeaderExceptionMessage); !strings.Contains(got, cause) {
		t.fail(fmt.Sprintf("a moved message has its error %q in the header %s", cause, core.HeaderExceptionMessage), "%q", got)
	}
	if in.Headers.Get(core.HeaderFailedQ) == "" {
		t.fail("a moved message has the address of its queue in the header "+core.HeaderFailedQ, "%q", in.Headers.Map())
	}
	for _, key := range []string{core.HeaderRetries, core.HeaderRetriesTimestamp, core.HeaderDeferrals} {
		if value, has := in.Headers.Lookup(key); has {
			t.fail("a moved message has no headers of retries: not "+key, "%q", value)
		}
	}
	if got := in.Headers.Get(core.HeaderMessageTypes); got != "job" {
		t.fail("a moved message has its own headers still, such as its type, \"job\"", "%q", got)
	}
}

var unacceptableCases = []testCase{
	{rule: "R50", title: "an endpoint stops at its limit of failed messages, and goes on when it runs again", run: func(t *trial) {
		transport := t.open()
		s := t.service(transport, func(c *core.Config) {
			c.Concurrency = 1
			c.Recoverability.UnacceptableMessageLimit = 6
		})
		s.handle("job", func(context.Context, *core.Message) error {
			t.rest(5 * time.Millisecond) // otherwise a fast transport delivers all messages before Run has ended
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
		after := t.arrive(s.errorQueue, "what was left when the endpoint had stopped, and failed when it ran again", n-len(before))
		s.end()
		for _, m := range msgs {
			same := func(in *core.Incoming) bool { return bytes.Equal(in.Body, m.Body) }
			if !slices.ContainsFunc(before, same) && after[string(m.Body)] == nil {
				t.fail("an endpoint that stops at its limit loses nothing", "%q is missing", m.Body)
			}
		}
		t.left(s.queue, "after all have failed")
	}},
	{rule: "R50", title: "a parked endpoint leaves the rest to other instances, and goes on after Resume", in: givingBack, run: func(t *trial) {
		transport := t.open()
		s := t.service(transport, func(c *core.Config) {
			c.Concurrency = 2
			c.Recoverability.UnacceptableMessageLimit = 6
			c.Recoverability.UnacceptableMessageAction = core.LimitPark
		})
		var failed atomic.Int64
		s.handle("job", func(context.Context, *core.Message) error {
			t.rest(5 * time.Millisecond) // otherwise a fast transport delivers all messages before the endpoint is parked
			failed.Add(1)
			return core.Unrecoverable(errHandler)
		})
		jobs := t.crowd()
		jobs.open()
		other := t.serviceOn(t.open(), s.queue, s.errorQueue, nil)
		other.handle("job", jobs.handle)
		const n = 30
		msgs := t.jobs(s.queue, n)
		t.send(transport, msgs...)
		s.run()
		t.await("after 6 messages were moved to the error queue, the endpoint is parked", func() bool { return s.Health().Parked != nil })
		t.await("a parked endpoint comes to rest", func() bool { return s.Health().InFlight == 0 })
		before := int(failed.Load())
		t.note("of %d messages %d failed before the endpoint was parked at its limit of 6", n, before)
		other.run()
		t.reach("while one instance is parked, messages that the other one handles", n-before, jobs.messages)
		other.end()
		moved := t.arrive(s.errorQueue, "what failed before the endpoint was parked", before)
		for _, m := range msgs {
			if moved[string(m.Body)] == nil && jobs.of(string(m.Body)) == 0 {
				t.fail("an endpoint that is parked at its limit loses nothing", "%q is missing", m.Body)
			}
		}
		t.send(transport, t.jobs(s.queue, 3)...)
		t.steady("messages that a parked endpoint has handled", before, func() int { return int(failed.Load()) })
		s.Resume()
		t.arrive(s.errorQueue, "what was sent to the parked endpoint, after Resume", 3)
		s.end()
		t.left(s.queue, "after all have failed or were handled")
	}},
}

var fallbackCases = []testCase{
	{rule: "R51", title: "HandleFailed takes a message over, and what it sends leaves", run: func(t *trial) {
		transport := t.open()
		out := t.queue(transport)
		s := t.lastResort(transport, func(m *core.Message, f *core.Failed) error {
			f.TakeOver()
			return errors.Join(m.Send(out, "done", []byte("apology")), m.Send(out, "done", []byte("report")))
		})
		t.left(out, "what HandleFailed sent when it took a message over", "apology", "report")
		s.end()
		s.ran(t)
		t.left(s.queue, "after HandleFailed took the only message over")
		t.left(s.errorQueue, "after HandleFailed took the only message over")
	}},
	{rule: "R51", title: "what HandleFailed sends leaves with the move", run: func(t *trial) {
		transport := t.open()
		out := t.queue(transport)
		s := t.lastResort(transport, func(m *core.Message, _ *core.Failed) error {
			return errors.Join(m.Send(out, "done", []byte("apology")), m.Send(out, "done", []byte("report")))
		})
		t.left(out, "what HandleFailed sent when it let a message go", "apology", "report")
		t.failedHeaders(s.movedOne(), "the handler failed")
		s.ran(t)
	}},
	{rule: "R51", title: "the move happens although HandleFailed fails, without what it sent", run: func(t *trial) {
		transport := t.open()
		out := t.queue(transport)
		s := t.lastResort(transport, func(m *core.Message, f *core.Failed) error {
			f.TakeOver()
			return errors.Join(m.Send(out, "done", []byte("apology")), errors.New("the last resort failed too"))
		})
		t.failedHeaders(s.movedOne(), "the handler failed")
		s.ran(t)
		t.left(out, "nothing of a HandleFailed that failed is sent")
	}},
	{rule: "R51", title: "the move happens although HandleFailed sends to a queue that does not exist", run: func(t *trial) {
		transport := t.open()
		missing := t.uniqueName()
		s := t.lastResort(transport, func(m *core.Message, _ *core.Failed) error {
			return m.Send(missing, "done", []byte("apology"))
		})
		t.failedHeaders(s.movedOne(), "the handler failed")
		s.ran(t)
	}},
}

// lastResort is an endpoint with HandleFailed.
type lastResort struct {
	*service
	handled, resorted atomic.Int64
	retries           int64
}

// lastResort runs an endpoint with HandleFailed in which a message fails.
func (t *trial) lastResort(transport core.Transport, resort func(m *core.Message, f *core.Failed) error) *lastResort {
	l := &lastResort{}
	l.service = t.service(transport, func(c *core.Config) {
		if t.mode != core.TransactionNone {
			l.retries = 1
			c.Recoverability.Immediate = core.Immediate{Retries: 1}
		}
	})
	l.handle("job", func(context.Context, *core.Message) error {
		if l.handled.Add(1) > endless {
			return nil
		}
		return errHandler
	})
	core.HandleFailed(l.Endpoint, "job", func(_ context.Context, m *core.TypedMessage[[]byte], f *core.Failed) error {
		l.resorted.Add(1)
		return resort(m.Message, f)
	})
	l.run()
	t.send(transport, t.command(l.queue, "job", "fails"))
	return l
}

// ran checks the number of handler calls.
func (l *lastResort) ran(t *trial) {
	if n := l.handled.Load(); !t.attemptsFit(int(n), int(l.retries)+1) {
		t.fail(fmt.Sprintf("the handler runs %d times", l.retries+1), "%d times", n)
	}
	if n := l.resorted.Load(); !t.attemptsFit(int(n), 1) {
		t.fail("HandleFailed runs once", "%d times", n)
	}
}
