package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// exactCountCases count every attempt of many messages: first quick ones, so that the
// endpoint prefetches as much as it may, then failing ones mixed with slow ones, so that
// it learns to fetch less. No process ends and no connection breaks, so the number of
// attempts is the configured one, however the broker counts deliveries.
var exactCountCases = []testCase{
	{rule: "R1", title: "quick, failing and slow messages are each attempted exactly as often as configured", modes: withRedelivery, slow: true, run: func(t *caseT) {
		t.countsExactly(exactCountConfig{quick: t.many(2000, 400), failing: t.many(1000, 160), slow: 24, instances: 1})
	}},
	{rule: "R1", title: "three instances attempt each message exactly as often as configured", modes: withRedelivery, slow: true, run: func(t *caseT) {
		t.countsExactly(exactCountConfig{quick: 200, failing: 80, slow: 12, instances: 3})
	}},
	{rule: "R1", title: "each message is attempted exactly as often as configured while the concurrency changes", modes: withRedelivery, slow: true, run: func(t *caseT) {
		limits := []int{1, 16, 3, 32, 2, 8}
		t.countsExactly(exactCountConfig{quick: 200, failing: 80, slow: 12, instances: 1, every: 20, interfere: func(n int, s *service) {
			if err := s.SetConcurrency(limits[n%len(limits)]); err != nil {
				t.fail("Endpoint.SetConcurrency takes a number above 0", "%v", err)
			}
		}})
	}},
	{rule: "R1", title: "each message is attempted exactly as often as configured while the endpoint is paused and resumed", modes: withRedelivery, slow: true, run: func(t *caseT) {
		t.countsExactly(exactCountConfig{quick: 200, failing: 80, slow: 12, instances: 1, every: 60, interfere: func(_ int, s *service) {
			s.Pause()
			t.sleep(20 * time.Millisecond)
			s.Resume()
		}})
	}},
	{rule: "R1", title: "each message is attempted exactly as often as configured while rate limiting begins and ends", modes: withRedelivery, slow: true, run: func(t *caseT) {
		var began, ended atomic.Int64
		t.countsExactly(exactCountConfig{quick: 200, failing: 40, slow: 12, instances: 1, change: func(c *core.Config) {
			c.Recoverability.RateLimit = core.RateLimit{ConsecutiveFailures: 4, TimeToWait: 5 * time.Millisecond}
			c.Observers = append(c.Observers, core.Observer{RateLimitChanged: func(_ context.Context, _ *core.Endpoint, limited bool) {
				if limited {
					began.Add(1)
				} else {
					ended.Add(1)
				}
			}})
		}})
		if began.Load() == 0 || ended.Load() == 0 {
			t.fail("four failures in a row begin rate limiting, and a success ends it", "it began %d times and ended %d times", began.Load(), ended.Load())
		}
	}},
	{rule: "R1", title: "a change of the concurrency while a failed message is sent on costs no attempt", modes: withRedelivery, run: func(t *caseT) {
		const messages = 20
		transport := t.open()
		var seen attempts
		var s *service
		var changes atomic.Int64
		queue, errorQueue := t.queue(transport), t.queue(transport)
		// Each move and each delayed retry begins and ends with a change.
		set := func(n int) {
			if err := s.SetConcurrency(n); err != nil {
				t.fail("Endpoint.SetConcurrency takes a number above 0", "%v", err)
			}
		}
		meddling := &faultTransport{Transport: transport, send: func(ctx context.Context, _ []core.Outgoing, next func(context.Context) error) error {
			set(1 + int(changes.Add(1))%4)
			err := next(ctx)
			set(8)
			return err
		}}
		s = t.serviceOn(meddling, queue, errorQueue, func(c *core.Config) {
			c.Concurrency = 8
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(exactImmediate), t.delayed(exactDelayed)
		})
		s.handle("job", seen.fail)
		msgs := t.jobs(queue, messages)
		t.send(transport, msgs...)
		s.run()
		moved := s.wantMoved(messages)
		want := exactImmediate + 1
		if t.canDelay() {
			want *= exactDelayed + 1
		}
		for _, m := range msgs {
			t.wantAttempts(&seen, string(m.Body), want)
			if in := moved[string(m.Body)]; in != nil {
				t.wantFailedWith(in, m)
			}
		}
		if changes.Load() < messages {
			t.fail("each failed message is sent with Send or a settlement", "%d sends of %d failed messages", changes.Load(), messages)
		}
		s.wantDrained("after all failed messages were sent on")
	}},
}

// exactCountConfig configures a case of exactCountCases.
type exactCountConfig struct {
	quick, failing, slow int // messages
	instances            int
	change               func(c *core.Config)

	// interfere is called in a goroutine beside the handlers, once after every `every`
	// attempts.
	every     int
	interfere func(n int, s *service)
}

const (
	exactImmediate = 1
	exactDelayed   = 1
	// exactlySlow is long enough to make an endpoint prefetch less after some messages:
	// by the average duration of handlers, prefetched messages would wait too long.
	exactlySlow = 300 * time.Millisecond
)

// countsExactly runs the messages through endpoints with one immediate and one delayed
// retry, and counts the attempts.
func (t *caseT) countsExactly(e exactCountConfig) {
	tries := t.triesToCount()
	for try := 1; !t.countExactly(e, try < tries); try++ {
		t.note("attempts were lost at the end of a consumer, in %d of at most %d tries", try, tries)
	}
}

