package conformance

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

// settleSome receives six messages, completes two, abandons two and releases two. It
// returns the bodies of the messages that must be redelivered.
func (t *trial) settleSome(transport core.Transport, r *receiver) []string {
	names := []string{"completed 1", "abandoned 1", "released 1", "completed 2", "abandoned 2", "released 2"}
	t.sendEach(transport, r.queue, names...)
	held := r.takeThese("six messages are delivered", names...)
	t.complete(held["completed 2"], held["completed 1"])
	t.abandon(held["abandoned 1"], held["abandoned 2"])
	t.release(held["released 1"], held["released 2"])
	return []string{"abandoned 1", "released 1", "abandoned 2", "released 2"}
}

const othersComeAgain = "what was abandoned and released comes again, each once, and what was completed does not"

var completionCases = []testCase{
	{rule: "C7", title: "a completed message does not come again", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		for _, d := range r.takeThese(othersComeAgain, t.settleSome(transport, r)...) {
			t.complete(d)
		}
		t.nobodyGets("what was completed comes to nobody", r, t.receiver(transport, queue, 8), t.receiver(t.open(), queue, 8))
	}},
	{rule: "C7", title: "a completed message does not come again after its receiver was closed", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		back := t.settleSome(transport, r)
		r.shut()
		again := t.receiver(transport, queue, 8)
		for _, d := range again.takeThese(othersComeAgain, back...) {
			t.complete(d)
		}
		again.shut()
		t.left(queue, "after all were completed, and their receivers closed")
	}},
	{rule: "C7", title: "a completed message does not come again after a restart of the process", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		back := t.settleSome(transport, t.receiver(transport, queue, 8))
		t.close(transport)
		transport = t.open()
		for _, d := range t.receiver(transport, queue, 8).takeThese(othersComeAgain, back...) {
			t.complete(d)
		}
		t.close(transport)
		t.left(queue, "after all were completed, and their transports closed")
	}},
	{rule: "C7", title: "a completed message does not come again when its lock would have ended", in: givingBack, needs: []need{locks}, shortLocks: true, run: func(t *trial) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		r := t.receiver(transport, queue, 8)
		ways := slices.DeleteFunc(t.waysToSettle(out), func(way wayToSettle) bool { return !way.consumes })
		var names []string
		for _, way := range ways {
			names = append(names, way.name)
		}
		t.sendEach(transport, queue, names...)
		held := r.takeThese("the messages are delivered", names...)
		ends := time.Now()
		for _, way := range ways {
			d := held[way.name]
			t.needsLock(d)
			if until := d.LockedUntil(); until.After(ends) {
				ends = until
			}
			if err := t.trySettling(way, d); err != nil {
				t.stop(way.name+" settles a delivery that is held", "%v", err)
			}
		}
		t.rest(time.Until(ends) + t.quiet()/2)
		t.nobodyGets("what was consumed does not come again when its lock would have ended", r)
		r.shut()
		t.left(queue, "after the messages were consumed and their locks would have ended")
	}},
	{rule: "C7", title: "of a batch exactly what is not completed comes again", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		names := []string{"unsettled 1", "released 1", "abandoned 1", "completed 1", "unsettled 2", "completed 2", "abandoned 2", "released 2"}
		t.sendEach(transport, queue, names...)
		held := r.takeThese("eight messages are delivered", names...)
		r.SetMaxInFlight(0) // this receiver must not fetch them again
		// The later ones first, because some brokers can settle all messages up to a
		// given one.
		t.complete(held["completed 2"], held["completed 1"])
		t.abandon(held["abandoned 2"], held["abandoned 1"])
		t.release(held["released 2"], held["released 1"])
		other := t.receiver(t.open(), queue, 8)
		again := other.takeThese("what was abandoned and released goes to another receiver", "released 1", "abandoned 1", "abandoned 2", "released 2")
		t.nobodyGets("what is completed or still held comes to nobody", other)
		r.shut()
		for _, d := range other.takeThese("what was unsettled when its receiver was closed goes to another one", "unsettled 1", "unsettled 2") {
			t.complete(d)
		}
		for _, d := range again {
			t.complete(d)
		}
		other.shut()
		t.left(queue, "after all were completed")
	}},
	{rule: "C7", title: "every message is completed once, whatever is abandoned, released and closed on the way", in: givingBack, run: completeAllAtRandom},
	{rule: "C7", title: "a settlement whose context has ended happens or does not", run: func(t *trial) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		r := t.receiver(transport, queue, 8)
		ways := t.waysToSettle(out)
		var names []string
		for _, way := range ways {
			names = append(names, way.name)
		}
		t.sendEach(transport, queue, names...)
		held := r.takeThese("the messages are delivered", names...)
		ended, cancel := context.WithCancel(t.ctx)
		cancel()
		var back, sent []string
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
				back = append(back, way.name)
			} else if t.mode == core.TransactionSendsAtomicWithReceive && way.name != "Complete" && way.name != "DeadLetter" {
				sent = append(sent, way.name+" for "+way.name)
			}
		}
		if t.mode == core.TransactionNone {
			back = nil
		}
		for _, d := range r.takeThese("what was not consumed comes again, whatever context its settlement had", back...) {
			t.complete(d)
		}
		r.shut()
		t.left(queue, "after all were completed")
		t.left(out, "what was sent by CompleteWith and ReplaceWith, once each", sent...)
	}},
	{rule: "C7", title: "in mode None a message is consumed before it is handed out", in: inNone, shortLocks: true, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "a", "b", "c", "d")
		began := time.Now()
		r := t.receiver(transport, queue, 4)
		r.takeThese("four messages are delivered", "a", "b", "c", "d")
		t.nobodyGets("what was received in mode None does not come again", r)
		r.shut()
		t.close(transport)
		// A message that is not consumed is redelivered when its lock ends.
		t.rest(t.lock() - time.Since(began))
		t.left(queue, "after all was received in mode None, and nothing settled")
	}},
	{rule: "C7", title: "in mode None settlements give nothing back", in: inNone, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "completed", "abandoned", "released")
		r := t.receiver(transport, queue, 4)
		held := r.takeThese("three messages are delivered", "completed", "abandoned", "released")
		t.complete(held["completed"])
		t.abandon(held["abandoned"])
		t.release(held["released"])
		t.nobodyGets("what was received in mode None does not come again, however it is settled", r)
		r.shut()
		t.left(queue, "after a message was abandoned and another released in mode None")
	}},
}

