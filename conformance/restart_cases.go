package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// The state that a durable broker, and a transport connected to it, keep when the broker
// dies and is started again.

var restartCases = []testCase{
	{rule: "C7", title: "what waits survives a restart of the broker, what was completed does not", in: givingBack, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *trial) {
		const total, done = 20, 10
		o := t.operator()
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, total)
		t.send(transport, sent...)
		r := t.receiver(transport, queue, done)
		seen := newLedger()
		for _, d := range r.take(done) {
			seen.deliver(d)
			if err := seen.complete(t, d); err != nil {
				t.stop("Complete returns nil for a delivery that is held", "%v", err)
			}
		}
		o.restart()
		r.shut()
		other := t.receiver(t.open(), queue, 8)
		seen.drain(other, total)
		if delivered := len(seen.deliveries); delivered != total {
			t.fail(fmt.Sprintf("Durable is claimed, so all %d messages are delivered, before the restart or after it", total), "%d are", delivered)
		}
		if seen.again > 0 && t.caps.ConfirmsSettlement && !t.caps.MayDuplicate {
			t.fail("ConfirmsSettlement is claimed, so what was completed does not come again after a restart of the broker", "%d of %d messages do", seen.again, done)
		}
	}},
	{rule: "C7", title: "nothing is lost when the broker dies while messages are received", in: givingBack, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *trial) {
		const total = 60
		o := t.operator()
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, total)...)
		r := t.receiver(transport, queue, 16)
		seen := newLedger()
		for range 5 { // so that some messages are settled
			for _, d := range r.take(6) {
				seen.deliver(d)
				_ = seen.complete(t, d)
			}
		}
		held := r.take(8)
		for _, d := range held {
			seen.deliver(d)
		}
		o.kill()
		t.rest(t.quiet())
		o.start()
		seen.drain(r, total)
		t.nothingLost(seen, total)
	}},
	{rule: "C7", title: "nothing is lost when the broker restarts three times under load", in: givingBack, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *trial) {
		const total, senders = 100, 4
		o := t.operator()
		receives := t.open()
		queue := t.queue(receives)
		r := t.receiver(receives, queue, 16)
		load := t.sendLoad(t.open(), queue, senders, total/senders)
		drained := make(chan *ledger, 1)
		t.apart(func() {
			seen := newLedger()
			defer func() { drained <- seen }()
			ctx, cancel := context.WithTimeout(t.ctx, 3*t.comesAgain())
			defer cancel()
			dst := make([]core.Delivery, 8)
			for len(seen.done) < total {
				n, err := r.Receive(ctx, dst)
				if err != nil {
					if ctx.Err() == nil {
						t.fail("Receive returns no error while the broker restarts", "%v", err)
					}
					break
				}
				for _, d := range dst[:n] {
					seen.deliver(d)
					_ = seen.complete(t, d)
				}
			}
		})
		for round := range 3 {
			load.until((round + 1) * total / 5)
			t.rest(t.amid())
			o.restart()
		}
		load.wait()
		t.nothingLost(<-drained, total)
	}},
	{rule: "C2", title: "what Send accepted is there when the broker died meanwhile", in: once, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *trial) {
		const total, senders = 100, 4
		o := t.operator()
		transport := t.open()
		queue := t.queue(transport)
		load := t.sendLoad(transport, queue, senders, total/senders)
		for round := range 3 {
			load.until((round + 1) * total / 5)
			t.rest(t.amid())
			o.restart()
		}
		load.wait()
		copies, found := map[string]int{}, t.contents(queue, total)
		for _, in := range found {
			copies[in.ID]++
		}
		missing, doubled := 0, 0
		for id, doubtful := range load.doubtful {
			switch n := copies[id]; {
			case n == 0:
				missing++
			case n > 1 && !doubtful:
				doubled++
			}
		}
		t.measure("copies of messages sent again after an outage", float64(len(found)-len(copies)))
		if missing > 0 {
			t.fail("Durable is claimed, so every message that Send accepted is in its queue after the broker died", "%d of %d are not", missing, total)
		}
		if doubled > 0 && !t.caps.MayDuplicate {
			t.fail("a message that is core.SendRefused was not accepted, so that it is there once when it is sent again (core.SendUnknown may be either)", "%d are there more than once%s", doubled, sayUnknown)
		}
	}},
	{rule: "C12", title: "a commit that the broker's death prevented is made again", in: inAtomic, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *trial) {
		handled, copies := t.dieBeforeSettling()
		if copies != 1 && (copies == 0 || !t.caps.MayDuplicate) {
			t.fail("when the broker dies before CompleteWith, nothing was sent; the message is handled again, and what the handler sends arrives once",
				"handled %d times, arrived %d times", handled, copies)
		}
	}},
	{rule: "R28", title: "a message whose settlement the broker's death prevented is not handled again", in: inReceiveOnly, exclusive: true, needs: []need{brokerControl, durable, nativeCount}, run: func(t *trial) {
		handled, copies := t.dieBeforeSettling()
		if handled != 1 || copies != 1 && !t.caps.MayDuplicate {
			t.fail("when the broker dies after a handler's message was sent and before the settlement, the message that comes again is completed without being handled",
				"handled %d times, arrived %d times", handled, copies)
		}
	}},
	{rule: "C13", title: "a delayed message survives a restart of the broker", in: once, exclusive: true, needs: []need{brokerControl, durable, delays}, run: func(t *trial) {
		o := t.operator()
		transport := t.open()
		queue := t.queue(transport)
		delay := 2*t.caps.DelayPrecision + time.Second
		if t.caps.MaxDelay > 0 {
			delay = min(delay, t.caps.MaxDelay)
		}
		m := t.message(queue, "delayed")
		m.Delay = delay
		start := time.Now()
		t.send(transport, m)
		o.restart()
		var arrived time.Time
		t.receiver(t.open(), queue, 1).collect(delay+t.patience(), func(*core.Incoming) bool {
			arrived = time.Now()
			return true
		})
		expected := fmt.Sprintf("Durable is claimed, so a message with a delay of %v arrives then, although the broker restarts meanwhile", delay)
		switch {
		case arrived.IsZero():
			t.fail(expected, "it did not arrive within %v", delay+t.patience())
		case arrived.Sub(start) < delay:
			t.fail(expected, "after %v", arrived.Sub(start))
		}
	}},
	{rule: "C9", title: "DeliveryCount survives a restart of the broker", in: givingBack, exclusive: true, needs: []need{brokerControl, durable, nativeCount}, run: func(t *trial) {
		o := t.operator()
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "counted"))
		r := t.receiver(transport, queue, 1)
		for range 2 {
			t.abandon(r.next())
		}
		r.shut() // no delivery is unsettled when the broker dies
		t.rest(t.caps.DeliveryCountLag)
		o.restart()
		d := t.receiver(t.open(), queue, 1).next()
		if n := d.Incoming().DeliveryCount; n < 3 || n > 3 && !t.caps.CountsReleases {
			t.fail("NativeDeliveryCount and Durable are claimed, so the DeliveryCount of a message that was abandoned twice is 3 after the broker was killed, at once or DeliveryCountLag later, and started again", "%d", n)
		}
		t.complete(d)
	}},
	{rule: "C19", title: "a subscription survives a restart of the broker", in: once, exclusive: true, needs: []need{brokerControl, durable, publishing}, run: func(t *trial) {
		o := t.operator()
		transport := t.open()
		queue, topic := t.queue(transport), t.uniqueName()
		ctx, cancel := t.patient()
		defer cancel()
		if err := t.subscriber(transport).Subscribe(ctx, queue, topic); err != nil {
			t.stop("Subscribe subscribes a queue to a topic", "%v", err)
		}
		t.rest(t.caps.SubscriptionDelay)
		o.restart()
		event := t.message("", "event")
		event.Topic = topic
		publisher := t.open()
		t.sendEventually(publisher, event)
		if !t.receiver(publisher, queue, 1).collect(t.patience(), func(in *core.Incoming) bool { return in.ID == event.ID }) {
			t.fail("Durable is claimed, so a queue that was subscribed before a restart of the broker gets what is published afterwards", "it does not within %v", t.patience())
		}
	}},
}

