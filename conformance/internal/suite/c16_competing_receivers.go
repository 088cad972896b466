package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

var competingReceiverCases = []testCase{
	{rule: "C16", title: "two instances of an endpoint share its messages, each handled once", run: func(t *caseT) {
		transport := t.open()
		firstJobs, secondJobs := t.blockingHandler(), t.blockingHandler()
		first := t.service(transport, func(c *core.Config) { c.Concurrency = 4 })
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, func(c *core.Config) { c.Concurrency = 4 })
		first.handle("job", firstJobs.handle)
		second.handle("job", secondJobs.handle)
		first.run()
		second.run()
		msgs := t.jobs(first.queue, 100)
		t.send(transport, msgs[:40]...)
		both := func(count func(h *blockingHandler) int) func() int {
			return func() int { return count(firstJobs) + count(secondJobs) }
		}
		t.awaitCount("handlers of two instances with 4 places each, at the same time", 8, both((*blockingHandler).running))
		firstJobs.releaseAll()
		secondJobs.releaseAll()
		for part := range slices.Chunk(msgs[40:], 10) {
			t.send(transport, part...)
		}
		t.awaitCount("messages handled by two instances together", 100, both((*blockingHandler).messages))
		first.end()
		second.end()
		t.wantOnce(msgs, firstJobs, secondJobs)
		t.wantLeft(first.queue, "after all was handled")
		t.wantLeft(first.errorQueue, "after all was handled")
	}},
	{rule: "C16", title: "competing receivers never have the same message in flight", run: compete},
	{rule: "C16", title: "a message in flight goes to no other receiver", modes: withRedelivery, needs: []need{noDuplicates}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 4)
		t.sendEach(transport, queue, "held", "held too")
		held := r.takeBodies("two messages are delivered", "held", "held too")
		t.wantNoneDelivered("a message in flight is delivered to no other receiver", r, t.receiver(transport, queue, 4), t.receiver(t.open(), queue, 4))
		t.complete(held["held"], held["held too"])
		t.wantLeft(queue, "after both were completed")
	}},
}

var noDuplicates = unclaimed("MayDuplicate", func(c core.Capabilities) bool { return c.MayDuplicate })

// compete lets four receivers on two transports receive from one queue, with two calls of
// Receive each. For each delivery it checks that no other receiver holds the message.
func compete(t *caseT) {
	const messages = 300
	first := t.open()
	queue := t.queue(first)
	names := make([]string, messages)
	for i := range names {
		names[i] = fmt.Sprintf("message %d", i)
	}
	t.sendEach(first, queue, names...)
	ctx, cancel := t.withTimeout()
	defer cancel()
	c := &contention{t: t, target: messages, done: cancel, held: map[string]core.Delivery{}}
	var working sync.WaitGroup
	for _, transport := range []core.Transport{first, t.open()} {
		for range 2 {
			r := t.receiver(transport, queue, 4)
			for range 2 {
				random := rand.New(rand.NewPCG(t.random.Uint64(), t.random.Uint64()))
				t.goInGroup(&working, func() { c.work(ctx, r, random) })
			}
		}
	}
	working.Wait()
	t.wantCompletedOnce(names, &c.completed, queue)
}

// contention records the holder of each message, and the completed messages.
type contention struct {
	t         *caseT
	target    int64
	done      func()
	completed counter
	different atomic.Int64

	mu   sync.Mutex
	held map[string]core.Delivery // by NativeID
}

// work runs in a separate goroutine.
func (c *contention) work(ctx context.Context, r *receiver, random *rand.Rand) {
	dst := make([]core.Delivery, 3)
	for {
		n, err := r.Receive(ctx, dst[:1+random.IntN(3)])
		if err != nil {
			if ctx.Err() == nil {
				c.t.fail("Receive returns no error while its context goes on", "%v", err)
			}
			return
		}
		for _, d := range dst[:n] {
			c.acquire(d)
		}
		for _, d := range dst[:n] {
			c.t.sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
			c.settle(d, random.IntN(10) == 0)
		}
	}
}

// acquire records a new holder.
func (c *contention) acquire(d core.Delivery) {
	if c.t.mode == core.TransactionNone {
		return // deliveries of this mode are not locked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := d.Incoming().NativeID
	if other := c.held[id]; other != nil && !c.t.caps.MayDuplicate {
		if lockedUntil := other.LockedUntil(); lockedUntil.IsZero() || time.Now().Before(lockedUntil) {
			c.t.fail("a message that one receiver holds is delivered to no other", "%q, with NativeID %q, was delivered a second time", d.Incoming().Body, id)
		}
	}
	c.held[id] = d
}

// settle removes the holder, and then settles: the next delivery may arrive before the
// settlement returns.
func (c *contention) settle(d core.Delivery, failed bool) {
	c.mu.Lock()
	if c.held[d.Incoming().NativeID] == d {
		delete(c.held, d.Incoming().NativeID)
	}
	c.mu.Unlock()
	ctx, cancel := c.t.withTimeout()
	defer cancel()
	if failed && c.t.mode != core.TransactionNone {
		if err := d.Abandon(ctx, errHandler); err != nil && !lockEnded(d, err) {
			c.t.fail("a delivery that is held can be abandoned", "%v", err)
		}
		return
	}
	err := d.Complete(ctx)
	switch body := string(d.Incoming().Body); {
	case err == nil:
		if c.completed.add(body) == 1 && c.different.Add(1) == c.target {
			c.done()
		}
	case !lockEnded(d, err):
		c.t.fail("a delivery that is held can be completed", "%v", err)
	}
}