// completeAllAtRandom lets four receivers on two transports settle at random until each
// message has been completed.
func completeAllAtRandom(t *trial) {
	const messages, receivers = 240, 4
	queue := t.queue(t.open())
	transports := []core.Transport{t.open(), t.open()}
	names := make([]string, messages)
	for i := range names {
		names[i] = fmt.Sprintf("message %d", i)
	}
	t.sendEach(transports[0], queue, names...)
	ctx, cancel := t.patient()
	defer cancel()
	var completed tally
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
		t.beside(&working, func() { w.work(ctx) })
	}
	working.Wait()
	t.completedOnce(names, &completed, queue)
}

// completedOnce checks the messages that several receivers have completed.
func (t *trial) completedOnce(names []string, completed *tally, queue string) {
	var missing, twice []string
	for _, name := range names {
		switch n := completed.of(name); {
		case n == 0:
			missing = append(missing, name)
		case n > 1 && !t.caps.MayDuplicate:
			twice = append(twice, name)
		}
	}
	if len(missing) > 0 {
		t.fail(fmt.Sprintf("each of %d messages is completed within %v, because none is lost", len(names), t.patience()), "%d are missing: %s", len(missing), some(missing))
	}
	if len(twice) > 0 {
		t.fail("a message is completed once, by one receiver alone", "more often: %s", some(twice))
	}
	if len(missing) == 0 && !t.caps.MayDuplicate {
		t.left(queue, "after all were completed")
	}
}

// randomWorker receives messages and settles them at random.
type randomWorker struct {
	t         *trial
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
		closing, cancel := w.t.patient()
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
	ctx, cancel := w.t.patient()
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
