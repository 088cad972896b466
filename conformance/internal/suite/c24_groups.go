package suite

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// expect receives the next delivery, and checks its body.
func (r *receiver) expect(when, body string) core.Delivery {
	d := r.next()
	if got := string(d.Incoming().Body); got != body {
		r.t.stop(fmt.Sprintf("%s, %q is delivered", when, body), "%q was", got)
	}
	return d
}

// numbered returns "prefix 0", "prefix 1", ...
func numbered(prefix string, n int) []string {
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = prefix + " " + strconv.Itoa(i)
	}
	return numbers
}

var groupCases = []testCase{
	{rule: "C24", title: "messages of a group are delivered in their order, one at a time", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		const each = 12
		transport := t.open()
		queue := t.groupQueue(transport)
		keys := []string{"a", "b", "group with spaces, ünïcode and \x00", strings.Repeat("long ", 200)}
		var messages []core.Outgoing
		for i := range each {
			for j, key := range keys {
				messages = append(messages, t.groupMessage(queue, key, fmt.Sprintf("%d %d", j, i)))
			}
		}
		t.send(transport, messages[:len(messages)/2]...)
		for _, m := range messages[len(messages)/2:] {
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
		for left := len(messages); left > 0; {
			var arrived []core.Delivery
			if mayCome() {
				arrived = r.receiveBatch()
			}
			for _, d := range arrived {
				var j, i int
				if _, err := fmt.Sscanf(string(d.Incoming().Body), "%d %d", &j, &i); err != nil || j >= len(keys) {
					t.stop("the sent messages are delivered", "%q is", d.Incoming().Body)
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
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C24", title: "two receivers get the messages of a group in their order", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		sends, receives := t.open(), t.open()
		queue := t.groupQueue(sends)
		order := numbered("number", 20)
		rs := []*receiver{t.receiver(sends, queue, 5), t.receiver(receives, queue, 5)}
		answers := []<-chan receiveResult{rs[0].receiveInBackground(), rs[1].receiveInBackground()}
		t.sendGroup(sends, queue, "one", order...)
		for _, want := range order {
			var a receiveResult
			which := 0
			timer := time.NewTimer(t.timeout())
			select {
			case a = <-answers[0]:
			case a = <-answers[1]:
				which = 1
			case <-timer.C:
				t.stop(fmt.Sprintf("%q is delivered", want), "nothing was for %v", t.timeout())
			}
			timer.Stop()
			if a.err != nil || len(a.deliveries) != 1 || string(a.deliveries[0].Incoming().Body) != want {
				t.stop(fmt.Sprintf("%q alone is delivered next", want), "Receive returned %s, %v", bodies(a.deliveries), a.err)
			}
			t.complete(a.deliveries[0])
			answers[which] = rs[which].receiveInBackground()
		}
	}},
	{rule: "C24", title: "an abandoned or released message is redelivered before those that follow it", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
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
				t.wantCount("after three times Abandon", d, 4)
			}
			t.complete(d)
			t.complete(r.expect("after the first was completed", "second"))
			r.close()
		}
	}},
	{rule: "C24", title: "closing a receiver releases a group in its order", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		r.expect("at first", "first")
		r.close()
		r = t.receiver(transport, queue, 10)
		t.complete(r.expect("after its receiver was closed", "first"))
		t.complete(r.expect("after the first was completed", "second"))
	}},
	{rule: "C24", title: "the next message of a group is delivered when its first is consumed", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
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
			r.close()
		}
	}},
	{rule: "C24", title: "messages without a group do not wait for each other", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendEach(transport, queue, "x", "y", "z")
		r := t.receiver(transport, queue, 3)
		for _, d := range r.takeBodies("messages without a group are delivered beside each other", "x", "y", "z") {
			t.complete(d)
		}
	}},
	{rule: "C24", title: "a postponed message is redelivered when it is due, before those that follow it", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		delay := t.groupDelay()
		d := r.expect("at first", "first")
		for count := 2; count <= 3; count++ {
			began := t.postpone(d, delay, errHandler)
			d = r.expect("when it is due", "first")
			t.wantDue("a postponed message", delay, time.Since(began))
			t.wantCount(fmt.Sprintf("after it was postponed %d times because its handler failed", count-1), d, count)
		}
		t.complete(d)
		t.complete(r.expect("after the first was completed", "second"))
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C24", title: "no other message waits for one that is postponed", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
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
	{rule: "C24", title: "a message that is postponed without a cause has not failed", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		delay := t.groupDelay()
		began := t.postpone(r.expect("at first", "first"), delay, nil)
		d := r.expect("when it is due", "first")
		t.wantDue("a postponed message", delay, time.Since(began))
		t.countedBeside("after it was postponed without a cause", d, 1)
		began = t.postpone(d, 0, nil)
		d = r.expect("after it was postponed for no time", "first")
		if took := time.Since(began); took > t.suite.h.DelayTolerance+t.quietPeriod() {
			t.fail("a message that was postponed for no time is available at once", "it came after %v", took)
		}
		t.complete(d)
		t.complete(r.expect("after the first was completed", "second"))
	}},
	{rule: "C24", title: "a postponed delivery is settled", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
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
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := d.Postpone(ctx, delay, nil); !errors.Is(err, core.ErrSettled) {
			t.fail("a second Postpone is core.ErrSettled", "%v", err)
		}
		d = r.expect("when it is due", "first")
		t.wantDue("a postponed message", delay, time.Since(began))
		t.complete(d)
		if err := d.Postpone(ctx, delay, nil); !errors.Is(err, core.ErrSettled) {
			t.fail("Postpone after Complete is core.ErrSettled", "%v", err)
		}
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C24", title: "a postponed message stays postponed when its receiver is closed", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		delay := t.groupDelay()
		began := t.postpone(r.expect("at first", "first"), delay, errHandler)
		r.close()
		t.close(transport)
		transport = t.open()
		r = t.receiver(transport, queue, 10)
		d := r.expect("when it is due", "first")
		t.wantDue("a postponed message", delay, time.Since(began))
		t.complete(d)
		t.complete(r.expect("after the first was completed", "second"))
	}},
	{rule: "C24", title: "Postpone for longer than MaxLockTime is refused", modes: withRedelivery, needs: []need{groupOrder, lockLimit}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first")
		r := t.receiver(transport, queue, 10)
		d := r.next()
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := d.Postpone(ctx, t.caps.MaxLockTime+time.Second, errHandler); !errors.Is(err, errors.ErrUnsupported) {
			t.fail("Postpone for longer than MaxLockTime is an error that matches errors.ErrUnsupported", "%v", err)
		}
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C24", title: "Postpone of a message without a group is refused", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendEach(transport, queue, "alone")
		t.notPostponed(t.receiver(transport, queue, 1))
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C24", title: "a group keeps its order when a lock ends", modes: withRedelivery, shortLocks: true, needs: []need{groupOrder, locks}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		t.sendGroup(transport, queue, "one", "first", "second")
		r := t.receiver(transport, queue, 10)
		d := r.expect("at first", "first")
		r.wantAfterLock(d.LockedUntil())
		r.close()
		r = t.receiver(transport, queue, 10)
		t.complete(r.expect("after its lock has ended", "first"))
		t.complete(r.expect("after the first was completed", "second"))
	}},
	{rule: "C24", title: "in mode None the messages of a group are delivered in their order", modes: inNone, needs: []need{groupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		order := numbered("number", 20)
		t.sendGroup(transport, queue, "one", order...)
		r := t.receiver(transport, queue, 10)
		for i := 0; i < len(order); {
			for _, d := range r.receiveBatch() {
				if got := string(d.Incoming().Body); got != order[i] {
					t.stop(fmt.Sprintf("%q is delivered next", order[i]), "%q is", got)
				}
				i++
			}
		}
	}},
}

// postpone postpones a delivery, and returns the time before the call.
func (t *caseT) postpone(d core.Delivery, delay time.Duration, cause error) time.Time {
	ctx, cancel := t.withTimeout()
	defer cancel()
	began := time.Now()
	if err := d.Postpone(ctx, delay, cause); err != nil {
		t.stop("Postpone returns nil for a delivery of a group that is held", "%v%s", err, lockEndedAgo(d))
	}
	return began
}

// receiveBatch returns the deliveries of one call of Receive.
func (r *receiver) receiveBatch() []core.Delivery {
	ctx, cancel := r.t.withTimeout()
	defer cancel()
	deliveries, err := r.batch(ctx, 10)
	if err != nil {
		r.t.stop("Receive returns a message that is in the queue", "%v", err)
	}
	return deliveries
}
