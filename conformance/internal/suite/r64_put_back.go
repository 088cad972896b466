package suite

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// putBackPause is long enough to be noticed between two deliveries.
const putBackPause = 50 * time.Millisecond

// putBackOften has a message wait twenty times by a verdict, with two failures in between,
// although it may be delivered five times at most.
func putBackOften(verdict func(err error, pause time.Duration) error) func(t *caseT) {
	return func(t *caseT) {
		transport := t.open()
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.Immediate = t.immediate(3)
			c.Recoverability.MaxDeliveries = 5
		})
		seen := &attempts{}
		var before time.Time // the time before a pause
		s.handle("job", func(_ context.Context, m *core.Message) error {
			n := seen.add(m)
			if gap := time.Since(before); gap < putBackPause {
				t.fail(fmt.Sprintf("a message that is put back for %v is not delivered again before", putBackPause), "delivery %d came after %v", n, gap)
			}
			before = time.Time{}
			switch {
			case n == 8 || n == 15:
				return errHandler
			case n > 22:
				return nil
			}
			before = time.Now()
			return verdict(errHandler, putBackPause)
		})
		s.run()
		t.send(transport, t.command(s.queue, "job", "put back"))
		t.awaitCount("deliveries of a message that is put back twenty times and fails twice", 23, func() int { return len(seen.forBody("put back")) })
		s.end()
		t.wantAttempts(seen, "put back", 23)
		for i, a := range seen.forBody("put back") {
			want := 1
			for _, failed := range []int{8, 15} {
				if i >= failed {
					want++
				}
			}
			if a.number != want || a.delayedRetries != 0 {
				t.fail(fmt.Sprintf("a message that is put back loses no attempt: delivery %d is attempt %d", i+1, want), "it is %v", a)
			}
		}
		t.wantLeft(s.queue, "after the message was handled")
		t.wantLeft(s.errorQueue, "after the message was handled")
	}
}

var putBackCases = []testCase{
	{rule: "R64", title: "a message that is put back twenty times loses no attempt, and its endpoint waits each time", modes: withRedelivery, run: putBackOften(core.PutBack)},
	{rule: "R64", title: "a message that is refused twenty times loses no attempt, and waits alone each time", modes: withRedelivery, needs: []need{delays}, run: putBackOften(core.Refuse)},
	{rule: "R64", title: "a message that one instance puts back is handled by another", modes: withRedelivery, run: func(t *caseT) {
		first, second := t.open(), t.open()
		cold := t.service(first, nil)
		putBack, handled := &attempts{}, &attempts{}
		cold.handle("job", func(_ context.Context, m *core.Message) error {
			putBack.add(m)
			return core.PutBack(errHandler, time.Hour)
		})
		cold.run()
		t.send(first, t.command(cold.queue, "job", "put back"))
		t.awaitCount("messages put back", 1, func() int { return len(putBack.forBody("put back")) })
		warm := t.serviceOn(second, cold.queue, cold.errorQueue, nil)
		warm.handle("job", func(_ context.Context, m *core.Message) error { handled.add(m); return nil })
		warm.run()
		t.awaitCount("messages handled by the other instance", 1, func() int { return len(handled.forBody("put back")) })
		warm.end()
		cold.end()
		before, a := putBack.forBody("put back")[0], handled.forBody("put back")[0]
		if a.number != 1 {
			t.fail("a message that another instance has put back is attempted for the first time", "it is %v", a)
		}
		if !t.caps.CountsReleases && a.nativeID != before.nativeID {
			t.fail("a message that was put back is the same stored copy, with its NativeID "+before.nativeID, "%s", a.nativeID)
		}
		t.wantLeft(cold.queue, "after the message was handled")
		t.wantLeft(cold.errorQueue, "after the message was handled")
	}},
	{rule: "R64", title: "messages of one type are refused, and others are handled", modes: withRedelivery, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		var on atomic.Bool
		refused, handled := &attempts{}, &attempts{}
		s := t.service(transport, func(c *core.Config) { c.Concurrency = 2 })
		s.handle("off", func(_ context.Context, m *core.Message) error {
			if !on.Load() {
				refused.add(m)
				t.sleep(time.Millisecond) // otherwise a transport without pauses would keep the endpoint busy for ever
				return core.Refuse(errHandler, putBackPause)
			}
			handled.add(m)
			return nil
		})
		s.handle("job", func(_ context.Context, m *core.Message) error { handled.add(m); return nil })
		s.run()
		var bodies []string
		for i := range 5 {
			bodies = append(bodies, fmt.Sprint("off ", i))
			t.send(transport, t.command(s.queue, "off", bodies[i]))
		}
		for i := range 20 {
			body := fmt.Sprint("job ", i)
			t.send(transport, t.command(s.queue, "job", body))
			t.awaitCount("messages of another type handled", 1, func() int { return len(handled.forBody(body)) })
		}
		on.Store(true)
		for _, body := range bodies {
			t.awaitCount("messages handled that were refused before", 1, func() int { return len(handled.forBody(body)) })
			if len(refused.forBody(body)) == 0 {
				t.fail("a message of a type that is refused is not handled before that ends", "%q was", body)
			}
			for _, a := range append(refused.forBody(body), handled.forBody(body)...) {
				if a.number != 1 {
					t.fail("a message that is refused loses no attempt", "%q: %v", body, a)
				}
			}
		}
		s.end()
		t.wantLeft(s.queue, "after all messages were handled")
		t.wantLeft(s.errorQueue, "after all messages were handled")
	}},
	{rule: "R64", title: "a message of a group that is put back blocks its group", modes: withRedelivery, needs: []need{groupOrder, delays}, run: func(t *caseT) {
		for _, verdict := range []func(error, time.Duration) error{core.PutBack, core.Refuse} {
			transport := t.open()
			s := t.groupService(transport, 1, 0, 0)
			puts := 0
			seen := s.record(func(m *core.Message) error {
				if string(m.RawBody()) == "put back" && puts < 3 {
					puts++
					return verdict(errHandler, putBackPause)
				}
				return nil
			})
			t.sendGroup(transport, s.queue, "one", "before", "put back", "after", "last")
			s.run()
			t.awaitCount("messages handled", 7, seen.count)
			s.end()
			for i := 2; i <= 4; i++ {
				if gap := seen.at(i).Sub(seen.at(i - 1)); gap < putBackPause {
					t.fail(fmt.Sprintf("a message that is put back for %v is not delivered again before", putBackPause), "delivery %d came after %v", i, gap)
				}
			}
			seen.inOrder("before 1/0", "put back 1/0", "put back 1/0", "put back 1/0", "put back 1/0", "after 1/0", "last 1/0")
			t.wantLeft(s.queue, "after all were handled")
			t.wantLeft(s.errorQueue, "after all were handled")
		}
	}},
}
