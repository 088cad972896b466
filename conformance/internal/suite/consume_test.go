package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// readers are all helpers of cases that read a queue until it is empty. Each checks
// that it holds the messages, once each.
var readers = map[string]func(t *caseT, transport core.Transport, queue string, sent []core.Outgoing){
	"wantLeft": func(t *caseT, _ core.Transport, queue string, sent []core.Outgoing) {
		t.wantLeft(queue, "after the Send", bodiesOf(sent)...)
	},
	"wantContents": func(t *caseT, _ core.Transport, queue string, sent []core.Outgoing) {
		t.wantContents(queue, "the sent messages", bodiesOf(sent), nil)
	},
	"wantArrivals": func(t *caseT, _ core.Transport, queue string, sent []core.Outgoing) {
		t.wantArrivals(queue, "the sent messages arrive", len(sent))
	},
	"drain": func(t *caseT, transport core.Transport, queue string, sent []core.Outgoing) {
		t.receiver(transport, queue, 16).drain(bodiesOf(sent)...)
	},
	"drainConcurrently": func(t *caseT, transport core.Transport, queue string, sent []core.Outgoing) {
		t.drainConcurrently(bodiesOf(sent), make([][]time.Duration, 4), t.receiver(transport, queue, 16), t.receiver(transport, queue, 16))
	},
	"received": func(t *caseT, transport core.Transport, queue string, sent []core.Outgoing) {
		t.received(transport, queue, sent...)
	},
	"collect": func(t *caseT, transport core.Transport, queue string, sent []core.Outgoing) {
		counts := map[string]int{}
		r := t.receiver(transport, queue, 16)
		r.collect(t.timeout(), func(in *core.Incoming) bool {
			counts[in.ID]++
			return len(counts) == len(sent)
		})
		r.collect(t.quietPeriod(), func(in *core.Incoming) bool { // redeliveries of the last ones
			counts[in.ID]++
			return false
		})
		for _, m := range sent {
			if n := counts[m.ID]; n != 1 {
				t.fail("each message is collected once", "%s was %d times", m.ID, n)
			}
		}
	},
}

// pastLock waits until the lock of a delivery has ended.
func pastLock(d *brokenDelivery) { time.Sleep(time.Until(d.LockedUntil()) + time.Millisecond) }

// readLate lets a reader read eight messages in a bubble. complete replaces the first
// call of Complete for each of them.
func readLate(t *testing.T, read func(t *caseT, transport core.Transport, queue string, sent []core.Outgoing), complete func(d *brokenDelivery, next func() error) error) Result {
	t.Helper()
	var mu sync.Mutex
	known := map[string]bool{}
	isFirst := func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		first := !known[id]
		known[id] = true
		return first
	}
	h := harnessOn(inmemory.Config{LockDuration: 2 * time.Second}, changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Complete" && string(d.in.Body) != "probe" && isFirst(d.in.ID) {
			return complete(d, next)
		}
		return next()
	}})
	h.Timeout = 10 * time.Second // of the bubble
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	return s.runCase(t, &testCase{rule: "C7", title: "reads", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 8)
		t.send(transport, sent...)
		read(t, transport, queue, sent)
		t.wantLeft(queue, "after it was read")
	}}, core.TransactionReceiveOnly)
}

func TestReaders_CountMessageWhoseLockEndedOnce(t *testing.T) {
	t.Parallel()
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lateReads atomic.Int64
			r := readLate(t, read, func(d *brokenDelivery, next func() error) error {
				pastLock(d)
				err := next()
				if errors.Is(err, core.ErrLockLost) {
					lateReads.Add(1)
				}
				return err
			})
			if r.Outcome != Passed || len(notesAbout(r, "run again")) > 0 {
				t.Errorf("the case is %s, want passed at its first attempt: %v, %q", r.Outcome, r.Failures, r.Notes)
			}
			if lateReads.Load() == 0 {
				t.Error("no lock had ended before Complete")
			}
		})
	}
}

func TestReaders_NoticeLostMessage(t *testing.T) {
	t.Parallel()
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := readLate(t, read, func(d *brokenDelivery, next func() error) error {
				if string(d.in.Body) != "body 3" {
					return next()
				}
				err := next() // and it is not redelivered
				pastLock(d)
				return cmp.Or(err, core.ErrLockLost)
			})
			if r.Outcome != Failed {
				t.Errorf("the case is %s, want failed, because a message was lost", r.Outcome)
			}
		})
	}
}

func TestReaders_NoticeLockThatIsLostTooEarly(t *testing.T) {
	t.Parallel()
	h := harnessOn(inmemory.Config{LockDuration: time.Minute}, changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Complete" && string(d.in.Body) != "probe" && d.in.DeliveryCount == 1 {
			_ = d.Delivery.Abandon(ctxBackground, errHandler)
			return core.ErrLockLost
		}
		return next()
	}})
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	r := s.runCase(t, &testCase{rule: "C7", title: "reads", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "a")
		t.wantLeft(queue, "after the Send", "a")
	}}, core.TransactionReceiveOnly)
	if r.Outcome != Failed {
		t.Errorf("the case is %s, want failed, because no lock had ended", r.Outcome)
	}
}

// TestReaders_CompleteAtOnce lets each Complete wait for the others.
func TestReaders_CompleteAtOnce(t *testing.T) {
	t.Parallel()
	const messages = 8
	var together sync.WaitGroup
	h := harnessOn(inmemory.Config{}, changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Complete" && d.in.Headers.Get("Together") != "" {
			together.Done()
			together.Wait()
		}
		return next()
	}})
	h.Synctest = false
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	together.Add(messages)
	r := s.runCase(t, &testCase{rule: "C7", title: "reads", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, messages)
		for i := range sent {
			sent[i].Headers.Set("Together", fmt.Sprint(i))
		}
		t.send(transport, sent...)
		ctx, cancel := context.WithTimeout(t.ctx, t.timeout())
		defer cancel()
		done := make(chan struct{})
		t.goGuarded(func() {
			defer close(done)
			t.wantLeft(queue, "after the Send", bodiesOf(sent)...)
		})
		select {
		case <-done:
		case <-ctx.Done():
			t.stop("the deliveries of one Receive are completed at once", "they are completed one after the other")
		}
	}}, core.TransactionReceiveOnly)
	if r.Outcome != Passed {
		t.Errorf("the case is %s, want passed: %v", r.Outcome, r.Failures)
	}
}
