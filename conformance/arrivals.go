package conformance

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Counting of received messages, for cases that send many messages and tell them apart by
// their bodies.

// soon is the time limit for something that is expected at once.
func (t *trial) soon() time.Duration { return t.patience() / 3 }

func bodiesOf(msgs []core.Outgoing) []string {
	list := make([]string, len(msgs))
	for i, m := range msgs {
		list[i] = string(m.Body)
	}
	return list
}

// census compares received messages with sent ones. Goroutines may share a census.
type census struct {
	twice    bool          // the broker itself may deliver a message twice
	complete chan struct{} // closed once nothing is missing

	mu         sync.Mutex
	due        map[string]int
	missing    int
	redelivers redeliveries
	surplus    []string
	arrived    []*core.Incoming
}

// census returns a census that expects each body as often as want names it.
func (t *trial) census(want []string) *census {
	c := &census{twice: t.caps.MayDuplicate, complete: make(chan struct{}), due: map[string]int{}, missing: len(want)}
	for _, body := range want {
		c.due[body]++
	}
	if c.missing == 0 {
		close(c.complete)
	}
	return c
}

// add counts a delivery, after Complete was called for it. lockLost says that it is not
// completed, and will be redelivered.
func (c *census) add(d core.Delivery, lockLost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.redelivers.settled(d, lockLost)
	if in == nil {
		return
	}
	c.arrived = append(c.arrived, in)
	body := string(in.Body)
	due, known := c.due[body]
	switch {
	case due > 0:
		c.due[body]--
		if c.missing--; c.missing == 0 {
			close(c.complete)
		}
	case !known || !c.twice:
		c.surplus = append(c.surplus, body)
	}
}

// state returns the number of missing messages, and a list of their bodies.
func (c *census) state() (missing int, list string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var bodies []string
	for body, due := range c.due {
		for range due {
			bodies = append(bodies, body)
		}
	}
	slices.Sort(bodies)
	return c.missing, some(bodies)
}

const everyMessageArrives = "every message that Send accepted is delivered"

// conclude checks the received messages, and returns them.
func (c *census) conclude(t *trial) []*core.Incoming {
	if missing, list := c.state(); missing > 0 {
		t.stop(everyMessageArrives, "%d are missing: %s", missing, list)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.surplus) > 0 {
		t.fail("each message is delivered once, and nothing but what was sent", "%d too many: %s", len(c.surplus), some(c.surplus))
	}
	return c.arrived
}

// drain receives and completes messages until each body has arrived as often as want
// names it, and returns the messages.
func (r *receiver) drain(want ...string) []*core.Incoming {
	c := r.t.census(want)
	r.drainInto(c)
	return c.conclude(r.t)
}

// drainInto receives and completes messages until none is missing.
func (r *receiver) drainInto(c *census) {
	for {
		missing, list := c.state()
		if missing == 0 {
			return
		}
		ctx, cancel := r.t.patient()
		got, err := r.batch(ctx, r.size)
		cancel()
		if err != nil {
			r.t.stop(everyMessageArrives, "%d are missing after %v without any: %s", missing, r.t.patience(), list)
		}
		c.take(r.t, got)
	}
}

// take counts and completes deliveries.
func (c *census) take(t *trial, deliveries []core.Delivery) {
	lost, err := t.completeRead(deliveries)
	for i, d := range deliveries {
		c.add(d, lost[i])
	}
	if err != nil {
		t.stop(completesHeld, "%v", err)
	}
}

// drainTogether is drain by several concurrent calls of Receive. It starts one goroutine
// for each element of brief; the goroutines take turns at the receivers. The elements of
// brief limit the duration of a goroutine's first calls.
func (t *trial) drainTogether(want []string, brief [][]time.Duration, receivers ...*receiver) []*core.Incoming {
	c := t.census(want)
	ctx, cancel := context.WithCancel(t.ctx)
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	for i, durations := range brief {
		r := receivers[i%len(receivers)]
		t.beside(&callers, func() { r.count(ctx, c, durations) })
	}
	for missing := len(want); ; {
		select {
		case <-c.complete:
			cancel()
			callers.Wait()
			return c.conclude(t)
		case <-time.After(t.patience()):
		}
		still, list := c.state()
		if still == missing {
			t.stop(everyMessageArrives, "%d of %d are missing after %v without any: %s", still, len(want), t.patience(), list)
		}
		missing = still
	}
}

