package inmemory

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// These tests are about internals that cannot be seen from outside: memory, timers, and
// the structures below the queues.

func TestRing_AgreesWithASlice(t *testing.T) {
	var r ring[int]
	var model []int
	for step := range 40_000 {
		grow := 3 + 4*(step/2000%2) // of ten: phases of growth and of shrinking
		switch n := rand.IntN(10); {
		case n < grow && n%2 == 0:
			r.pushBack(step)
			model = append(model, step)
		case n < grow:
			r.pushFront(step)
			model = slices.Insert(model, 0, step)
		default:
			want := 0
			if len(model) > 0 {
				want, model = model[0], model[1:]
			}
			if got := r.popFront(); got != want {
				t.Fatalf("step %d: popFront = %d, want %d", step, got, want)
			}
		}
		if step%1000 == 0 {
			wanted := func(i int) bool { return i%3 != 0 }
			r.keep(wanted)
			model = slices.DeleteFunc(slices.Clone(model), func(i int) bool { return !wanted(i) })
			for i, want := range model {
				if got := r.at(i); got != want {
					t.Fatalf("step %d: at(%d) = %d, want %d", step, i, got, want)
				}
			}
		}
		if r.len() != len(model) {
			t.Fatalf("step %d: len = %d, want %d", step, r.len(), len(model))
		}
	}
}

func TestRing_ReturnsMemory(t *testing.T) {
	var r ring[*int]
	for range 1 << 16 {
		r.pushBack(new(int))
	}
	for range 1 << 16 {
		r.popFront()
	}
	if len(r.items) > 4*minRing {
		t.Errorf("an empty ring keeps %d places", len(r.items))
	}
	for _, item := range r.items {
		if item != nil {
			t.Fatal("an empty ring keeps an element alive")
		}
	}
}

func TestDeadlines_AreInOrder(t *testing.T) {
	var d deadlines
	base := time.Now()
	var all []*message
	for i := range 500 {
		m := &message{seq: uint64(i)}
		d.add(m, base.Add(time.Duration(rand.IntN(50))))
		all = append(all, m)
	}
	for i, m := range all {
		switch i % 4 {
		case 0:
			d.remove(m)
			d.remove(m) // a missing entry is not removed
		case 1:
			d.move(m, base.Add(time.Duration(rand.IntN(50))))
		}
	}
	for i, m := range d {
		if m.place != i+1 {
			t.Fatalf("the message at %d says %d", i, m.place-1)
		}
	}
	var last *message
	for n := len(d); n > 0; n-- {
		m := d[0]
		d.remove(m)
		if m.place != 0 || len(d) != n-1 {
			t.Fatalf("removed: place %d, %d left of %d", m.place, len(d), n)
		}
		if last != nil && (m.deadline.Before(last.deadline) || m.deadline.Equal(last.deadline) && m.seq < last.seq) {
			t.Fatal("out of order")
		}
		last = m
	}
}

func testQueue(t *testing.T, cfg Config) (*Transport, *queue, core.Receiver) {
	t.Helper()
	transport, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close(context.Background()) })
	if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"q"}}); err != nil {
		t.Fatal(err)
	}
	q, err := transport.broker.queue("q")
	if err != nil {
		t.Fatal(err)
	}
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	return transport, q, r
}

// Rule C14.
func TestClose_StopsTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, q, _ := testQueue(t, Config{})
		if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "q", Delay: time.Hour, TimeToBeReceived: 2 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		if err := transport.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if q.timer.Stop() {
			t.Error("the timer was still running")
		}
		time.Sleep(time.Hour)
		other, err := New(Config{Broker: transport.broker})
		if err != nil {
			t.Fatal(err)
		}
		if depth, err := other.Depth(t.Context(), "q"); depth.Ready != 1 || err != nil {
			t.Errorf("depth is %+v, %v", depth, err)
		}
		if q.timer.Stop() {
			t.Error("Depth set the timer again")
		}
	})
}

// Rule C20.
func TestExpiry_MessagesLeaveTheRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, q, _ := testQueue(t, Config{})
		send := func(timeToBeReceived time.Duration) {
			if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "q", Body: make([]byte, 1), TimeToBeReceived: timeToBeReceived}); err != nil {
				t.Fatal(err)
			}
		}
		send(0) // at the head, for ever: nothing behind it is ever reached
		for range 10_000 {
			send(time.Second)
			time.Sleep(time.Millisecond)
		}
		q.mu.Lock()
		if n := q.ready.len(); n > 2002 {
			t.Errorf("the ring holds %d, of which 1001 are alive", n)
		}
		for i := range q.ready.len() {
			if m := q.ready.at(i); m.state == gone && m.body != nil {
				t.Fatal("an expired message keeps its body")
			}
		}
		q.mu.Unlock()
		time.Sleep(time.Minute)
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.ready.len() > 1 || len(q.deadlines) != 0 {
			t.Errorf("%d in the ring and %d deadlines, want 1 and 0", q.ready.len(), len(q.deadlines))
		}
	})
}