// nothingLost checks a case's messages over an outage.
func (t *trial) nothingLost(seen *ledger, total int) {
	t.measure("duplicates after broker outages", float64(seen.duplicates()))
	if done := len(seen.done); done != total {
		t.fail(fmt.Sprintf("Durable is claimed, so all %d messages are delivered, again where they were held and not completed when the broker died", total), "%d are not", total-done)
	}
	if seen.again > 0 && t.caps.ConfirmsSettlement && !t.caps.MayDuplicate {
		t.fail("ConfirmsSettlement is claimed, so a message for which Complete returned nil does not come again", "%d deliveries of such messages", seen.again)
	}
}

// amid returns a random time to wait before the broker dies, so that it dies during an
// operation.
func (t *trial) amid() time.Duration { return time.Duration(t.random.IntN(300)) * time.Microsecond }

// load is sent by several goroutines, one message after the other. Each message is sent
// again until it is accepted.
type load struct {
	t    *trial
	wg   sync.WaitGroup
	news chan struct{} // holds a value when more messages were accepted

	mu sync.Mutex
	// doubtful has the ids of the accepted messages. The value is true if an earlier Send
	// failed to say whether the message had been accepted.
	doubtful map[string]bool
}

func (t *trial) sendLoad(transport core.Transport, queue string, senders, each int) *load {
	l := &load{t: t, news: make(chan struct{}, 1), doubtful: map[string]bool{}}
	for i := range senders {
		msgs := t.messages(queue, each)
		for j := range msgs {
			msgs[j].Body = fmt.Appendf(nil, "%d of sender %d", j, i)
		}
		t.beside(&l.wg, func() {
			for _, m := range msgs {
				l.send(transport, m)
			}
		})
	}
	t.Cleanup(l.wg.Wait)
	return l
}

