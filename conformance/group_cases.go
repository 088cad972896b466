package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// groupQueue returns an empty queue of the case's own that keeps groups.
func (t *trial) groupQueue(transport core.Transport) string {
	var queue string
	if t.suite.h.GroupQueue != nil {
		queue = t.suite.h.GroupQueue(t)
	} else {
		queue = t.queue(transport)
	}
	if keeper, ok := transport.(core.GroupKeeper); ok && !keeper.KeepsGroups(queue) {
		t.stop("KeepsGroups reports true for a queue that Harness.GroupQueue names, or without that for any", "it reports false for %q", queue)
	}
	return queue
}

// member returns a message of a group.
func (t *trial) member(queue, group, body string) core.Outgoing {
	m := t.command(queue, "job", body)
	m.GroupKey = group
	return m
}

// sendGroup sends messages of one group, each with a Send of its own.
func (t *trial) sendGroup(transport core.Transport, queue, group string, bodies ...string) {
	for _, body := range bodies {
		t.send(transport, t.member(queue, group, body))
	}
}

// expect takes the next delivery, and checks which it is.
func (r *receiver) expect(when, body string) core.Delivery {
	d := r.next()
	if got := string(d.Incoming().Body); got != body {
		r.t.stop(fmt.Sprintf("%s, %q is delivered", when, body), "%q was", got)
	}
	return d
}

// numbersOf returns "prefix 0", "prefix 1", ...
func numbersOf(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = prefix + " " + strconv.Itoa(i)
	}
	return all
}