// A timer may run late. Until it runs, the messages that it will remove are not delivered.
//
// Rule C20.
func TestExpiry_ReceiveDoesNotRelyOnTheTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, q, r := testQueue(t, Config{})
		q.stop()
		for _, timeToBeReceived := range []time.Duration{time.Second, time.Second, 0} {
			if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "q", TimeToBeReceived: timeToBeReceived}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		dst := make([]core.Delivery, 1)
		if _, err := r.Receive(t.Context(), dst); err != nil || dst[0].Incoming().NativeID != "3" {
			t.Fatalf("received %+v, %v; want the third message", dst[0].Incoming(), err)
		}
	})
}

// Rule C9.
func TestDeliveryCount_MemoryFollowsMaxInFlight(t *testing.T) {
	able := Everything()
	able.NativeDeliveryCount = false
	transport, q, r := testQueue(t, Config{Capabilities: &able})
	r.SetMaxInFlight(500) // 2,000 messages are remembered
	dst := make([]core.Delivery, 1)
	for range 1500 {
		if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "q"}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3000 {
		if _, err := r.Receive(t.Context(), dst); err != nil {
			t.Fatal(err)
		}
		if got, want := dst[0].Incoming().DeliveryCount, 1+i/1500; got != want {
			t.Fatalf("delivery %d: DeliveryCount %d, want %d", i, got, want)
		}
		if err := dst[0].Abandon(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 1500 {
		if _, err := r.Receive(t.Context(), dst); err != nil {
			t.Fatal(err)
		}
		if err := dst[0].Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := q.receivers[0].log.Len(); n != 0 {
		t.Errorf("%d completed messages are remembered", n)
	}
}

// A call is cancelled after it was woken and before the signal reaches it. It
// must pass the wake-up on, and its late signal must not reach a later call.
//
// Rule C3.
func TestReceive_CallCancelledWhileWokenPassesItsWakeUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, q, r := testQueue(t, Config{})
		wait := func(ctx context.Context) <-chan error {
			result := make(chan error, 1)
			go func() {
				dst := make([]core.Delivery, 1)
				_, err := r.Receive(ctx, dst)
				if err == nil {
					err = dst[0].Complete(t.Context())
				}
				result <- err
			}()
			synctest.Wait()
			return result
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := wait(ctx), wait(t.Context())

		q.mu.Lock() // as in unlock, but the signal takes its time
		m := transport.broker.newMessage(&core.Outgoing{}, nil, time.Now(), false)
		q.stored.add(m)
		q.makeReady(m, false)
		woken := q.wakeOne()
		q.mu.Unlock()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Fatalf("the cancelled call returned %v", err)
		}
		synctest.Wait()
		select {
		case err := <-second:
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatal("the other call was not woken")
		}

		woken.signal <- struct{}{}
		third, fourth := wait(t.Context()), wait(t.Context())
		if q.waiting != 2 || q.woken != 0 {
			t.Errorf("two calls should wait: %d waiting, %d woken", q.waiting, q.woken)
		}
		for _, call := range []<-chan error{third, fourth} {
			if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "q"}); err != nil {
				t.Fatal(err)
			}
			if err := <-call; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Settled, lost and cancelled deliveries leave nothing behind.
func TestBroker_KeepsNothingOfSettledMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, q, r := testQueue(t, Config{LockDuration: time.Hour})
		dst := make([]core.Delivery, 1)
		for range 10_000 {
			if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "q", TimeToBeReceived: time.Hour}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Receive(t.Context(), dst); err != nil {
				t.Fatal(err)
			}
			if err := dst[0].Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			if _, err := r.Receive(ctx, dst); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		own := q.receivers[0]
		if len(q.deadlines) != 0 || q.inFlight != 0 || own.unsettled.count != 0 || own.unsettled.first != nil ||
			q.waiting != 0 || q.woken != 0 || own.woken != 0 || own.waiters.first != nil || len(own.idle) > 1 {
			t.Errorf("left behind: %d deadlines, %d in flight, %d unsettled, %d waiting, %d woken, %d idle",
				len(q.deadlines), q.inFlight, own.unsettled.count, q.waiting, q.woken, len(own.idle))
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(q.receivers) != 0 || len(transport.life.Receivers()) != 0 {
			t.Error("the closed receiver is still known")
		}
	})
}

func TestBroker_FewAllocationsPerMessage(t *testing.T) {
	transport, _, r := testQueue(t, Config{})
	out := []core.Outgoing{{ID: "1", Queue: "q", Body: make([]byte, 256)}}
	dst := make([]core.Delivery, 1)
	ctx := t.Context()
	sent := testing.AllocsPerRun(1000, func() {
		if err := transport.Send(ctx, out...); err != nil {
			t.Fatal(err)
		}
	})
	received := testing.AllocsPerRun(1000, func() {
		if _, err := r.Receive(ctx, dst); err != nil {
			t.Fatal(err)
		}
		if err := dst[0].Complete(ctx); err != nil {
			t.Fatal(err)
		}
	})
	// Sending: the message, its body, its NativeID. Receiving: the delivery.
	if sent > 3 || received > 1 {
		t.Errorf("Send takes %v allocations, Receive and Complete %v; want 3 and 1", sent, received)
	}
}
