package suite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

var lockCases = []testCase{
	{rule: "C17", title: "a lock ends in the future, and renewing moves its end forward", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "renewed")
		d := t.receiver(transport, queue, 1).next()
		t.needLock(d)
		lockedUntil := d.LockedUntil()
		left := time.Until(lockedUntil)
		if left <= 0 {
			t.stop("LockedUntil is in the future when a message is delivered", "it was %v ago", -left)
		}
		for range 3 {
			t.sleep(left / 5)
			t.renew(d)
			now := d.LockedUntil()
			// Some brokers store whole seconds.
			if now.Before(lockedUntil) {
				t.fail("Renew never moves LockedUntil back", "by %v", lockedUntil.Sub(now))
			}
			lockedUntil = now
		}
		if gained := time.Until(lockedUntil) - left*2/5; gained <= 0 {
			t.fail(fmt.Sprintf("after three times Renew over %v the lock, which held for %v, ends later than it did at first", left*3/5, left), "it ends in %v", time.Until(lockedUntil))
		}
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C17", title: "a lock that is renewed does not end", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 3)
		names := []string{"in work", "not started", "not started either"}
		t.sendEach(transport, queue, names...)
		held := r.takeBodies("three messages are delivered", names...)
		var all []core.Delivery
		for _, d := range held {
			all = append(all, d)
		}
		stop := t.keepRenewing(all...)
		duration := time.Until(all[0].LockedUntil())
		others := []*receiver{t.receiver(transport, queue, 3), t.receiver(t.open(), queue, 3)}
		for end := time.Now().Add(min(3*duration, 2*t.timeout())); time.Now().Before(end); {
			for _, other := range others {
				if got := other.takeFor(min(time.Until(end), duration/4)); len(got) > 0 {
					t.stop(fmt.Sprintf("a message whose lock of %v is renewed in time is delivered to no other receiver", duration), "another receiver was delivered %s", bodies(got))
				}
			}
		}
		if err := stop(); err != nil {
			t.stop("Renew returns nil while the lock holds", "%v", err)
		}
		t.complete(all...)
		r.close()
		t.wantLeft(queue, "after all were completed, three times later than their locks would have ended")
	}},
	{rule: "C17", title: "a lock that is not renewed is lost at its end, and not before", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "forgotten")
		r := t.receiver(transport, queue, 1)
		other := t.receiver(t.open(), queue, 1)
		other.SetMaxInFlight(0)
		d := r.next()
		t.needLock(d)
		r.SetMaxInFlight(0)
		other.SetMaxInFlight(1)
		lockedUntil := d.LockedUntil()
		redelivered := other.wantAfterLock(lockedUntil)
		t.lostFor(d, "after the message went to another receiver")
		t.complete(redelivered)
		t.wantLeft(queue, "after the other receiver completed it")
	}},
	{rule: "C17", title: "a lock that was renewed once is lost at its new end", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "renewed once")
		r := t.receiver(transport, queue, 1)
		other := t.receiver(t.open(), queue, 1)
		other.SetMaxInFlight(0)
		d := r.next()
		t.needLock(d)
		r.SetMaxInFlight(0)
		other.SetMaxInFlight(1)
		t.sleep(time.Until(d.LockedUntil()) / 2)
		t.renew(d)
		redelivered := other.wantAfterLock(d.LockedUntil())
		t.lostFor(d, "after the message went to another receiver")
		t.complete(redelivered)
		t.wantLeft(queue, "after the other receiver completed it")
	}},
	{rule: "C17", title: "a lock that has ended cannot be renewed", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "forgotten")
		r := t.receiver(transport, queue, 1)
		d := r.next()
		t.needLock(d)
		r.SetMaxInFlight(0)
		t.sleepPastLocks(d)
		t.lostFor(d, "after LockedUntil")
		t.lostFor(d, "after LockedUntil, tried again")
		t.complete(t.receiver(t.open(), queue, 1).next())
		t.wantLeft(queue, "after another receiver completed it")
	}},
	{rule: "C17", title: "a lock can be renewed for MaxLockTime", modes: withRedelivery, needs: []need{locks, shortestLife}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "kept for long")
		began := time.Now()
		d := t.receiver(transport, queue, 1).next()
		t.needLock(d)
		stop := t.keepRenewing(d)
		t.sleep(time.Until(began.Add(t.caps.MaxLockTime * 9 / 10)))
		if err := stop(); err != nil {
			t.stop(fmt.Sprintf("Renew returns nil until a delivery has been kept for MaxLockTime, %v", t.caps.MaxLockTime), "%v", err)
		}
		t.complete(d)
		t.wantLeft(queue, "after it was completed, shortly before MaxLockTime")
	}},
	{rule: "C17", title: "a renewal ends with its context", modes: withRedelivery, needs: []need{locks}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "held")
		d := t.receiver(transport, queue, 1).next()
		t.needLock(d)
		ended, cancel := context.WithCancel(t.ctx)
		cancel()
		if err := d.Renew(ended); err != nil && (errors.Is(err, core.ErrLockLost) || errors.Is(err, core.ErrSettled)) {
			t.fail("Renew, with a context that has ended, returns that context's error and leaves the lock alone", "%v", err)
		}
		t.renew(d)
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C17", title: "a message whose lock does not end stays with its receiver", modes: withRedelivery, slow: true, run: keepsForEver},
	{rule: "C17", title: "a lock can be renewed while its delivery is settled", modes: withRedelivery, needs: []need{locks}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		ways := t.waysToSettle(t.queue(transport))
		for round := range 3 {
			var names, redelivered []string
			for _, way := range ways {
				name := fmt.Sprintf("%s in round %d", way.name, round)
				if names = append(names, name); !way.consumes {
					redelivered = append(redelivered, name)
				}
			}
			t.sendEach(transport, queue, names...)
			held := r.takeBodies("the messages are delivered", names...)
			for i, way := range ways {
				t.settleWhileRenewing(way, held[names[i]])
			}
			for _, d := range r.takeBodies("abandoned and released messages are redelivered, and no others", redelivered...) {
				t.complete(d)
			}
		}
		r.close()
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C17", title: "a handler that takes longer than the lock keeps its message", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		jobs := t.blockingHandler()
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
		t.awaitCount("handlers at the same time", 3, jobs.running)
		t.sleep(t.lock() * 2)
		t.await("handlers that take 2.5 times the lock have ended", func() bool { return jobs.running() == 0 })
		first.end()
		second.end()
		t.wantOnce(msgs, jobs)
		t.wantLeft(first.queue, "after all was handled")
		t.wantLeft(first.errorQueue, "after all was handled")
	}},
	{rule: "C17", title: "a message that waits behind a slow handler keeps its lock", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		jobs := t.blockingHandler()
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
		t.awaitCount("messages begun, of which the last two are slow", 22, jobs.messages)
		t.sleep(t.lock() * 3 / 2)
		jobs.releaseAll()
		t.awaitCount("messages begun when the slow ones have ended, which took 1.5 times the lock", 32, jobs.messages)
		s.end()
		t.wantOnce(msgs, jobs)
		t.wantLeft(s.queue, "after all was handled")
		t.wantLeft(s.errorQueue, "after all was handled")
	}},
}

