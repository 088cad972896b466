package inmemory_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Rule C3.
func TestReceive_ReturnsReadyMessagesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		send(t, transport, message("q", "1"), message("q", "2"), message("q", "3"))
		dst := make([]core.Delivery, 5)
		n, err := r.Receive(t.Context(), dst[:2])
		if n != 2 || err != nil || dst[2] != nil {
			t.Fatalf("Receive = %d, %v, beyond dst: %v", n, err, dst[2])
		}
		n, err = r.Receive(t.Context(), dst)
		if n != 1 || err != nil || string(dst[0].Incoming().Body) != "3" {
			t.Fatalf("Receive = %d, %v", n, err)
		}
		if _, err := r.Receive(t.Context(), nil); err == nil {
			t.Error("Receive into nothing did not fail")
		}
		receiveNothing(t, r)
	})
}

// Rule C3.
func TestReceive_ReturnsMaxReceiveBatchAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.LikeSQS(), "q")
		r := peekLock(t, transport, "q")
		for range 25 {
			send(t, transport, message("q", "m"))
		}
		for _, want := range []int{10, 10, 5} {
			if n, err := r.Receive(t.Context(), make([]core.Delivery, 20)); n != want || err != nil {
				t.Fatalf("Receive = %d, %v; want %d", n, err, want)
			}
		}
	})
}

// Rule C3.
func TestReceive_EndedContextTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		send(t, transport, message("q", "a"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n, err := r.Receive(ctx, make([]core.Delivery, 1)); n != 0 || !errors.Is(err, context.Canceled) {
			t.Fatalf("Receive = %d, %v", n, err)
		}
		depth(t, transport, "q", queues.Depth{Ready: 1})
	})
}

// A call that is cancelled at the moment it is woken must pass the wake-up on,
// or the other call sleeps beside a ready message.
//
// Rule C3.
func TestReceive_CancelledCallPassesItsWakeUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		passedOn := 0
		for range 2000 {
			var calls sync.WaitGroup
			wait := func(ctx context.Context) <-chan bool {
				received := make(chan bool, 1)
				calls.Go(func() {
					dst := make([]core.Delivery, 1)
					_, err := r.Receive(ctx, dst)
					if err == nil {
						err = dst[0].Complete(t.Context())
					}
					received <- err == nil
				})
				synctest.Wait()
				return received
			}
			ctx, cancel := context.WithCancel(t.Context())
			other, stop := context.WithCancel(t.Context())
			first, second := wait(ctx), wait(other) // the first to wait is the first to be woken
			calls.Go(cancel)
			send(t, transport, message("q", "a"))
			if !<-first {
				passedOn++
				if !<-second { // blocks for ever if the wake-up was lost
					t.Fatal("no receiver got the message")
				}
			}
			stop()
			calls.Wait()
		}
		depth(t, transport, "q", queues.Depth{})
		t.Logf("cancelled before it received: %d of 2000", passedOn)
	})
}

// Rule C3.
func TestReceive_EachMessageWakesOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		received := make(chan string, 100)
		for range 10 {
			go func() {
				dst := make([]core.Delivery, 1)
				if _, err := r.Receive(t.Context(), dst); err == nil {
					received <- string(dst[0].Incoming().Body)
				}
			}()
		}
		synctest.Wait()
		send(t, transport, message("q", "1"), message("q", "2"), message("q", "3"), message("q", "4")) // one Send
		synctest.Wait()
		if len(received) != 4 {
			t.Errorf("%d calls received a message, want 4", len(received))
		}
		depth(t, transport, "q", queues.Depth{Locked: 4})
	})
}

func TestMaxInFlight_BoundsUnsettledDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := receiver(t, transport, "q", core.TransactionReceiveOnly, 2)
		send(t, transport, message("q", "1"), message("q", "2"), message("q", "3"), message("q", "4"), message("q", "5"))
		dst := make([]core.Delivery, 5)
		if n, err := r.Receive(t.Context(), dst); n != 2 || err != nil {
			t.Fatalf("Receive = %d, %v; want 2", n, err)
		}
		receiveNothing(t, r)

		// Each way of getting room wakes a call that waits for it.
		var remaining []core.Delivery
		for _, makeRoom := range []func(){
			func() { succeed(t, dst[0].Complete(t.Context())) },
			func() { r.SetMaxInFlight(3) },
		} {
			got := make(chan int, 1)
			more := make([]core.Delivery, 5)
			go func() {
				n, _ := r.Receive(t.Context(), more)
				got <- n
			}()
			synctest.Wait()
			if len(got) != 0 {
				t.Fatal("Receive did not wait for room")
			}
			makeRoom()
			if n := <-got; n != 1 {
				t.Fatalf("Receive = %d, want 1", n)
			}
			remaining = append(remaining, more[0])
		}
		depth(t, transport, "q", queues.Depth{Ready: 1, Locked: 3})

		r.SetMaxInFlight(0) // messages in flight are not taken back
		succeed(t, dst[1].Complete(t.Context()))
		receiveNothing(t, r)
		depth(t, transport, "q", queues.Depth{Ready: 1, Locked: 2})
		for _, d := range remaining {
			succeed(t, d.Complete(t.Context()))
		}
		receiveNothing(t, r)
		r.SetMaxInFlight(1)
		receive(t, r, "5")
	})
}

