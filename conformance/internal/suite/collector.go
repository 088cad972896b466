package suite

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// Counting of received messages, for cases that send many messages and tell them apart by
// their bodies.

// collector compares received messages with sent ones. Goroutines may share a collector.
type collector struct {
	mayDuplicate bool          // the broker itself may deliver a message twice
	done         chan struct{} // closed once nothing is missing

	mu         sync.Mutex
	expected   map[string]int
	missing    int
	pending    redeliveries
	unexpected []string
	arrived    []*core.Incoming
}

// collector returns a collector that expects each body as often as want names it.
func (t *caseT) collector(want []string) *collector {
	c := &collector{mayDuplicate: t.caps.MayDuplicate, done: make(chan struct{}), expected: map[string]int{}, missing: len(want)}
	for _, body := range want {
		c.expected[body]++
	}
	if c.missing == 0 {
		close(c.done)
	}
	return c
}

// add counts a delivery, after Complete was called for it. lockLost says that it is not
// completed, and will be redelivered.
func (c *collector) add(d core.Delivery, lockLost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.pending.settled(d, lockLost)
	if in == nil {
		return
	}
	c.arrived = append(c.arrived, in)
	body := string(in.Body)
	due, known := c.expected[body]
	switch {
	case due > 0:
		c.expected[body]--
		if c.missing--; c.missing == 0 {
			close(c.done)
		}
	case !known || !c.mayDuplicate:
		c.unexpected = append(c.unexpected, body)
	}
}

// state returns the number of missing messages, and a list of their bodies.
func (c *collector) state() (missing int, list string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var bodies []string
	for body, due := range c.expected {
		for range due {
			bodies = append(bodies, body)
		}
	}
	slices.Sort(bodies)
	return c.missing, sample(bodies)
}

const everyMessageArrives = "every message that Send accepted is delivered"

// check checks the received messages, and returns them.
func (c *collector) check(t *caseT) []*core.Incoming {
	if missing, list := c.state(); missing > 0 {
		t.stop(everyMessageArrives, "%d are missing: %s", missing, list)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unexpected) > 0 {
		t.fail("each message is delivered once, and only messages that were sent", "%d too many: %s", len(c.unexpected), sample(c.unexpected))
	}
	return c.arrived
}

// drain receives and completes messages until each body has arrived as often as want
// names it, and returns the messages.
func (r *receiver) drain(want ...string) []*core.Incoming {
	c := r.t.collector(want)
	r.drainInto(c)
	return c.check(r.t)
}

// drainInto receives and completes messages until none is missing.
func (r *receiver) drainInto(c *collector) {
	for {
		missing, list := c.state()
		if missing == 0 {
			return
		}
		ctx, cancel := r.t.withTimeout()
		got, err := r.batch(ctx, r.size)
		cancel()
		if err != nil {
			r.t.stop(everyMessageArrives, "%d are missing after %v without any: %s", missing, r.t.timeout(), list)
		}
		c.consume(r.t, got)
	}
}

// consume counts and completes deliveries.
func (c *collector) consume(t *caseT, deliveries []core.Delivery) {
	lost, err := t.tryComplete(deliveries)
	for i, d := range deliveries {
		c.add(d, lost[i])
	}
	if err != nil {
		t.stop(completesHeld, "%v", err)
	}
}

// drainConcurrently is drain by several concurrent calls of Receive. It starts one
// goroutine for each element of brief; the goroutines take turns at the receivers. The
// elements of brief limit the duration of a goroutine's first calls.
func (t *caseT) drainConcurrently(want []string, brief [][]time.Duration, receivers ...*receiver) []*core.Incoming {
	c := t.collector(want)
	ctx, cancel := context.WithCancel(t.ctx)
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	for i, durations := range brief {
		r := receivers[i%len(receivers)]
		t.goInGroup(&callers, func() { r.collectUntilDone(ctx, c, durations) })
	}
	for missing := len(want); ; {
		select {
		case <-c.done:
			cancel()
			callers.Wait()
			return c.check(t)
		case <-time.After(t.timeout()):
		}
		left, list := c.state()
		if left == missing {
			t.stop(everyMessageArrives, "%d of %d are missing after %v without any: %s", left, len(want), t.timeout(), list)
		}
		missing = left
	}
}

