package conformance

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// What arrives, counted: for cases that send many messages and tell them apart
// by their bodies.

// soon is how long something may take that is to happen at once.
func (t *trial) soon() time.Duration { return t.patience() / 3 }

func bodiesOf(msgs []core.Outgoing) []string {
	list := make([]string, len(msgs))
	for i, m := range msgs {
		list[i] = string(m.Body)
	}
	return list
}

// census counts what arrives of what was sent. Goroutines may share one.
type census struct {
	twice    bool          // the broker itself may deliver twice
	complete chan struct{} // closed once nothing is missing

	mu      sync.Mutex
	due     map[string]int
	missing int
	surplus []string
	arrived []*core.Incoming
}

// census expects each body as often as it is named.
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

func (c *census) add(in *core.Incoming) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
		c.surplus = append(c.surplus, string(in.Body))
	}
}

// state returns how many are missing, and a list of them.
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

// conclude checks what has arrived, and returns it.
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

// drain takes and completes messages until each of the bodies has come as often
// as it is named, and returns the messages.
func (r *receiver) drain(want ...string) []*core.Incoming {
	c := r.t.census(want)
	r.drainInto(c)
	return c.conclude(r.t)
}

// drainInto takes and completes messages until nothing is missing.
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
	for _, d := range deliveries {
		c.add(d.Incoming())
	}
	t.complete(deliveries...)
}

// drainTogether is drain by several calls of Receive at once: one goroutine for
// each element of brief, which take turns at the receivers. The first calls of a
// goroutine last no longer than its elements.
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

// count receives and completes until ctx ends. It runs beside the case, and
// stops nothing.
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
		for _, d := range dst[:n] {
			c.add(d.Incoming())
			settling, cancel := r.t.patient()
			if err := d.Complete(settling); err != nil {
				r.t.fail("Complete returns nil for a delivery that is held", "%v%s", err, lockEndedAgo(d))
			}
			cancel()
		}
	}
}

// received takes messages with different ids that were sent, and returns what is
// delivered of each.
func (t *trial) received(transport core.Transport, queue string, sent ...core.Outgoing) []*core.Incoming {
	r := t.receiver(transport, queue, 16)
	arrived := make([]*core.Incoming, len(sent))
	for missing := len(sent); missing > 0; {
		d := r.next()
		in := d.Incoming()
		t.complete(d)
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

// unchanged checks that messages arrive exactly as they were sent.
func (t *trial) unchanged(transport core.Transport, queue string, sent ...core.Outgoing) {
	t.send(transport, sent...)
	t.arriveUnchanged(transport, queue, sent...)
}

// arriveUnchanged checks it of messages that were sent before.
func (t *trial) arriveUnchanged(transport core.Transport, queue string, sent ...core.Outgoing) {
	for i, in := range t.received(transport, queue, sent...) {
		t.same(in, sent[i])
	}
}

// renew keeps what is held, where its lock ends by itself.
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

// answer is what one call of Receive returned.
type answer struct {
	deliveries []core.Delivery
	err        error
	at         time.Time
}

// ask lets a call of Receive wait beside the case.
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

// soonAnswered returns what a call returned that was to return soon, since what
// has just happened.
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

// receiving calls Receive until the case ends or something is received.
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

// takeThese returns the deliveries of the messages with these bodies, and stops
// the case when another message is delivered instead, or one of them twice.
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

// nobodyGets checks that what is gone does not come to the receivers, where the
// broker itself makes no duplicates.
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

// collect completes what is delivered, until enough of it says so. It reports
// whether that was within the limit.
func (r *receiver) collect(limit time.Duration, enough func(d core.Delivery) bool) bool {
	return r.each(limit, func(d core.Delivery) bool {
		r.t.complete(d)
		return enough(d)
	})
}

// each calls do for what is delivered, at least until do says that it is enough.
// It reports whether that was within the limit.
func (r *receiver) each(limit time.Duration, do func(d core.Delivery) (enough bool)) bool {
	ctx, cancel := context.WithTimeout(r.t.ctx, limit)
	defer cancel()
	for {
		got, err := r.batch(ctx, r.size)
		if err != nil {
			return false
		}
		enough := false
		for _, d := range got {
			enough = do(d) || enough
		}
		if enough {
			return true
		}
	}
}