// count receives and completes until ctx ends. It runs in a goroutine beside the case's
// own, and does not stop the case.
func (r *receiver) count(ctx context.Context, c *census, brief []time.Duration) {
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
		lost, err := r.t.completeRead(dst[:n])
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
func (t *trial) received(transport core.Transport, queue string, sent ...core.Outgoing) []*core.Incoming {
	r := t.receiver(transport, queue, 16)
	arrived := make([]*core.Incoming, len(sent))
	for missing := len(sent); missing > 0; {
		read := r.read(r.take(1))
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
	r.shut()
	return arrived
}

// unchanged sends messages and checks that they arrive unchanged.
func (t *trial) unchanged(transport core.Transport, queue string, sent ...core.Outgoing) {
	t.send(transport, sent...)
	t.arriveUnchanged(transport, queue, sent...)
}

// arriveUnchanged checks that messages sent before arrive unchanged.
func (t *trial) arriveUnchanged(transport core.Transport, queue string, sent ...core.Outgoing) {
	for i, in := range t.received(transport, queue, sent...) {
		t.same(in, sent[i])
	}
}

// renew renews the locks of deliveries, if locks end by themselves.
func (t *trial) renew(deliveries ...core.Delivery) {
	ctx, cancel := t.patient()
	defer cancel()
	for _, d := range deliveries {
		if !d.LockedUntil().IsZero() {
			if err := d.Renew(ctx); err != nil {
				t.lockLate(d)
				t.stop("Renew returns nil for a delivery that is held", "%v%s", err, lockEndedAgo(d))
			}
		}
	}
}

// answer has the results of one call of Receive.
type answer struct {
	deliveries []core.Delivery
	err        error
	at         time.Time
}

// ask calls Receive in a separate goroutine.
func (r *receiver) ask(ctx context.Context, size int) <-chan answer {
	answers := make(chan answer, 1)
	r.t.apart(func() {
		defer close(answers)
		dst := make([]core.Delivery, size)
		n, err := r.Receive(ctx, dst)
		answers <- answer{dst[:max(0, min(n, size))], err, time.Now()}
	})
	return answers
}

// soonAnswered returns the results of a call that is expected to return soon, because of
// the event just before.
func (t *trial) soonAnswered(answers <-chan answer, expected string) answer {
	since := time.Now()
	timer := time.NewTimer(t.patience())
	defer timer.Stop()
	select {
	case a := <-answers:
		if took := a.at.Sub(since); took > t.soon() {
			t.fail(expected, "it took %v", took)
		}
		return a
	case <-timer.C:
		t.stop(expected, "Receive has not returned after %v", t.patience())
		panic("unreachable")
	}
}

// receiving calls Receive in a separate goroutine until a message is received or the case
// ends.
func (r *receiver) receiving() <-chan answer { return r.ask(r.t.ctx, r.size) }

// sendEach sends one message for each body.
func (t *trial) sendEach(transport core.Transport, queue string, bodies ...string) {
	msgs := make([]core.Outgoing, len(bodies))
	for i, body := range bodies {
		msgs[i] = t.message(queue, body)
	}
	for chunk := range slices.Chunk(msgs, 50) {
		t.send(transport, chunk...)
	}
}

// takeThese returns the deliveries of the messages with these bodies. It stops the case
// if another message is delivered, or one of them twice.
func (r *receiver) takeThese(expected string, want ...string) map[string]core.Delivery {
	ctx, cancel := r.t.patient()
	defer cancel()
	taken := map[string]core.Delivery{}
	for len(taken) < len(want) {
		batch, err := r.batch(ctx, min(r.size, len(want)-len(taken)))
		if err != nil {
			missing := slices.DeleteFunc(slices.Clone(want), func(body string) bool { return taken[body] != nil })
			r.t.stop(expected, "after %v these have not come: %s", r.t.patience(), some(missing))
		}
		for _, d := range batch {
			body := string(d.Incoming().Body)
			switch {
			case slices.Contains(want, body) && taken[body] == nil:
				taken[body] = d
			case r.t.caps.MayDuplicate:
				r.t.complete(d)
			default:
				r.t.stop(expected, "%s came, which should not; expected were %s", excerpt([]byte(body)), some(want))
			}
		}
	}
	return taken
}

// nobodyGets checks that settled messages are not delivered to the receivers. It checks
// nothing if the broker itself makes duplicates.
func (t *trial) nobodyGets(expected string, receivers ...*receiver) {
	if t.caps.MayDuplicate {
		return
	}
	got := make([][]core.Delivery, len(receivers))
	var all sync.WaitGroup
	for i, r := range receivers {
		t.beside(&all, func() { got[i] = r.within(t.quiet()) })
	}
	all.Wait()
	for i, deliveries := range got {
		if len(deliveries) > 0 {
			t.stop(expected, "receiver %d of %d was delivered %s", i+1, len(receivers), bodies(deliveries))
		}
	}
}

// collect completes deliveries until enough returns true for the message of one. It
// reports whether enough did so within the limit.
func (r *receiver) collect(limit time.Duration, enough func(in *core.Incoming) bool) bool {
	return r.batches(limit, func(got []core.Delivery) (done bool) {
		for _, in := range r.read(got) {
			done = enough(in) || done
		}
		return done
	})
}

// each calls do for each delivery until do returns true. It reports whether do did so
// within the limit.
func (r *receiver) each(limit time.Duration, do func(d core.Delivery) (enough bool)) bool {
	return r.batches(limit, func(got []core.Delivery) (enough bool) {
		for _, d := range got {
			enough = do(d) || enough
		}
		return enough
	})
}

// batches calls do with the deliveries of each call of Receive until do returns true. It
// reports whether do did so within the limit.
func (r *receiver) batches(limit time.Duration, do func(got []core.Delivery) (enough bool)) bool {
	ctx, cancel := context.WithTimeout(r.t.ctx, limit)
	defer cancel()
	for {
		got, err := r.batch(ctx, r.size)
		if err != nil {
			return false
		}
		if do(got) {
			return true
		}
	}
}
