package suite

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// rateLimitedEndpoint makes an endpoint that attempts one message at a time after this
// number of consecutive failures. A message is retried immediately up to ten times;
// every broker has to allow more.
func (t *caseT) rateLimitedEndpoint(transport core.Transport, failures int, wait time.Duration) *service {
	return t.service(transport, func(c *core.Config) {
		c.Concurrency = 4
		c.Recoverability.Immediate = t.immediate(10)
		c.Recoverability.RateLimit = core.RateLimit{ConsecutiveFailures: failures, TimeToWait: wait}
	})
}

// rateLimitAttempt is one attempt of a rate-limited endpoint.
type rateLimitAttempt struct{ began, ended time.Time }

// rateLimitAttempts is a blockingHandler in which every attempt fails while it is down.
type rateLimitAttempts struct {
	*blockingHandler
	down atomic.Bool
	good counter

	mu  sync.Mutex
	all []rateLimitAttempt
}

func (t *caseT) rateLimitAttempts() *rateLimitAttempts {
	p := &rateLimitAttempts{blockingHandler: t.blockingHandler()}
	p.down.Store(true)
	return p
}

func (p *rateLimitAttempts) handle(ctx context.Context, m *core.Message) error {
	if !p.down.Load() {
		err := p.blockingHandler.handle(ctx, m)
		if err == nil {
			p.good.add(string(m.RawBody()))
		}
		return err
	}
	began := time.Now()
	n := p.enter(string(m.RawBody()))
	defer p.leave()
	// Concurrent attempts would be noticed in this time. The durations differ so that
	// prefetched messages exist when the endpoint switches.
	p.t.sleep(time.Duration(10+2*(p.messages()%5)) * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, rateLimitAttempt{began, time.Now()})
	if n > endless {
		return nil
	}
	return errHandler
}

// failed returns the failed attempts.
func (p *rateLimitAttempts) failed() []rateLimitAttempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]rateLimitAttempt(nil), p.all...)
}

// resting waits until the endpoint is rate-limited and runs no handler.
func (p *rateLimitAttempts) resting(s *service) {
	p.t.await("after several failures in a row the endpoint is rate-limited, and attempts nothing for a while", func() bool {
		return s.Health().RateLimited && p.running() == 0 && s.Health().InFlight == 0
	})
}