var groupCases = []testCase{
	{rule: "C24", title: "messages of a group come in their order, one at a time", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		const each = 12
		transport := t.open()
		queue := t.groupQueue(transport)
		keys := []string{"a", "b", "group with spaces, ünïcode and \x00", strings.Repeat("long ", 200)}
		var all []core.Outgoing
		for i := range each {
			for j, key := range keys {
				all = append(all, t.member(queue, key, fmt.Sprintf("%d %d", j, i)))
			}
		}
		t.send(transport, all[:len(all)/2]...)
		for _, m := range all[len(all)/2:] {
			t.send(transport, m)
		}
		r := t.receiver(transport, queue, 10)
		next := make([]int, len(keys))
		held := map[int]core.Delivery{}
		mayCome := func() bool {
			for j := range keys {
				if held[j] == nil && next[j] < each {
					return true
				}
			}
			return false
		}
		for left := len(all); left > 0; {
			var arrived []core.Delivery
			if mayCome() {
				arrived = r.some()
			}
			for _, d := range arrived {
				var j, i int
				if _, err := fmt.Sscanf(string(d.Incoming().Body), "%d %d", &j, &i); err != nil || j >= len(keys) {
					t.stop("what was sent is delivered", "%q is", d.Incoming().Body)
				}
				switch {
				case held[j] != nil:
					t.stop("no message of a group is delivered while another one of it is unsettled", "%q is, beside %q", d.Incoming().Body, held[j].Incoming().Body)
				case i != next[j]:
					t.stop(fmt.Sprintf("message %d of group %d is delivered next", next[j], j), "number %d is", i)
				case d.Incoming().GroupKey != keys[j]:
					t.stop("a message has the GroupKey that it was sent with", "%.40q", d.Incoming().GroupKey)
				}
				next[j]++
				held[j] = d
			}
			settle := 1 + t.random.IntN(len(held))
			for _, j := range t.random.Perm(len(keys)) {
				if d := held[j]; d != nil && settle > 0 {
					delete(held, j)
					t.complete(d)
					settle--
					left--
				}
			}
		}
		t.left(queue, "after all were completed")
	}},
	{rule: "C24", title: "two receivers get the messages of a group in their order", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		sends, receives := t.open(), t.open()
		queue := t.groupQueue(sends)
		order := numbersOf("number", 20)
		rs := []*receiver{t.receiver(sends, queue, 5), t.receiver(receives, queue, 5)}
		answers := []<-chan answer{rs[0].receiving(), rs[1].receiving()}
		t.sendGroup(sends, queue, "one", order...)
		for _, want := range order {
			var a answer
			which := 0
			timer := time.NewTimer(t.patience())
			select {
			case a = <-answers[0]:
			case a = <-answers[1]:
				which = 1
			case <-timer.C:
				t.stop(fmt.Sprintf("%q is delivered", want), "nothing was for %v", t.patience())
			}
			timer.Stop()
			if a.err != nil || len(a.deliveries) != 1 || string(a.deliveries[0].Incoming().Body) != want {
				t.stop(fmt.Sprintf("%q alone is delivered next", want), "Receive returned %s, %v", bodies(a.deliveries), a.err)
			}
			t.complete(a.deliveries[0])
			answers[which] = rs[which].receiving()
		}
	}},
	{rule: "C24", title: "a message that is given back comes again before those that follow it", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		for _, way := range t.waysToSettle("") {
			if way.consumes {
				continue
			}
			queue := t.groupQueue(transport)
			t.sendGroup(transport, queue, "one", "first", "second")
			r := t.receiver(transport, queue, 10)
			d := r.expect("at first", "first")
			for range 3 {
				if err := t.trySettling(way, d); err != nil {
					t.stop(way.name+" returns nil for a delivery that is held", "%v", err)
				}
				d = r.expect("after "+way.name, "first")
			}
			if way.name == "Abandon" {
				t.counted("after three times Abandon", d, 4)
			}
			t.complete(d)
			t.complete(r.expect("after the first was completed", "second"))
			r.shut()
		}
	}},
	{rule: "C24", title: "the receiver's end gives a group back in its order", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		r.expect("at first", "first")
		r.shut()
		r = t.receiver(transport, queue, 10)
		t.complete(r.expect("after its receiver was closed", "first"))
		t.complete(r.expect("after the first was completed", "second"))
	}},
	{rule: "C24", title: "what consumes a message lets its group go on", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		out := t.queue(transport)
		for _, way := range t.waysToSettle(out) {
			if !way.consumes {
				continue
			}
			queue := t.groupQueue(transport)
			t.sendGroup(transport, queue, "one", "first", "second")
			r := t.receiver(transport, queue, 10)
			if err := t.trySettling(way, r.expect("at first", "first")); err != nil {
				t.stop(way.name+" returns nil for a delivery that is held", "%v", err)
			}
			t.complete(r.expect("after "+way.name, "second"))
			r.shut()
		}
	}},
	{rule: "C24", title: "messages without a group do not wait for each other", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendEach(transport, queue, "x", "y", "z")
		r := t.receiver(transport, queue, 3)
		for _, d := range r.takeThese("messages without a group are delivered beside each other", "x", "y", "z") {
			t.complete(d)
		}
	}},
	{rule: "C24", title: "a postponed message comes when it is due, before those that follow it", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		delay := t.groupDelay()
		d := r.expect("at first", "first")
		for count := 2; count <= 3; count++ {
			began := t.postpone(d, delay, errHandler)
			d = r.expect("when it is due", "first")
			t.due("a postponed message", delay, time.Since(began))
			t.counted(fmt.Sprintf("after it was postponed %d times because its handler failed", count-1), d, count)
		}
		t.complete(d)
		t.complete(r.expect("after the first was completed", "second"))
		t.left(queue, "after all were completed")
	}},
	{rule: "C24", title: "no other message waits for one that is postponed", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first")
		r := t.receiver(transport, queue, 10)
		t.postpone(r.expect("at first", "first"), t.outlasting(), errHandler)
		t.sendGroup(transport, queue, "two", "other group")
		t.complete(r.expect("while a message of another group is postponed", "other group"))
		t.sendEach(transport, queue, "no group")
		t.complete(r.expect("while a message of a group is postponed", "no group"))
	}},
	{rule: "C24", title: "a message that is postponed without a cause has not failed", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		delay := t.groupDelay()
		began := t.postpone(r.expect("at first", "first"), delay, nil)
		d := r.expect("when it is due", "first")
		t.due("a postponed message", delay, time.Since(began))
		t.countedBeside("after it was postponed without a cause", d, 1)
		began = t.postpone(d, 0, nil)
		d = r.expect("after it was postponed for no time", "first")
		if took := time.Since(began); took > t.suite.h.Slack+t.quiet() {
			t.fail("a message that was postponed for no time is available at once", "it came after %v", took)
		}
		t.complete(d)
		t.complete(r.expect("after the first was completed", "second"))
	}},
	{rule: "C24", title: "what was postponed is settled", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first")
		r := t.receiver(transport, queue, 10)
		d := r.next()
		delay := t.groupDelay()
		began := t.postpone(d, delay, errHandler)
		for _, way := range t.waysToSettle(queue) {
			if err := t.trySettling(way, d); !errors.Is(err, core.ErrSettled) {
				t.fail(way.name+" after Postpone is core.ErrSettled", "%v", err)
			}
		}
		ctx, cancel := t.patient()
		defer cancel()
		if err := d.Postpone(ctx, delay, nil); !errors.Is(err, core.ErrSettled) {
			t.fail("a second Postpone is core.ErrSettled", "%v", err)
		}
		d = r.expect("when it is due", "first")
		t.due("a postponed message", delay, time.Since(began))
		t.complete(d)
		if err := d.Postpone(ctx, delay, nil); !errors.Is(err, core.ErrSettled) {
			t.fail("Postpone after Complete is core.ErrSettled", "%v", err)
		}
		t.left(queue, "after it was completed")
	}},
	{rule: "C24", title: "a message that is postponed stays so when its receiver is closed", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		delay := t.groupDelay()
		began := t.postpone(r.expect("at first", "first"), delay, errHandler)
		r.shut()
		t.close(transport)
		transport = t.open()
		r = t.receiver(transport, queue, 10)
		d := r.expect("when it is due", "first")
		t.due("a postponed message", delay, time.Since(began))
		t.complete(d)
		t.complete(r.expect("after the first was completed", "second"))
	}},
	{rule: "C24", title: "Postpone for longer than MaxLockTime is refused", in: givingBack, needs: []need{groupOrder, lockLimit}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first")
		r := t.receiver(transport, queue, 10)
		d := r.next()
		ctx, cancel := t.patient()
		defer cancel()
		if err := d.Postpone(ctx, t.caps.MaxLockTime+time.Second, errHandler); !errors.Is(err, errors.ErrUnsupported) {
			t.fail("Postpone for longer than MaxLockTime is an error that matches errors.ErrUnsupported", "%v", err)
		}
		t.complete(d)
		t.left(queue, "after it was completed")
	}},
	{rule: "C24", title: "Postpone of a message without a group is refused", in: givingBack, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendEach(transport, queue, "alone")
		t.notPostponed(t.receiver(transport, queue, 1))
		t.left(queue, "after it was completed")
	}},
	{rule: "C24", title: "the end of a lock leaves a group in its order", in: givingBack, shortLocks: true, needs: []need{groupOrder, locks}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		d := r.expect("at first", "first")
		r.comesAt(d.LockedUntil())
		r.shut()
		r = t.receiver(transport, queue, 10)
		t.complete(r.expect("after its lock has ended", "first"))
		t.complete(r.expect("after the first was completed", "second"))
	}},
	{rule: "C24", title: "in None the messages of a group come in their order", in: inNone, needs: []need{groupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.groupQueue(transport)
		order := numbersOf("number", 20)
		t.sendGroup(transport, queue, "one", order...)
		r := t.receiver(transport, queue, 10)
		for i := 0; i < len(order); {
			for _, d := range r.some() {
				if got := string(d.Incoming().Body); got != order[i] {
					t.stop(fmt.Sprintf("%q is delivered next", order[i]), "%q is", got)
				}
				i++
			}
		}
	}},
	{rule: "C1", title: "Postpone is refused without GroupOrder", in: givingBack, needs: []need{noGroupOrder}, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.member(queue, "one", "first"))
		t.notPostponed(t.receiver(transport, queue, 1))
		t.left(queue, "after it was completed")
	}},
	{rule: "R61", title: "a message that fails holds its group through immediate and delayed retries", in: givingBack, needs: []need{groupOrder, delays}, run: func(t *trial) {
		transport := t.open()
		s := t.groupService(transport, 1, 2, 0)
		seen := s.record(func(m *core.Message) error {
			if string(m.RawBody()) == "fails" {
				return errHandler
			}
			return nil
		})
		s.run()
		t.sendGroup(transport, s.queue, "one", "before", "fails", "after", "last")
		s.movedOne()
		t.reach("messages of the group handled", 9, seen.count)
		s.end()
		want := []string{
			"before 1/0",
			"fails 1/0", "fails 2/0", "fails 1/1", "fails 2/1", "fails 1/2", "fails 2/2",
			"after 1/0", "last 1/0",
		}
		if got := seen.list(); !slices.Equal(got, want) {
			t.fail(fmt.Sprintf("the messages of a group are handled in this order (attempt/delayed retries): %s", strings.Join(want, ", ")), "%s", strings.Join(got, ", "))
		}
		for _, i := range []int{3, 5} { // the first attempts after a delay
			t.due("a delayed retry", t.shortDelay(), seen.at(i).Sub(seen.at(i-1)))
		}
		t.left(s.queue, "after all were dealt with")
	}},
	{rule: "R61", title: "other groups, and messages without one, do not wait for a group that is held", in: givingBack, needs: []need{groupOrder, delays}, run: func(t *trial) {
		transport := t.open()
		s := t.groupService(transport, 0, 1, t.outlasting())
		var failed, others tally
		s.handle("job", func(_ context.Context, m *core.Message) error {
			body := string(m.RawBody())
			if body == "fails" {
				failed.add(body)
				return errHandler
			}
			others.add(body)
			return nil
		})
		t.sendGroup(transport, s.queue, "one", "fails")
		s.run()
		t.reach("attempts that failed", 1, failed.total)
		t.sendGroup(transport, s.queue, "two", "other group")
		t.send(transport, t.command(s.queue, "job", "no group"))
		t.reach("other messages handled", 2, others.total)
		s.end()
	}},
	{rule: "R61", title: "a message of a group is attempted as often as configured by instances that take turns", in: givingBack, needs: []need{groupOrder, delays, nativeCount}, run: func(t *trial) {
		first := t.open()
		queue, errorQueue := t.groupQueue(first), t.queue(first)
		var seen attempts
		var instances []*service
		for _, transport := range []core.Transport{first, t.open(), t.open()} {
			s := t.serviceOn(transport, queue, errorQueue, t.groupRetries(2, 2, 0))
			s.handle("job", seen.fail)
			s.run()
			instances = append(instances, s)
		}
		t.sendGroup(first, queue, "one", "m1", "m2")
		t.sendGroup(first, queue, "two", "m3")
		instances[0].moved(3)
		for _, s := range instances {
			s.end()
		}
		for _, body := range []string{"m1", "m2", "m3"} {
			t.attempted(&seen, body, 9)
		}
	}},
	{rule: "R61", title: "a deferred message holds its group, and has not failed", in: givingBack, needs: []need{groupOrder, delays}, run: func(t *trial) {
		transport := t.open()
		delay := t.groupDelay()
		s := t.groupService(transport, 1, 1, 0)
		seen := s.record(func(m *core.Message) error {
			if string(m.RawBody()) == "deferred" && m.Deferrals < 2 {
				return core.Defer(delay)
			}
			return nil
		})
		t.sendGroup(transport, s.queue, "one", "deferred", "after")
		s.run()
		t.reach("messages handled", 4, seen.count)
		s.end()
		want := []string{"deferred 1/0", "deferred 1/0", "deferred 1/0", "after 1/0"}
		got := seen.list()
		if t.caps.CountsEveryDelivery { // a return counts
			for i := range got {
				got[i] = strings.NewReplacer(" 2/0", " 1/0", " 1/1", " 1/0").Replace(got[i])
			}
		}
		if !slices.Equal(got, want) {
			t.fail(fmt.Sprintf("the messages of a group are handled in this order (attempt/delayed retries): %s", strings.Join(want, ", ")), "%s", strings.Join(got, ", "))
		}
		for i := range 2 {
			t.due("a deferred message", delay, seen.at(i+1).Sub(seen.at(i)))
		}
		t.left(s.queue, "after all were handled")
		t.left(s.errorQueue, "after all were handled")
	}},
	{rule: "R61", title: "a delay for which no message of a group can be held becomes a move to the error queue", in: givingBack, needs: []need{groupOrder, delays, lockLimit}, run: func(t *trial) {
		transport := t.open()
		s := t.groupService(transport, 0, 1, t.caps.MaxLockTime+time.Second)
		seen := s.record(func(m *core.Message) error {
			if string(m.RawBody()) == "fails" {
				return errHandler
			}
			return nil
		})
		t.sendGroup(transport, s.queue, "one", "fails", "after")
		s.run()
		s.movedOne()
		t.reach("messages handled", 2, seen.count)
		t.left(s.queue, "after all were dealt with")
	}},
}

