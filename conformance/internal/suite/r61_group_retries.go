package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

var groupRetryCases = []testCase{
	{rule: "R61", title: "a failing message blocks its group during immediate and delayed retries", modes: withRedelivery, needs: []need{groupOrder, delays}, run: func(t *caseT) {
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
		s.wantOneMoved()
		t.awaitCount("messages of the group handled", 9, seen.count)
		s.end()
		seen.inOrder(
			"before 1/0",
			"fails 1/0", "fails 2/0", "fails 1/1", "fails 2/1", "fails 1/2", "fails 2/2",
			"after 1/0", "last 1/0",
		)
		for _, i := range []int{3, 5} { // the first attempts after a delay
			t.wantDue("a delayed retry", t.shortDelay(), seen.at(i).Sub(seen.at(i-1)))
		}
		t.wantLeft(s.queue, "after all were dealt with")
	}},
	{rule: "R61", title: "other groups, and messages without one, do not wait for a blocked group", modes: withRedelivery, needs: []need{groupOrder, delays}, run: func(t *caseT) {
		transport := t.open()
		s := t.groupService(transport, 0, 1, t.outlasting())
		var failed, others counter
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
		t.awaitCount("attempts that failed", 1, failed.total)
		t.sendGroup(transport, s.queue, "two", "other group")
		t.send(transport, t.command(s.queue, "job", "no group"))
		t.awaitCount("other messages handled", 2, others.total)
		s.end()
	}},
	{rule: "R61", title: "instances that take turns attempt a message of a group as often as configured", modes: withRedelivery, needs: []need{groupOrder, delays, nativeCount}, run: func(t *caseT) {
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
		instances[0].wantMoved(3)
		for _, s := range instances {
			s.end()
		}
		for _, body := range []string{"m1", "m2", "m3"} {
			t.wantAttempts(&seen, body, 9)
		}
	}},
	{rule: "R61", title: "a deferral begins a new round, and blocks its group", modes: withRedelivery, needs: []need{groupOrder, delays}, run: func(t *caseT) {
		transport := t.open()
		delay := t.groupDelay()
		s := t.groupService(transport, 1, 1, 0)
		seen := s.record(func(m *core.Message) error {
			switch {
			case string(m.RawBody()) != "deferred" || m.Deferrals == 2:
				return nil
			case m.Attempt == 1:
				return errHandler
			}
			return core.Defer(errors.New("not yet"), delay)
		})
		t.sendGroup(transport, s.queue, "one", "deferred", "after")
		s.run()
		t.awaitCount("messages handled", 6, seen.count)
		s.end()
		seen.inOrder("deferred 1/0", "deferred 2/0", "deferred 1/0", "deferred 2/0", "deferred 1/0", "after 1/0")
		for _, i := range []int{2, 4} { // the first attempts after a deferral
			t.wantDue("a deferred message", delay, seen.at(i).Sub(seen.at(i-1)))
		}
		t.wantLeft(s.queue, "after all were handled")
		t.wantLeft(s.errorQueue, "after all were handled")
	}},
	{rule: "R61", title: "RetryAfter blocks its group, and takes none of the delayed retries", modes: withRedelivery, needs: []need{groupOrder, delays}, run: func(t *caseT) {
		transport := t.open()
		delay := t.groupDelay()
		s := t.groupService(transport, 1, 1, 0)
		var runs atomic.Int64
		seen := s.record(func(m *core.Message) error {
			if string(m.RawBody()) != "fails" {
				return nil
			}
			if n := runs.Add(1); n == 1 || n == 3 {
				return core.RetryAfter(errHandler, delay)
			}
			return errHandler
		})
		t.sendGroup(transport, s.queue, "one", "fails", "after")
		s.run()
		s.wantOneMoved()
		t.awaitCount("messages of the group handled", 8, seen.count)
		s.end()
		seen.inOrder("fails 1/0", "fails 1/0", "fails 2/0", "fails 1/0", "fails 2/0", "fails 1/1", "fails 2/1", "after 1/0")
		for _, i := range []int{1, 3} { // the first attempts after RetryAfter
			t.wantDue("a message whose handler asked to be retried", delay, seen.at(i).Sub(seen.at(i-1)))
		}
		t.wantLeft(s.queue, "after all were dealt with")
	}},
	{rule: "R61", title: "a message of a group whose delay exceeds MaxLockTime goes to the error queue", modes: withRedelivery, needs: []need{groupOrder, delays, lockLimit}, run: func(t *caseT) {
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
		s.wantOneMoved()
		t.awaitCount("messages handled", 2, seen.count)
		t.wantLeft(s.queue, "after all were dealt with")
	}},
	{rule: "R61", title: "failed messages keep their group and its order in an error queue and a dead-letter queue that keep groups", modes: withRedelivery, needs: []need{groupOrder}, run: func(t *caseT) {
		transport := t.open()
		errorQueue, dead := t.groupQueue(transport), t.groupQueue(transport)
		s := t.serviceOn(transport, t.groupQueue(transport), errorQueue, func(c *core.Config) {
			t.groupRetries(1, 0, 0)(c)
			c.Recoverability.DeadLetterQueue = dead
		})
		s.record(func(m *core.Message) error {
			if strings.Contains(string(m.RawBody()), "rejected") {
				return core.GiveUpTo(errHandler, core.DeadLetterQueue)
			}
			return errHandler
		})
		failed, rejected := map[string][]string{}, map[string][]string{}
		for i := range 4 {
			for _, group := range []string{"one", "two"} {
				body := fmt.Sprint(group, " failed ", i)
				failed[group] = append(failed[group], body)
				t.sendGroup(transport, s.queue, group, body)
				body = fmt.Sprint(group, " rejected ", i)
				rejected[group] = append(rejected[group], body)
				t.sendGroup(transport, s.queue, group, body)
			}
		}
		s.run()
		for queue, want := range map[string]map[string][]string{errorQueue: failed, dead: rejected} {
			found := map[string][]string{}
			for _, in := range t.wantLeft(queue, "the failed messages of two groups", slices.Concat(want["one"], want["two"])...) {
				found[in.GroupKey] = append(found[in.GroupKey], string(in.Body))
			}
			if !maps.EqualFunc(found, want, slices.Equal) {
				t.fail(fmt.Sprintf("failed messages have the key of their group, and its order: %v", want), "%v", found)
			}
		}
		s.wantDrained("after all its messages failed")
	}},
}