// countExactly is one try. It returns false instead of failing if all that is wrong is that
// messages lack one attempt each, and fewerAllowed is set.
func (t *caseT) countExactly(e exactCountConfig, fewerAllowed bool) (exact bool) {
	transport := t.open()
	queue, errorQueue, unexpected := t.queue(transport), t.queue(transport), t.queue(transport)
	rounds, perRound := 1, exactImmediate+1
	if t.canDelay() {
		rounds += exactDelayed
	}
	want := map[string]int{}
	var seen, ends counter
	attempted := make(chan struct{}, 1) // signalled after every e.every attempts
	var attempts atomic.Int64
	handle := func(_ context.Context, m *core.Message) error {
		body := string(m.RawBody())
		n := seen.add(body)
		if total := attempts.Add(1); e.every > 0 && total%int64(e.every) == 0 {
			select {
			case attempted <- struct{}{}:
			default:
			}
		}
		switch {
		case strings.HasPrefix(body, "slow"):
			t.sleep(exactlySlow)
		case strings.HasPrefix(body, "failing") && n < endless: // ends the case if a transport never counts
			return errHandler
		}
		ends.add(body)
		return nil
	}
	var services []*service
	for i := range e.instances {
		on := transport
		if i > 0 {
			on = t.open()
		}
		s := t.serviceOn(on, queue, errorQueue, func(c *core.Config) {
			c.Concurrency = 16 / e.instances // each message may have a connection
			c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(exactImmediate), t.delayed(exactDelayed)
			if !t.caps.MayDuplicate { // so a delivery that was counted but not handled moves its message
				c.Recoverability.MaxDeliveries = perRound
			}
			c.Recoverability.UnacceptableMessageLimit.Count = 10 * (e.failing + 1)
			if e.change != nil {
				e.change(c)
			}
		})
		s.handle("job", handle)
		services = append(services, s)
	}
	sink := t.serviceOn(t.open(), errorQueue, unexpected, nil)
	sink.handle("job", func(_ context.Context, m *core.Message) error {
		ends.add(string(m.RawBody()))
		return nil
	})

	var first, rest []string
	add := func(to *[]string, kind string, n, attempts int) {
		for i := range n {
			body := fmt.Sprintf("%s %d", kind, i)
			want[body] = attempts
			*to = append(*to, body)
		}
	}
	add(&first, "quick", e.quick, 1)
	add(&rest, "failing", e.failing, rounds*perRound)
	add(&rest, "slow", e.slow, 1)
	t.random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	t.sendJobs(transport, queue, append(first, rest...))

	sink.run()
	for _, s := range services {
		s.run()
	}
	ended := t.interfere(e, services[0], attempted)
	t.awaitCount("messages that were handled, or failed for good and arrived in the error queue", len(want), func() int { return len(ends.counts()) })
	ended()
	if e.change != nil { // a change that began with the last failing messages ends with these
		var repeated []string
		add(&repeated, "quick again", e.quick/10, 1)
		t.sendJobs(transport, queue, repeated)
		t.awaitCount("messages that were handled, or failed for good and arrived in the error queue", len(want), func() int { return len(ends.counts()) })
	}
	t.sleep(t.quietPeriod())
	for _, s := range append(services, sink) {
		s.end()
	}

	maximum := func(want int) int {
		if want > 1 && !t.caps.NativeDeliveryCount { // each instance counts separately
			return e.instances * want
		}
		return want
	}
	wrong, duplicates := map[string]string{}, map[string]string{}
	lost := 0
	for body, want := range want {
		n := seen.get(body)
		if n < want || n > maximum(want) && !t.caps.MayDuplicate {
			wrong[body] = fmt.Sprintf("%d instead of %d", n, want)
		}
		if want > 1 && n == want-1 { // a handler has seen it
			lost++
		}
		if n := ends.get(body); n != 1 && !t.caps.MayDuplicate {
			duplicates[body] = fmt.Sprintf("%d times", n)
		}
	}
	if fewerAllowed && lost > 0 && lost == len(wrong) && len(duplicates) == 0 {
		return false
	}
	if len(wrong) > 0 {
		t.fail("while no process ends and no connection breaks, each message is attempted (immediate + 1) x (delayed + 1) times, or once where it does not fail, with any number of prefetched messages",
			"%d of %d are attempted otherwise: %s", len(wrong), len(want), listed(wrong))
	}
	if len(duplicates) > 0 {
		t.fail("each message ends once: handled, or in the error queue", "%s", listed(duplicates))
	}
	t.wantLeft(queue, "when all have ended")
	t.wantLeft(unexpected, "when all have ended")
	return true
}

// interfere calls e.interfere in a separate goroutine until the returned function is
// called. That function waits for the last call, and lets the endpoint go on.
func (t *caseT) interfere(e exactCountConfig, s *service, attempted <-chan struct{}) (end func()) {
	if e.interfere == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.goGuarded(func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-attempted:
				e.interfere(n, s)
			case <-stop:
				return
			case <-t.ctx.Done():
				return
			}
		}
	})
	return func() {
		close(stop)
		<-stopped
	}
}

// sendJobs sends a command for each body, many at the same time.
func (t *caseT) sendJobs(transport core.Transport, queue string, bodies []string) {
	msgs := make([]core.Outgoing, len(bodies))
	for i, body := range bodies {
		msgs[i] = t.command(queue, "job", body)
	}
	for part := range slices.Chunk(msgs, 100) {
		t.send(transport, part...)
	}
}