// groupDelay is for how long the cases postpone.
func (t *trial) groupDelay() time.Duration { return t.delay() }

// outlasting is a delay that is longer than the cases wait.
func (t *trial) outlasting() time.Duration {
	delay := 23 * time.Hour // a delayed retry may not be later (R5)
	for _, limit := range []time.Duration{t.caps.MaxLockTime, t.caps.MaxDelay} {
		if limit > 0 {
			delay = min(delay, limit/2)
		}
	}
	return delay
}

// postpone does so with a delivery that is held, and returns when it began to.
func (t *trial) postpone(d core.Delivery, delay time.Duration, cause error) time.Time {
	ctx, cancel := t.patient()
	defer cancel()
	began := time.Now()
	if err := d.Postpone(ctx, delay, cause); err != nil {
		t.stop("Postpone returns nil for a delivery of a group that is held", "%v%s", err, lockEndedAgo(d))
	}
	return began
}

// notPostponed checks that Postpone is refused and changes nothing.
func (t *trial) notPostponed(r *receiver) {
	d := r.next()
	ctx, cancel := t.patient()
	defer cancel()
	if err := d.Postpone(ctx, time.Second, errHandler); !errors.Is(err, errors.ErrUnsupported) {
		t.fail("Postpone is refused with an error that matches errors.ErrUnsupported", "%v", err)
	}
	t.complete(d)
}