// keepsForEver holds a message without renewing its lock while another process receives:
// an adapter may ignore that its broker's leases end. Whether they end depends on the
// mode, so the case finds out by itself whether it is meaningful.
func keepsForEver(t *caseT) {
	const expected = "a delivery whose LockedUntil is the zero time stays with its receiver; " +
		"if the broker's locks end, LockedUntil must say when"
	hold := 10 * time.Second
	if t.suite.h.Synctest {
		hold = time.Hour // in a bubble, which costs nothing
	}
	hold = min(hold, 3*t.timeout()) // a case has to end
	if longest := t.caps.MaxLockTime; longest > 0 {
		hold = min(hold, longest*9/10)
	}
	transport := t.open()
	queue := t.queue(transport)
	t.sendEach(transport, queue, "held for long")
	r := t.receiver(transport, queue, 1)
	d := r.next()
	if !d.LockedUntil().IsZero() {
		t.notRun(fmt.Sprintf("in %v a delivery's lock ends by itself, and the delivery says when", t.mode))
	}
	began := time.Now()
	r.SetMaxInFlight(0)
	other := t.receiver(t.open(), queue, 1)
	ctx, cancel := context.WithTimeout(t.ctx, hold)
	defer cancel()
	for {
		got, err := other.batch(ctx, 1)
		if err != nil {
			break
		}
		if !t.caps.MayDuplicate {
			t.stop(expected, "%T, which does not say when its lock ends, was held; %v later another receiver was delivered %s", d, time.Since(began), bodies(got))
		}
		t.complete(got...) // if there is no duplicate among them, d cannot be completed any more
	}
	other.close()
	if err := t.trySettling(t.waysToSettle("")[0], d); err != nil {
		t.stop(expected, "Complete returned %v after %T was held for %v", err, d, time.Since(began))
	}
	r.close()
	t.wantLeft(queue, "after it was completed")
}

// lostFor checks that a lock cannot be renewed any more.
func (t *caseT) lostFor(d core.Delivery, when string) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := d.Renew(ctx); !errors.Is(err, core.ErrLockLost) {
		t.fail("Renew returns core.ErrLockLost "+when, "%v", err)
	}
}

// settleWhileRenewing settles a delivery while its lock is being renewed and read, as the
// engine does.
func (t *caseT) settleWhileRenewing(way wayToSettle, d core.Delivery) {
	t.needLock(d)
	begun, settled, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var wrong error
	t.goGuarded(func() {
		defer close(done)
		begin := sync.OnceFunc(func() { close(begun) })
		defer begin()
		for {
			d.LockedUntil()
			err := d.Renew(t.ctx)
			begin()
			select {
			case <-settled:
				return
			default:
			}
			if err != nil && !errors.Is(err, core.ErrSettled) && !errors.Is(err, core.ErrLockLost) {
				wrong = err
				return
			}
			if err != nil {
				return
			}
			runtime.Gosched() // a Renew that makes no request would block the settlement
		}
	})
	<-begun
	err := t.trySettling(way, d)
	close(settled)
	<-done
	switch {
	case err != nil:
		t.stop(way.name+" returns nil while the lock is renewed", "%v", err)
	case wrong != nil:
		t.fail("Renew of a delivery that is being settled returns nil, core.ErrSettled or core.ErrLockLost", "%v", wrong)
	}
}