// A full receiver must not swallow the wake-up that another could use.
//
// Rule C16.
func TestReceive_FullReceiverLeavesMessagesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		full := receiver(t, transport, "q", core.TransactionReceiveOnly, 1)
		received := make(chan core.Delivery, 10)
		wait := func(r core.Receiver) {
			go func() {
				dst := make([]core.Delivery, 1)
				if _, err := r.Receive(t.Context(), dst); err == nil {
					received <- dst[0]
				}
			}()
			synctest.Wait()
		}
		for range 5 {
			wait(full)
		}
		free := receiver(t, transport, "q", core.TransactionReceiveOnly, 5)
		wait(free)
		wait(free)
		send(t, transport, message("q", "1"), message("q", "2"), message("q", "3"))
		synctest.Wait()
		if len(received) != 3 {
			t.Fatalf("%d messages received, want 3", len(received))
		}
	})
}

// Rule C16.
func TestReceive_CompetingReceiversShareMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := inmemory.NewBroker()
		seen := map[string]bool{}
		transport := open(t, inmemory.Config{Broker: broker}, "q")
		for range 30 {
			send(t, transport, message("q", "m"))
		}
		for range 3 {
			r := peekLock(t, open(t, inmemory.Config{Broker: broker}), "q")
			dst := make([]core.Delivery, 10)
			n, err := r.Receive(t.Context(), dst)
			if n != 10 || err != nil {
				t.Fatalf("Receive = %d, %v", n, err)
			}
			for _, d := range dst {
				if id := d.Incoming().NativeID; seen[id] {
					t.Fatalf("message %s is held twice", id)
				} else {
					seen[id] = true
				}
			}
		}
		depth(t, transport, "q", queues.Depth{Locked: 30})
	})
}

// Rule C14.
func TestClose_OfAReceiverReleasesUnsettledDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := receiver(t, transport, "q", core.TransactionReceiveOnly, 3)
		send(t, transport, message("q", "1"), message("q", "2"), message("q", "3"), message("q", "4"))
		var held []core.Delivery
		for _, body := range []string{"1", "2", "3"} {
			held = append(held, receive(t, r, body))
		}
		succeed(t, held[1].Complete(t.Context()))
		held[1] = receive(t, r, "4") // full again: the calls below wait
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() {
				_, err := r.Receive(t.Context(), make([]core.Delivery, 1))
				errs <- err
			}()
		}
		synctest.Wait()
		succeed(t, r.Close(t.Context()))
		succeed(t, r.Close(t.Context()))
		for range cap(errs) {
			failWith(t, <-errs, core.ErrClosed)
		}
		_, err := r.Receive(t.Context(), make([]core.Delivery, 1))
		failWith(t, err, core.ErrClosed)
		for _, d := range held {
			err := d.Complete(t.Context())
			failWith(t, err, core.ErrLockLost)
			failWith(t, err, core.ErrClosed)
		}
		redelivered := peekLock(t, transport, "q")
		for _, body := range []string{"1", "3", "4"} { // in their order
			counts(t, receive(t, redelivered, body), 1, "")
		}
		receiveNothing(t, redelivered)
	})
}

// Rule C14.
func TestClose_OfAReceiverWakesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		first, second := peekLock(t, transport, "q"), peekLock(t, transport, "q")
		send(t, transport, message("q", "a"))
		receive(t, first, "a")
		got := make(chan error, 1)
		go func() {
			_, err := second.Receive(t.Context(), make([]core.Delivery, 1))
			got <- err
		}()
		synctest.Wait()
		succeed(t, first.Close(t.Context()))
		succeed(t, <-got)
	})
}

// Rule C14.
func TestClose_OfATransportClosesItsReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := inmemory.NewBroker()
		transport := open(t, inmemory.Config{Broker: broker}, "q")
		other := open(t, inmemory.Config{Broker: broker})
		r := peekLock(t, transport, "q")
		send(t, transport, message("q", "a"))
		receive(t, r, "a")
		waiting := make(chan error, 1)
		go func() {
			_, err := r.Receive(t.Context(), make([]core.Delivery, 1))
			waiting <- err
		}()
		synctest.Wait()
		succeed(t, transport.Close(t.Context()))
		succeed(t, transport.Close(t.Context()))
		failWith(t, <-waiting, core.ErrClosed)
		_, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
		failWith(t, err, core.ErrClosed)
		failWith(t, transport.Check(t.Context(), core.Topology{}), core.ErrClosed)
		failWith(t, transport.Provision(t.Context(), core.Topology{}), core.ErrClosed)
		failWith(t, transport.Subscribe(t.Context(), "q", "t"), core.ErrClosed)
		succeed(t, r.Close(t.Context()))

		receive(t, peekLock(t, other, "q"), "a") // the other one goes on
		succeed(t, other.Check(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}))
		failWith(t, other.Check(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q", "missing"}}), core.ErrQueueNotFound)
	})
}

func TestOpenReceiver_RefusesPermanentMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		_, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "missing", Mode: core.TransactionNone, MaxInFlight: 1})
		failWith(t, err, core.ErrQueueNotFound)
		if _, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionNone}); err == nil {
			t.Error("MaxInFlight 0 was accepted")
		}
	})
}

// A bubble fails by itself when a goroutine is left. This is about what a
// bubble would not notice: an armed timer.
//
// Rule C14.
func TestClose_LeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := inmemory.NewBroker()
		transport := open(t, inmemory.Config{Broker: broker}, "q")
		out := message("q", "a")
		out.Delay = time.Hour
		send(t, transport, out)
		succeed(t, transport.Close(t.Context()))
		depth(t, open(t, inmemory.Config{Broker: broker}), "q", queues.Depth{Delayed: 1})
	})
}