// some returns what one Receive brings.
func (r *receiver) some() []core.Delivery {
	ctx, cancel := r.t.patient()
	defer cancel()
	all, err := r.batch(ctx, 10)
	if err != nil {
		r.t.stop("Receive returns a message that is in the queue", "%v", err)
	}
	return all
}

// groupRetries configures retries; a delay of 0 is a short one.
func (t *trial) groupRetries(immediate, delayed int, delay time.Duration) func(*core.Config) {
	return func(c *core.Config) {
		c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(immediate), t.delayed(delayed)
		if delay > 0 {
			c.Recoverability.Delayed.Delays = slices.Repeat([]time.Duration{delay}, delayed)
		}
	}
}

// groupService returns an endpoint with such retries on a queue that keeps groups.
func (t *trial) groupService(transport core.Transport, immediate, delayed int, delay time.Duration) *service {
	return t.serviceOn(transport, t.groupQueue(transport), t.queue(transport), t.groupRetries(immediate, delayed, delay))
}

// handled is the attempts of an endpoint at its messages, in their order.
type handled struct {
	mu       sync.Mutex
	attempts []string // body, attempt / delayed retries
	times    []time.Time
}

// record registers a handler that notes each attempt.
func (s *service) record(do func(m *core.Message) error) *handled {
	h := &handled{}
	s.handle("job", func(_ context.Context, m *core.Message) error {
		h.mu.Lock()
		h.attempts = append(h.attempts, fmt.Sprintf("%s %d/%d", m.RawBody(), m.Attempt, m.DelayedRetries))
		h.times = append(h.times, time.Now())
		n := len(h.attempts)
		h.mu.Unlock()
		if n > endless {
			return nil
		}
		return do(m)
	})
	return h
}

func (h *handled) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.attempts)
}

func (h *handled) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.attempts)
}

// at returns when an attempt began.
func (h *handled) at(i int) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times[min(i, len(h.times)-1)]
}
