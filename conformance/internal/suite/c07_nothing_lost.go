package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// settleBatch receives six messages, completes two, abandons two and releases two. It
// returns the bodies of the messages that must be redelivered.
func (t *caseT) settleBatch(transport core.Transport, r *receiver) []string {
	names := []string{"completed 1", "abandoned 1", "released 1", "completed 2", "abandoned 2", "released 2"}
	t.sendEach(transport, r.queue, names...)
	held := r.takeBodies("six messages are delivered", names...)
	t.complete(held["completed 2"], held["completed 1"])
	t.abandon(held["abandoned 1"], held["abandoned 2"])
	t.release(held["released 1"], held["released 2"])
	return []string{"abandoned 1", "released 1", "abandoned 2", "released 2"}
}

const othersAreRedelivered = "abandoned and released messages are redelivered once, and completed ones are not"

var nothingLostCases = []testCase{
	{rule: "C7", title: "a completed message is not redelivered", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		for _, d := range r.takeBodies(othersAreRedelivered, t.settleBatch(transport, r)...) {
			t.complete(d)
		}
		t.wantNoneDelivered("completed messages are not redelivered", r, t.receiver(transport, queue, 8), t.receiver(t.open(), queue, 8))
	}},
	{rule: "C7", title: "a completed message is not redelivered after its receiver was closed", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		redelivered := t.settleBatch(transport, r)
		r.close()
		second := t.receiver(transport, queue, 8)
		for _, d := range second.takeBodies(othersAreRedelivered, redelivered...) {
			t.complete(d)
		}
		second.close()
		t.wantLeft(queue, "after all were completed, and their receivers closed")
	}},
	{rule: "C7", title: "a completed message is not redelivered after a restart of the process", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		redelivered := t.settleBatch(transport, t.receiver(transport, queue, 8))
		t.close(transport)
		transport = t.open()
		for _, d := range t.receiver(transport, queue, 8).takeBodies(othersAreRedelivered, redelivered...) {
			t.complete(d)
		}
		t.close(transport)
		t.wantLeft(queue, "after all were completed, and their transports closed")
	}},
	{rule: "C7", title: "a completed message is not redelivered after the time of its lock", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		r := t.receiver(transport, queue, 8)
		ways := slices.DeleteFunc(t.waysToSettle(out), func(way wayToSettle) bool { return !way.consumes })
		var names []string
		for _, way := range ways {
			names = append(names, way.name)
		}
		t.sendEach(transport, queue, names...)
		held := r.takeBodies("the messages are delivered", names...)
		ends := time.Now()
		for _, way := range ways {
			d := held[way.name]
			t.needLock(d)
			if lockedUntil := d.LockedUntil(); lockedUntil.After(ends) {
				ends = lockedUntil
			}
			if err := t.trySettling(way, d); err != nil {
				t.stop(way.name+" settles a delivery that is held", "%v", err)
			}
		}
		t.sleep(time.Until(ends) + t.quietPeriod()/2)
		t.wantNoneDelivered("a consumed message is not redelivered after the time of its lock", r)
		r.close()
		t.wantLeft(queue, "after the messages were consumed and their locks would have ended")
	}},
	{rule: "C7", title: "exactly the messages of a batch that are not completed are redelivered", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		names := []string{"unsettled 1", "released 1", "abandoned 1", "completed 1", "unsettled 2", "completed 2", "abandoned 2", "released 2"}
		t.sendEach(transport, queue, names...)
		held := r.takeBodies("eight messages are delivered", names...)
		r.SetMaxInFlight(0) // this receiver must not fetch them again
		// The later ones first, because some brokers can settle all messages up to a
		// given one.
		t.complete(held["completed 2"], held["completed 1"])
		t.abandon(held["abandoned 2"], held["abandoned 1"])
		t.release(held["released 2"], held["released 1"])
		other := t.receiver(t.open(), queue, 8)
		redelivered := other.takeBodies("abandoned and released messages go to another receiver", "released 1", "abandoned 1", "abandoned 2", "released 2")
		t.wantNoneDelivered("messages that are completed or in flight go to no other receiver", other)
		r.close()
		for _, d := range other.takeBodies("messages that were unsettled when their receiver was closed go to another one", "unsettled 1", "unsettled 2") {
			t.complete(d)
		}
		for _, d := range redelivered {
			t.complete(d)
		}
		other.close()
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C7", title: "messages that are abandoned, released and closed at random are each completed once", modes: withRedelivery, run: completeAllAtRandom},
	{rule: "C7", title: "a settlement whose context has ended happens or does not", run: func(t *caseT) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		r := t.receiver(transport, queue, 8)
		ways := t.waysToSettle(out)
		var names []string
		for _, way := range ways {
			names = append(names, way.name)
		}
		t.sendEach(transport, queue, names...)
		held := r.takeBodies("the messages are delivered", names...)
		ended, cancel := context.WithCancel(t.ctx)
		cancel()
		var redelivered, sent []string
		for _, way := range ways {
			first := way.do(ended, held[way.name])
			second := t.trySettling(way, held[way.name])
			gone := way.consumes
			switch {
			case first == nil:
				if !errors.Is(second, core.ErrSettled) {
					t.fail(way.name+" that returned nil, although its context had ended, has settled the delivery: another one returns core.ErrSettled", "%v", second)
				}
			case errors.Is(first, core.ErrSettled) || errors.Is(first, core.ErrLockLost):
				t.fail(way.name+" of a delivery that is held, with a context that has ended, returns nil or that context's error", "%v", first)
			case errors.Is(second, core.ErrLockLost):
				gone = false // for example, the lock was lost with the connection
			case second != nil:
				t.fail(fmt.Sprintf("%s that returned %q has left the delivery unsettled: another one settles it", way.name, first), "%v", second)
			}
			if !gone {
				redelivered = append(redelivered, way.name)
			} else if t.mode == core.TransactionSendsAtomicWithReceive && way.name != "Complete" && way.name != "DeadLetter" {
				sent = append(sent, way.name+" for "+way.name)
			}
		}
		if t.mode == core.TransactionNone {
			redelivered = nil
		}
		for _, d := range r.takeBodies("messages that were not consumed are redelivered, with any context of their settlements", redelivered...) {
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after all were completed")
		t.wantLeft(out, "the messages of CompleteWith and ReplaceWith, once each", sent...)
	}},
	{rule: "C7", title: "in mode None a message is consumed before it is delivered", modes: inNone, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "a", "b", "c", "d")
		began := time.Now()
		r := t.receiver(transport, queue, 4)
		r.takeBodies("four messages are delivered", "a", "b", "c", "d")
		t.wantNoneDelivered("a message that was received in mode None is not redelivered", r)
		r.close()
		t.close(transport)
		// A message that is not consumed is redelivered when its lock ends.
		t.sleep(t.lock() - time.Since(began))
		t.wantLeft(queue, "after all was received in mode None, and nothing settled")
	}},
	{rule: "C7", title: "in mode None no settlement causes a redelivery", modes: inNone, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "completed", "abandoned", "released")
		r := t.receiver(transport, queue, 4)
		held := r.takeBodies("three messages are delivered", "completed", "abandoned", "released")
		t.complete(held["completed"])
		t.abandon(held["abandoned"])
		t.release(held["released"])
		t.wantNoneDelivered("a message that was received in mode None is not redelivered after any settlement", r)
		r.close()
		t.wantLeft(queue, "after a message was abandoned and another released in mode None")
	}},
	{rule: "C7", title: "a message that a killed process handled but did not settle is redelivered", modes: withRedelivery, needs: []need{processes}, run: func(t *caseT) {
		w := t.workerFixture(4)
		sent := t.command(w.queue, workType, "work")
		t.send(t.open(), sent)
		w.HoldSettlement = true
		first := t.startWorker(w.workerSpec)
		first.awaitEvent(isSettling, t.timeout())
		first.kill()
		w.HoldSettlement = false
		second := t.startWorker(w.workerSpec)
		second.awaitEvent(hasSettled, t.redeliveryTimeout())
		t.sleep(t.quietPeriod()) // so that a third delivery would be noticed
		second.shutdown()
		copies := len(t.contents(w.forward, 1))
		switch {
		case copies == 0, copies > 1 && t.mode == core.TransactionSendsAtomicWithReceive && !t.caps.MayDuplicate:
			t.fail(fmt.Sprintf("the message is handled again by the next process, and the handler's message arrives: %s", t.arrivalFrequency()), "it arrived %d times", copies)
		case copies > 1:
			t.note("the handler's message arrived %d times", copies)
		}
		t.wantDrained(w)
	}},
	{rule: "C7", title: "in mode None a message that a killed process was handling is not redelivered", modes: inNone, needs: []need{processes}, run: func(t *caseT) {
		w := t.workerFixture(1)
		t.send(t.open(), t.command(w.queue, workType, "work"))
		w.HoldSettlement = true
		first := t.startWorker(w.workerSpec)
		first.awaitEvent(isSettling, t.timeout())
		first.kill()
		w.HoldSettlement = false
		second := t.startWorker(w.workerSpec)
		second.awaitEvent(isReady, t.timeout())
		t.sleep(min(t.lock(), t.quietPeriod()) + t.quietPeriod())
		second.shutdown()
		for _, e := range second.allEvents() {
			if e.Kind == isHandling && !t.caps.MayDuplicate {
				t.fail("in None a message is consumed before it is handed out, so that the next process does not get it", "the next process handled it")
			}
		}
		t.note("of a message that was handled in None when its process was killed, %d of 1 sent messages arrived", len(t.contents(w.forward, 0)))
		t.wantDrained(w)
	}},
	{rule: "C7", title: "no message is lost when processes are killed at random", modes: inReceiveOnly, needs: []need{processes}, run: func(t *caseT) {
		t.killAtRandom()
	}},
	{rule: "C7", title: "in mode None no message is redelivered when processes are killed at random", modes: inNone, needs: []need{processes}, run: func(t *caseT) {
		t.killAtRandom()
	}},
	{rule: "C7", title: "waiting messages survive a restart of the broker, and completed ones are not redelivered", modes: withRedelivery, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *caseT) {
		const total, done = 20, 10
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, total)
		t.send(transport, sent...)
		r := t.receiver(transport, queue, done)
		seen := newOutageLog()
		for _, d := range r.take(done) {
			seen.record(d)
			if err := seen.complete(t, d); err != nil {
				t.stop("Complete returns nil for a delivery that is held", "%v", err)
			}
		}
		broker.restart()
		r.close()
		other := t.receiver(t.open(), queue, 8)
		seen.drain(other, total)
		if delivered := len(seen.deliveries); delivered != total {
			t.fail(fmt.Sprintf("Durable is claimed, so all %d messages are delivered, before the restart or after it", total), "%d are", delivered)
		}
		if seen.redelivered > 0 && t.caps.ConfirmsSettlement && !t.caps.MayDuplicate {
			t.fail("ConfirmsSettlement is claimed, so completed messages are not redelivered after a restart of the broker", "%d of %d messages do", seen.redelivered, done)
		}
	}},
	{rule: "C7", title: "no message is lost when the broker is killed while messages are received", modes: withRedelivery, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *caseT) {
		const total = 60
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, total)...)
		r := t.receiver(transport, queue, 16)
		seen := newOutageLog()
		for range 5 { // so that some messages are settled
			for _, d := range r.take(6) {
				seen.record(d)
				_ = seen.complete(t, d)
			}
		}
		held := r.take(8)
		for _, d := range held {
			seen.record(d)
		}
		broker.kill()
		t.sleep(t.quietPeriod())
		broker.start()
		seen.drain(r, total)
		t.wantNothingLost(seen, total)
	}},
	{rule: "C7", title: "no message is lost when the broker restarts three times under load", modes: withRedelivery, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *caseT) {
		const total, senders = 100, 4
		broker := t.brokerController()
		receives := t.open()
		queue := t.queue(receives)
		r := t.receiver(receives, queue, 16)
		pool := t.startSenders(t.open(), queue, senders, total/senders)
		drained := make(chan *outageLog, 1)
		t.goGuarded(func() {
			seen := newOutageLog()
			defer func() { drained <- seen }()
			ctx, cancel := context.WithTimeout(t.ctx, 3*t.redeliveryTimeout())
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
					seen.record(d)
					_ = seen.complete(t, d)
				}
			}
		})
		for round := range 3 {
			pool.awaitAccepted((round + 1) * total / 5)
			t.sleep(t.randomPause())
			broker.restart()
		}
		pool.wait()
		t.wantNothingLost(<-drained, total)
	}},
}

