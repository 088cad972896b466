package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

var receiveCases = []testCase{
	{rule: "C3", title: "a message wakes a waiting Receive", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sender := t.open()
		r := t.receiver(transport, queue, 4)
		for i := range 3 { // during the first, a connection may still be opened
			ctx, cancel := t.withTimeout()
			waiting := r.receiveAsync(ctx, 100) // for more messages than will arrive
			t.sleep(t.quietPeriod())
			m := t.message(queue, fmt.Sprintf("body %d", i))
			t.send(sender, m)
			a := t.awaitResult(waiting, "Receive returns a message soon after it was sent, without waiting for more")
			cancel()
			if a.err != nil || len(a.deliveries) != 1 {
				t.stop("Receive returns the message that was sent while it waited", "%d deliveries, %v", len(a.deliveries), a.err)
			}
			t.wantSame(a.deliveries[0].Incoming(), m)
			t.complete(a.deliveries...)
		}
	}},
	{rule: "C3", title: "Receive returns no more deliveries than its slice has room for", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 60)
		t.send(transport, sent...)
		r := t.receiver(transport, queue, 100)
		c := t.collector(bodiesOf(sent))
		for _, size := range []int{1, 1, 3, 10, 1, 100, 1} {
			backing := make([]core.Delivery, size+5)
			ctx, cancel := t.withTimeout()
			n, err := r.Receive(ctx, backing[:size]) // the capacity of dst is larger
			cancel()
			if n < 1 || n > size || err != nil {
				t.stop(fmt.Sprintf("Receive with messages waiting fills 1..%d elements", size), "%d, %v", n, err)
			}
			for _, d := range backing[size:] {
				if d != nil {
					t.stop("Receive writes nothing behind the length of its slice", "it wrote %q there", d.Incoming().Body)
				}
			}
			c.consume(t, backing[:n])
			if missing, _ := c.state(); missing == 0 {
				break
			}
		}
		r.drainInto(c)
		c.check(t)
	}},
	{rule: "C3", title: "Receive keeps no reference to its slice", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 16)
		t.send(transport, t.message(queue, "first"))
		dst := make([]core.Delivery, 5)
		ctx, cancel := t.withTimeout()
		defer cancel()
		n, err := r.Receive(ctx, dst)
		if n != 1 || err != nil {
			t.stop("Receive returns the one message of the queue", "%d, %v", n, err)
		}
		first := dst[0]
		clear(dst) // the slice belongs to the caller again
		t.send(transport, t.messages(queue, 6)...)
		others := r.take(6)
		for i, d := range dst {
			if d != nil {
				t.fail("Receive does not write to the slice of an earlier call", "element %d became %q", i, d.Incoming().Body)
			}
		}
		t.complete(append(others, first)...)
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C3", title: "no Receive returns more than MaxReceiveBatch", needs: []need{receiveBatch}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		limit := t.caps.MaxReceiveBatch
		sent := t.messages(queue, min(3*limit, 500))
		t.send(transport, sent...)
		r := t.receiver(transport, queue, 2*len(sent))
		c := t.collector(bodiesOf(sent))
		for missing := len(sent); missing > 0; missing, _ = c.state() {
			ctx, cancel := t.withTimeout()
			got, err := r.batch(ctx, 2*limit)
			cancel()
			if err != nil {
				break
			}
			if len(got) > limit {
				t.fail(fmt.Sprintf("Receive returns at most MaxReceiveBatch deliveries, %d", limit), "%d", len(got))
			}
			c.consume(t, got)
		}
		c.check(t)
	}},
	{rule: "C3", title: "a Receive returns when its context ends", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 4)
		for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
			ctx, cancel := context.WithCancel(t.ctx)
			if errors.Is(end, context.DeadlineExceeded) {
				cancel()
				ctx, cancel = context.WithTimeout(t.ctx, t.quietPeriod())
			}
			waiting := r.receiveAsync(ctx, 8)
			t.sleep(t.quietPeriod())
			if errors.Is(end, context.Canceled) {
				cancel()
			}
			a := t.awaitResult(waiting, "Receive returns soon after its context has ended, also while it waits")
			cancel()
			if len(a.deliveries) > 0 || !errors.Is(a.err, end) {
				t.fail(fmt.Sprintf("Receive on an empty queue returns 0 and an error matching that of its context, %q", end), "%d, %v", len(a.deliveries), a.err)
			}
		}
		m := t.message(queue, "afterwards")
		t.send(transport, m)
		d := r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
	}},
	{rule: "C3", title: "a Receive whose context has ended loses nothing", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 10)
		t.send(transport, sent...)
		r := t.receiver(transport, queue, 16)
		c := t.collector(bodiesOf(sent))
		ended, cancel := context.WithCancel(t.ctx)
		cancel()
		for range 20 {
			waiting := r.receiveAsync(ended, 2)
			a := t.awaitResult(waiting, "Receive returns soon when its context has ended before")
			switch {
			case len(a.deliveries) == 0 && !errors.Is(a.err, context.Canceled), len(a.deliveries) > 0 && a.err != nil:
				t.stop("Receive with a context that has ended returns deliveries, or an error matching that of its context", "%d deliveries, %v", len(a.deliveries), a.err)
			}
			c.consume(t, a.deliveries)
		}
		r.drainInto(c)
		t.wantFirstDeliveries(c.check(t))
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C3", title: "a storm of cancelled Receives loses nothing", modes: withRedelivery, slow: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		one, other := t.receiver(transport, queue, 16), t.receiver(t.open(), queue, 16)
		t.storm(queue, 80, 6, one, other, one) // two thirds of the calls go to one receiver
		one.close()
		other.close()
		// With many calls, a call always waits for the messages that another call has
		// left.
		alone := t.receiver(transport, queue, 16)
		t.storm(queue, 40, 1, alone)
		alone.close()
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C3", title: "Receive may be called concurrently", slow: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 200)
		t.send(transport, sent[:100]...)
		r := t.receiver(transport, queue, 64)
		var sending sync.WaitGroup
		defer sending.Wait()
		t.goInGroup(&sending, func() {
			for _, m := range sent[100:] {
				if err := t.trySend(transport, m); err != nil {
					t.fail("Send accepts messages", "%v", err)
				}
			}
		})
		t.drainConcurrently(bodiesOf(sent), make([][]time.Duration, 8), r)
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C3", title: "a large backlog is delivered to the last message", slow: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 2000)
		for batch := 0; batch < len(sent); batch += 100 {
			t.send(transport, sent[batch:batch+100]...)
		}
		r := t.receiver(transport, queue, 128)
		r.size = 32
		t.drainConcurrently(bodiesOf(sent), make([][]time.Duration, 8), r)
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C3", title: "receivers of one transport receive only from their own queues", run: func(t *caseT) {
		transport := t.open()
		var receivers []*receiver
		var want [][]string
		for i := range 3 {
			queue := t.queue(transport)
			var sent []core.Outgoing
			for j := range 15 {
				sent = append(sent, t.message(queue, fmt.Sprintf("queue %d, message %d", i, j)))
			}
			t.send(transport, sent...)
			receivers = append(receivers, t.receiver(transport, queue, 8))
			want = append(want, bodiesOf(sent))
		}
		for i, r := range receivers {
			r.drain(want[i]...)
		}
		for _, r := range receivers {
			t.wantLeft(r.queue, "after all messages were taken")
		}
	}},
	{rule: "C3", title: "OpenReceiver of a queue that does not exist is an error", run: func(t *caseT) {
		transport := t.open()
		queue := t.uniqueName()
		opened := make(chan error, 1)
		t.goGuarded(func() {
			defer close(opened)
			opened <- t.tryOpening(transport, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1})
		})
		select {
		case err := <-opened:
			if !errors.Is(err, core.ErrQueueNotFound) {
				t.fail("OpenReceiver of a queue that does not exist returns an error matching core.ErrQueueNotFound", "%v", err)
			}
		case <-time.After(t.shortTimeout()):
			t.fail("OpenReceiver of a queue that does not exist returns its error at once, because waiting cannot fix it", "it has not after %v", t.shortTimeout())
		}
		t.receiver(transport, t.queue(transport), 1).wantSilence("nothing is delivered from a queue that is empty")
	}},
	{rule: "C3", title: "MaxInFlight is at least 1", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		for _, n := range []int{0, -1} {
			if err := t.tryOpening(transport, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: n}); err == nil || errors.Is(err, errNeither) {
				t.fail(fmt.Sprintf("OpenReceiver refuses MaxInFlight %d", n), "%v", err)
			}
		}
	}},
}

// storm sends batches of messages during many calls of Receive. The callers, whose
// contexts end soon, take turns at the receivers.
func (t *caseT) storm(queue string, many, callers int, receivers ...*receiver) {
	sender := t.open()
	var batches [][]core.Outgoing
	var pauses []time.Duration
	var want []string
	for i := range many {
		batch := t.messages(queue, 1+t.random.IntN(3))
		for j := range batch {
			batch[j].Body = fmt.Appendf(nil, "batch %d, message %d, for %d callers", i, j, callers)
		}
		batches = append(batches, batch)
		pauses = append(pauses, time.Duration(t.random.IntN(8))*time.Millisecond)
		want = append(want, bodiesOf(batch)...)
	}
	brief := make([][]time.Duration, callers)
	for i := range brief {
		for range 60 {
			brief[i] = append(brief[i], time.Duration(t.random.IntN(12))*time.Millisecond)
		}
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	t.goInGroup(&sending, func() {
		for i, batch := range batches {
			if err := t.trySend(sender, batch...); err != nil {
				t.fail("Send accepts messages", "%v", err)
			}
			t.sleep(pauses[i])
		}
	})
	t.wantFirstDeliveries(t.drainConcurrently(want, brief, receivers...))
}