// collectUntilDone receives and completes until ctx ends. It runs in a goroutine beside
// the case's own, and does not stop the case.
func (r *receiver) collectUntilDone(ctx context.Context, c *collector, brief []time.Duration) {
	for ctx.Err() == nil {
		call, cancel := context.WithCancel(ctx)
		if len(brief) > 0 {
			cancel()
			call, cancel = context.WithTimeout(ctx, brief[0])
			brief = brief[1:]
		}
		dst := make([]core.Delivery, r.size)
		n, err := r.Receive(call, dst)
		ended := call.Err() != nil
		cancel()
		if !r.wellFormed(dst, n, err, ended) {
			return
		}
		lost, err := r.t.tryComplete(dst[:n])
		for i, d := range dst[:n] {
			c.add(d, lost[i])
		}
		if err != nil {
			r.t.fail(completesHeld, "%v", err)
		}
	}
}

// received receives the sent messages, which have different ids, and returns the
// delivered messages by id.
func (t *caseT) received(transport core.Transport, queue string, sent ...core.Outgoing) []*core.Incoming {
	r := t.receiver(transport, queue, 16)
	arrived := make([]*core.Incoming, len(sent))
	for missing := len(sent); missing > 0; {
		read := r.consume(r.take(1))
		if len(read) == 0 {
			continue // it is redelivered
		}
		in := read[0]
		i := slices.IndexFunc(sent, func(m core.Outgoing) bool { return m.ID == in.ID })
		switch {
		case i < 0:
			t.stop("Incoming.ID is the id that was sent", "%q, which none of the %d messages has; its body is %s", in.ID, len(sent), excerpt(in.Body))
		case arrived[i] == nil:
			arrived[i] = in
			missing--
		case !t.caps.MayDuplicate:
			t.stop("each message is delivered once", "twice: %q", in.ID)
		}
	}
	r.close()
	return arrived
}

// unchanged sends messages and checks that they arrive unchanged.
func (t *caseT) unchanged(transport core.Transport, queue string, sent ...core.Outgoing) {
	t.send(transport, sent...)
	t.arriveUnchanged(transport, queue, sent...)
}

// arriveUnchanged checks that messages sent before arrive unchanged.
func (t *caseT) arriveUnchanged(transport core.Transport, queue string, sent ...core.Outgoing) {
	for i, in := range t.received(transport, queue, sent...) {
		t.wantSame(in, sent[i])
	}
}

// wantCompletedOnce checks the messages that several receivers have completed.
func (t *caseT) wantCompletedOnce(names []string, completed *counter, queue string) {
	var missing, duplicates []string
	for _, name := range names {
		switch n := completed.get(name); {
		case n == 0:
			missing = append(missing, name)
		case n > 1 && !t.caps.MayDuplicate:
			duplicates = append(duplicates, name)
		}
	}
	if len(missing) > 0 {
		t.fail(fmt.Sprintf("each of %d messages is completed within %v, because none is lost", len(names), t.timeout()), "%d are missing: %s", len(missing), sample(missing))
	}
	if len(duplicates) > 0 {
		t.fail("a message is completed once, by one receiver alone", "more often: %s", sample(duplicates))
	}
	if len(missing) == 0 && !t.caps.MayDuplicate {
		t.wantLeft(queue, "after all were completed")
	}
}

// headersArrive checks that messages with these headers, and an id, arrive with them.
// Each map of headers has its own message, so that a failure shows the map.
func (t *caseT) headersArrive(list ...map[string]string) {
	transport := t.open()
	queue := t.queue(transport)
	var sent []core.Outgoing
	for _, h := range list {
		m := core.Outgoing{ID: t.id(), Queue: queue, Headers: core.HeadersFromMap(h), Body: []byte("body")}
		m.Headers.Set(headers.MessageID, m.ID)
		sent = append(sent, m)
	}
	t.unchanged(transport, queue, sent...)
}