// completeAllAtRandom lets four receivers on two transports settle at random until each
// message has been completed.
func completeAllAtRandom(t *caseT) {
	const messages, receivers = 240, 4
	queue := t.queue(t.open())
	transports := []core.Transport{t.open(), t.open()}
	names := make([]string, messages)
	for i := range names {
		names[i] = fmt.Sprintf("message %d", i)
	}
	t.sendEach(transports[0], queue, names...)
	ctx, cancel := t.withTimeout()
	defer cancel()
	var completed counter
	var different atomic.Int64
	var working sync.WaitGroup
	for i := range receivers {
		w := randomWorker{
			t: t, transport: transports[i%2], queue: queue,
			random: rand.New(rand.NewPCG(t.random.Uint64(), t.random.Uint64())),
			completed: func(body string) {
				if completed.add(body) == 1 && different.Add(1) == messages {
					cancel()
				}
			},
		}
		t.goInGroup(&working, func() { w.work(ctx) })
	}
	working.Wait()
	t.wantCompletedOnce(names, &completed, queue)
}

// randomWorker receives messages and settles them at random.
type randomWorker struct {
	t         *caseT
	transport core.Transport
	queue     string
	random    *rand.Rand
	completed func(body string)
}

// work runs in a separate goroutine, so it may fail the case but not stop it.
func (w *randomWorker) work(ctx context.Context) {
	for ctx.Err() == nil {
		r, err := w.transport.OpenReceiver(w.t.ctx, core.ReceiverConfig{Queue: w.queue, Mode: w.t.mode, MaxInFlight: 4})
		if err != nil {
			w.t.fail("OpenReceiver opens a receiver again and again", "%v", err)
			return
		}
		goOn := w.receive(ctx, r)
		closing, cancel := w.t.withTimeout()
		if err := r.Close(closing); err != nil {
			w.t.fail("Receiver.Close returns nil", "%v", err)
		}
		cancel()
		if !goOn {
			return
		}
	}
}