var rateLimitCases = []testCase{
	{rule: "R40", title: "the immediate retries of one message begin rate limiting, and its success ends it", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		s := t.rateLimitedEndpoint(transport, 3, 200*time.Millisecond)
		seen := &attempts{}
		s.handle("job", func(_ context.Context, m *core.Message) error {
			if seen.add(m) <= 4 {
				return errHandler
			}
			return nil
		})
		s.run()
		t.send(transport, t.command(s.queue, "job", "fails four times"))
		t.await("three failures of one message begin rate limiting", func() bool { return s.Health().RateLimited })
		t.await("a success ends rate limiting", func() bool { return !s.Health().RateLimited })
		s.end()
		t.wantAttempts(seen, "fails four times", 5)
		t.wantLeft(s.queue, "after the message was handled")
		t.wantLeft(s.errorQueue, "after the message was handled")
	}},
	{rule: "R41", title: "a rate-limited endpoint attempts one message at a time, with pauses", modes: withRedelivery, run: func(t *caseT) {
		const wait = 400 * time.Millisecond
		transport := t.open()
		s := t.rateLimitedEndpoint(transport, 4, wait)
		jobs := t.rateLimitAttempts()
		s.handle("job", jobs.handle)
		msgs := t.jobs(s.queue, 12)
		t.send(transport, msgs...)
		s.run()
		jobs.resting(s)
		jobs.maxConcurrent()
		before := len(jobs.failed())
		t.awaitCount("attempts of a rate-limited endpoint", before+4, func() int { return len(jobs.failed()) })
		if highest := jobs.maxConcurrent(); highest > 1 {
			t.fail("a rate-limited endpoint attempts one message at a time", "%d at the same time", highest)
		}
		all := jobs.failed()
		// An attempt that had begun before the switch may have ended just before the
		// first one.
		for i := before + 1; i < len(all); i++ {
			if pause := all[i].began.Sub(all[i-1].ended); pause < wait {
				t.fail(fmt.Sprintf("between two attempts of a rate-limited endpoint nothing is attempted for %v", wait), "%v", pause)
			}
		}
		jobs.down.Store(false)
		jobs.releaseAll()
		t.await("rate limiting ends with a success", func() bool { return !s.Health().RateLimited })
		s.end()
		t.wantContents(s.errorQueue, "no message fails for good", nil, nil)
	}},
	{rule: "R41", title: "a rate-limited endpoint that waits releases its messages to other instances", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		// The limit is lower than the number of failures allowed for one message: one
		// message may cause all of them, while the other slots wait for their
		// connections.
		first := t.rateLimitedEndpoint(transport, 8, 10*t.timeout())
		failing := t.rateLimitAttempts()
		first.handle("job", failing.handle)
		msgs := t.jobs(first.queue, 40)
		t.send(transport, msgs...)
		first.run()
		failing.resting(first)
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, func(c *core.Config) { c.Recoverability.Immediate = t.immediate(10) })
		good := t.blockingHandler()
		good.releaseAll()
		second.handle("job", func(ctx context.Context, m *core.Message) error {
			want := 1
			if t.caps.NativeDeliveryCount {
				want += failing.calls(string(m.RawBody()))
			}
			// With such a long wait the endpoint gives messages back also where that is
			// counted.
			if m.Attempt < want || m.Attempt > want && !t.caps.CountsReleases && !t.caps.MayDuplicate {
				t.fail(fmt.Sprintf("a message that a rate-limited endpoint released without an attempt has not failed: this is attempt %d", want), "attempt %d of %q", m.Attempt, m.RawBody())
			}
			return good.handle(ctx, m)
		})
		second.run()
		t.awaitCount("while one instance is rate-limited, messages that another one handles", len(msgs), good.messages)
		second.end()
		first.end()
		t.wantOnce(msgs, good)
		t.wantLeft(first.queue, "after another instance handled all")
		t.wantLeft(first.errorQueue, "after another instance handled all")
	}},
	{rule: "R42", title: "one success restores the full concurrency", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		s := t.rateLimitedEndpoint(transport, 4, 400*time.Millisecond)
		jobs := t.rateLimitAttempts()
		s.handle("job", jobs.handle)
		msgs := t.jobs(s.queue, 12)
		t.send(transport, msgs...)
		s.run()
		jobs.resting(s)
		jobs.down.Store(false)
		t.awaitCount("attempts of a rate-limited endpoint at the same time", 1, jobs.running)
		t.wantSteady("the number of attempts before the first has succeeded", 1, jobs.running)
		jobs.release(1)
		t.awaitCount("handlers at the same time after one success", 4, jobs.running)
		jobs.releaseAll()
		t.awaitCount("messages handled", len(msgs), jobs.good.total)
		s.end()
		if s.Health().RateLimited {
			t.fail("Endpoint.Health no longer says RateLimited after a success", "it does")
		}
		t.wantLeft(s.queue, "after all was handled")
		t.wantLeft(s.errorQueue, "after all was handled")
	}},
	{rule: "R45", title: "no message is lost, duplicated or counted when rate limiting begins and ends many times", slow: true, run: func(t *caseT) {
		transport := t.open()
		out := t.queue(transport)
		var switches atomic.Int64
		s := t.service(transport, func(c *core.Config) {
			c.Concurrency = 8
			c.Recoverability.Immediate = t.immediate(10)
			c.Recoverability.RateLimit = core.RateLimit{ConsecutiveFailures: 2, TimeToWait: 20 * time.Millisecond}
			c.Observers = append(c.Observers, core.Observer{RateLimitChanged: func(_ context.Context, _ *core.Endpoint, limited bool) {
				if limited {
					switches.Add(1)
				}
			}})
		})
		seen := &attempts{}
		failures := map[string]int{}
		msgs := t.jobs(s.queue, 60)
		var good, bad []string
		for _, m := range msgs {
			n := t.random.IntN(3)
			failures[string(m.Body)] = n
			if n > 0 && t.mode == core.TransactionNone {
				bad = append(bad, string(m.Body))
			} else {
				good = append(good, string(m.Body))
			}
		}
		s.handle("job", func(_ context.Context, m *core.Message) error {
			n := seen.add(m)
			if m.Attempt != n && !t.caps.MayDuplicate {
				t.fail(fmt.Sprintf("attempt %d of a message has the number %d: switching counts nothing", n, n), "%d", m.Attempt)
			}
			t.sleep(time.Millisecond)
			if n <= failures[string(m.RawBody())] {
				return errHandler
			}
			return m.Send(out, doneType.Of(m.RawBody()))
		})
		s.run()
		t.send(transport, msgs...)
		t.wantLeft(out, "the messages of the handlers that succeeded in the end", good...)
		t.wantLeft(s.errorQueue, "the messages that cannot be retried", bad...)
		s.end()
		for _, m := range msgs {
			want := 1 + failures[string(m.Body)]
			if t.mode == core.TransactionNone {
				want = 1
			}
			if n := len(seen.forBody(string(m.Body))); !t.attemptsFit(n, want) {
				t.fail(fmt.Sprintf("%q is attempted %d times", m.Body, want), "%d times", n)
			}
		}
		t.wantLeft(s.queue, "after all was handled")
		t.note("rate limiting began %d times", switches.Load())
	}},
}