func (l *load) send(transport core.Transport, m core.Outgoing) {
	doubtful := false
	for pause := time.Millisecond; l.t.ctx.Err() == nil; pause = min(2*pause, 50*time.Millisecond) {
		err := l.t.trySend(transport, m)
		if err == nil {
			l.mu.Lock()
			l.doubtful[m.ID] = doubtful
			l.mu.Unlock()
			select {
			case l.news <- struct{}{}:
			default:
			}
			return
		}
		sent, ok := errors.AsType[*core.SendError](err)
		switch {
		case !ok || len(sent.Results) != 1:
			l.t.fail("Send's error in an outage matches *core.SendError, with a result for each message", "%v", err)
			return
		case sent.Results[0].State != core.SendRefused:
			doubtful = true
		}
		l.t.rest(pause)
	}
}

func (l *load) accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.doubtful)
}

// until waits until n messages were accepted.
func (l *load) until(n int) {
	timer := time.NewTimer(l.t.patience())
	defer timer.Stop()
	for l.accepted() < n {
		select {
		case <-l.news:
		case <-timer.C:
			l.t.stop("Send accepts messages, before and after an outage", "%d were, and then no more within %v", l.accepted(), l.t.patience())
		}
	}
}

// wait waits until all messages are sent.
func (l *load) wait() {
	if !l.t.returns(l.wg.Wait) {
		l.t.stop("Send works again after the outage", "%d messages were accepted, and then no more within %v", l.accepted(), l.t.patience())
	}
}

// dieBeforeSettling lets the broker die after the handler of a message has succeeded and
// before the message is settled. It returns how often the message was handled, and how
// often the handler's message arrived.
func (t *trial) dieBeforeSettling() (handled, copies int) {
	o := t.operator()
	transport := t.open()
	forward := t.queue(transport)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(goOn) })
	reached := sync.OnceFunc(func() { close(arrived) })
	var settled atomic.Bool
	settling := func(settle func() error) error {
		reached()
		<-goOn
		err := settle()
		if err == nil {
			settled.Store(true)
		}
		return err
	}
	queue, errorQueue := t.queue(transport), t.queue(transport)
	through := &interfering{
		Transport: transport,
		complete: func(ctx context.Context, d core.Delivery) error {
			return settling(func() error { return d.Complete(ctx) })
		},
	}
	if t.mode == core.TransactionSendsAtomicWithReceive {
		through.send = func(ctx context.Context, _ []core.Outgoing, next func(context.Context) error) error {
			return settling(func() error { return next(ctx) })
		}
	}
	s := t.serviceOn(through, queue, errorQueue, func(c *core.Config) {
		c.Concurrency = 1
		c.Recoverability.Immediate = core.Immediate{Retries: 5}
	})
	var attempts tally
	s.handle(workType, func(_ context.Context, m *core.Message) error {
		attempts.add(m.ID)
		return m.Send(forward, workType, []byte("forwarded"))
	})
	s.run()
	t.Cleanup(let) // before the endpoint is stopped
	m := t.command(queue, workType, "work")
	t.send(transport, m)
	t.await("a message is handled", func() bool {
		select {
		case <-arrived:
			return true
		default:
			return false
		}
	})
	o.kill()
	t.rest(t.quiet())
	if t.mode != core.TransactionSendsAtomicWithReceive {
		let() // so that the endpoint has the result before the message is redelivered
	}
	o.start()
	t.sendEventually(transport, t.message(t.queue(t.open()), "connected again"))
	let()
	t.await("the message comes again and is settled", settled.Load)
	// At the end no message is left, neither available nor locked.
	t.rest(t.lock())
	deadline := time.Now().Add(t.patience())
	for time.Now().Before(deadline) {
		found := t.contents(forward, 0)
		copies += len(found)
		if len(found) == 0 && copies > 0 && attempts.of(m.ID) > 0 {
			break
		}
	}
	if err := s.stop(); err != nil {
		t.stop("an endpoint goes on after an outage", "Run returned %v", err)
	}
	if !t.caps.MayDuplicate {
		t.left(queue, "after the message was handled")
	}
	t.left(errorQueue, "the error queue, after the message was handled without a failure")
	return attempts.of(m.ID), copies
}