// receive receives until it is time to close the receiver. It returns false after an
// error.
func (w *randomWorker) receive(ctx context.Context, r core.Receiver) bool {
	for {
		dst := make([]core.Delivery, 1+w.random.IntN(4))
		n, err := r.Receive(ctx, dst)
		if err != nil {
			if ctx.Err() == nil {
				w.t.fail("Receive returns no error while its context goes on", "%v", err)
			}
			return false
		}
		for _, d := range dst[:n] {
			chance := w.random.IntN(100)
			if chance < 4 {
				return true // Close gives back this delivery and the others
			}
			if !w.settle(d, chance) {
				return false
			}
		}
	}
}

func (w *randomWorker) settle(d core.Delivery, chance int) bool {
	ctx, cancel := w.t.withTimeout()
	defer cancel()
	var err error
	switch {
	case chance < 18:
		err = d.Abandon(ctx, errHandler)
	case chance < 32:
		err = d.Release(ctx)
	default:
		if err = d.Complete(ctx); err == nil {
			w.completed(string(d.Incoming().Body))
		}
	}
	if err != nil && !lockEnded(d, err) {
		w.t.fail("a delivery that is held can be settled", "%v", err)
		return false
	}
	return true
}

// arrivalFrequency says how often messages that a handler sends arrive after a crash.
func (t *caseT) arrivalFrequency() string {
	if t.mode == core.TransactionSendsAtomicWithReceive && !t.caps.MayDuplicate {
		return "once in SendsAtomicWithReceive"
	}
	return "once or more"
}

// wantNothingLost checks a case's messages over an outage.
func (t *caseT) wantNothingLost(seen *outageLog, total int) {
	t.measure("duplicates after broker outages", float64(seen.duplicates()))
	if done := len(seen.done); done != total {
		t.fail(fmt.Sprintf("Durable is claimed, so all %d messages are delivered, again where they were held and not completed when the broker died", total), "%d are not", total-done)
	}
	if seen.redelivered > 0 && t.caps.ConfirmsSettlement && !t.caps.MayDuplicate {
		t.fail("ConfirmsSettlement is claimed, so a message for which Complete returned nil does not come again", "%d deliveries of such messages", seen.redelivered)
	}
}
