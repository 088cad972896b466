package inmemory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// settlements are all ways to settle a delivery of an atomic receiver.
var settlements = map[string]func(context.Context, core.Delivery) error{
	"Complete": func(ctx context.Context, d core.Delivery) error { return d.Complete(ctx) },
	"Abandon":  func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("no")) },
	"Release":  func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) },
	"CompleteWith": func(ctx context.Context, d core.Delivery) error {
		return d.CompleteWith(ctx, nil)
	},
	"ReplaceWith": func(ctx context.Context, d core.Delivery) error { return d.ReplaceWith(ctx, nil) },
	"DeadLetter": func(ctx context.Context, d core.Delivery) error {
		return d.DeadLetter(ctx, core.DeadLetter{Reason: "reason", Description: "description"})
	},
}

// Rule C5.
func TestSettle_SecondTimeChangesNothing(t *testing.T) {
	for first, settle := range settlements {
		for second, settleAgain := range settlements {
			inBubble(t, first+" then "+second, func(t *testing.T) {
				transport := open(t, inmemory.Config{LockDuration: time.Minute}, "q")
				d := receive(t, func() core.Receiver {
					send(t, transport, message("q", "a"))
					return receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 1)
				}(), "a")
				succeed(t, settle(t.Context(), d))
				before, _ := transport.Depth(t.Context(), "q")
				dead, _ := transport.Depth(t.Context(), inmemory.DeadLetterQueue("q"))
				failWith(t, settleAgain(t.Context(), d), core.ErrSettled)
				failWith(t, d.Reset(t.Context()), core.ErrSettled)
				failWith(t, d.Renew(t.Context()), core.ErrSettled)
				depth(t, transport, "q", before)
				depth(t, transport, inmemory.DeadLetterQueue("q"), dead)
				time.Sleep(time.Hour) // nor is the settled lock lost later
				depth(t, transport, "q", before)
			})
		}
	}
}

// Rule C5.
func TestSettle_EndedContextSettlesNothing(t *testing.T) {
	for name, settle := range settlements {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, inmemory.Config{}, "q")
			send(t, transport, message("q", "a"))
			d := receive(t, receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 1), "a")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			failWith(t, settle(ctx, d), context.Canceled)
			depth(t, transport, "q", queues.Depth{Locked: 1})
			succeed(t, settle(t.Context(), d))
		})
	}
}

// Rule C6.
func TestSettle_IsRefusedAfterTheLockWasLost(t *testing.T) {
	for name, settle := range settlements {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, inmemory.Config{LockDuration: time.Minute}, "q")
			r := receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 10)
			send(t, transport, message("q", "a"))
			d := receive(t, r, "a")
			time.Sleep(time.Minute) // to the very end: its timer may be yet to run
			failWith(t, settle(t.Context(), d), core.ErrLockLost)
			failWith(t, d.Reset(t.Context()), core.ErrLockLost)
			failWith(t, d.Renew(t.Context()), core.ErrLockLost)
			depth(t, transport, "q", queues.Depth{Ready: 1})
			redelivered := receive(t, r, "a")
			counts(t, redelivered, 2, "")
			failWith(t, settle(t.Context(), d), core.ErrLockLost) // the old one settles nothing of the new
			succeed(t, redelivered.Complete(t.Context()))
			depth(t, transport, "q", queues.Depth{})
		})
	}
}

// Rule C7.
func TestComplete_MessageIsNotRedelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := inmemory.NewBroker()
		first := open(t, inmemory.Config{Broker: broker, LockDuration: time.Second}, "q")
		send(t, first, message("q", "a"))
		succeed(t, receive(t, peekLock(t, first, "q"), "a").Complete(t.Context()))
		time.Sleep(time.Hour)
		succeed(t, first.Close(t.Context()))
		receiveNothing(t, peekLock(t, open(t, inmemory.Config{Broker: broker}), "q"))
	})
}

// Rule C7.
func TestReceive_ConsumesInModeNone(t *testing.T) {
	for name, settle := range map[string]func(context.Context, core.Delivery) error{
		"Complete": settlements["Complete"], "Abandon": settlements["Abandon"], "Release": settlements["Release"],
		"nothing": func(context.Context, core.Delivery) error { return nil },
	} {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, inmemory.Config{LockDuration: time.Second}, "q")
			r := receiver(t, transport, "q", core.TransactionNone, 1)
			send(t, transport, message("q", "a"), message("q", "b"))
			d := receive(t, r, "a")
			depth(t, transport, "q", queues.Depth{Ready: 1})
			succeed(t, settle(t.Context(), d))
			receive(t, r, "b") // no message is in flight, though some are not settled
			time.Sleep(time.Minute)
			succeed(t, r.Close(t.Context()))
			depth(t, transport, "q", queues.Depth{})
		})
	}
}

// Rule C8.
func TestAbandon_CountsAndReleaseDoesNot(t *testing.T) {
	for name, c := range map[string]struct {
		cfg              inmemory.Config
		released, closed int // counts after Abandon and Release, and after Close of another receiver
	}{
		"the messages count":    {inmemory.Config{}, 2, 2},
		"every delivery counts": {inmemory.Config{Capabilities: able(func(c *core.Capabilities) { c.CountsReleases = true })}, 3, 4},
		"the receiver counts":   {inmemory.Config{Capabilities: able(func(c *core.Capabilities) { c.NativeDeliveryCount = false })}, 2, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, c.cfg, "q")
			r := peekLock(t, transport, "q")
			send(t, transport, message("q", "a"))
			d := receive(t, r, "a")
			counts(t, d, 1, "")
			id := d.Incoming().NativeID
			succeed(t, d.Abandon(t.Context(), errors.New("first")))
			d = receive(t, r, "a")
			counts(t, d, 2, "first")
			succeed(t, d.Release(t.Context()))
			d = receive(t, r, "a")
			counts(t, d, c.released, "first")
			if got := d.Incoming().NativeID; got != id {
				t.Errorf("NativeID changed from %s to %s", id, got)
			}
			succeed(t, r.Close(t.Context()))
			lastError := "first"
			if c.closed == 1 {
				lastError = ""
			}
			counts(t, receive(t, peekLock(t, transport, "q"), "a"), c.closed, lastError)
		})
	}
}

// Rule C8.
func TestAbandon_ComesLastAndReleasedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		send(t, transport, message("q", "1"), message("q", "2"), message("q", "3"))
		succeed(t, receive(t, r, "1").Abandon(t.Context(), errors.New("no")))
		succeed(t, receive(t, r, "2").Release(t.Context()))
		receive(t, r, "2")
		receive(t, r, "3")
		receive(t, r, "1")
	})
}

// Rule C8.
func TestAbandon_WakesReceive(t *testing.T) {
	for name, settle := range map[string]func(context.Context, core.Delivery) error{
		"Abandon": settlements["Abandon"], "Release": settlements["Release"],
	} {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, inmemory.Config{}, "q")
			send(t, transport, message("q", "a"))
			d := receive(t, peekLock(t, transport, "q"), "a")
			other := peekLock(t, transport, "q")
			got := make(chan error, 1)
			go func() {
				_, err := other.Receive(t.Context(), make([]core.Delivery, 1))
				got <- err
			}()
			synctest.Wait()
			start := time.Now()
			succeed(t, settle(t.Context(), d))
			succeed(t, <-got)
			if waited := time.Since(start); waited != 0 {
				t.Errorf("it came after %v", waited)
			}
		})
	}
}

// Rule C8.
func TestAbandon_LastErrorIsBoundedText(t *testing.T) {
	for _, native := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q := open(t, inmemory.Config{Capabilities: able(func(c *core.Capabilities) { c.NativeDeliveryCount = native })}, "q")
			r := peekLock(t, q, "q")
			send(t, q, message("q", "a"))
			long := strings.Repeat("x", 8<<10)
			succeed(t, receive(t, r, "a").Abandon(t.Context(), errors.New(long)))
			d := receive(t, r, "a")
			counts(t, d, 2, long[:4<<10])
			succeed(t, d.Abandon(t.Context(), nil))
			counts(t, receive(t, r, "a"), 3, "")
		})
	}
}

// Rule C9.
func TestDeliveryCount_NativeOneIsShared(t *testing.T) {
	for name, c := range map[string]struct {
		native                      bool
		other, redelivered, restart int
	}{
		"native":       {true, 2, 3, 4},
		"the receiver": {false, 1, 2, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			cfg := inmemory.Config{
				Broker:       inmemory.NewBroker(),
				Capabilities: able(func(caps *core.Capabilities) { caps.NativeDeliveryCount = c.native }),
			}
			one, two := open(t, cfg, "q"), open(t, cfg)
			r1, r2 := peekLock(t, one, "q"), peekLock(t, two, "q")
			send(t, one, message("q", "a"))
			fail := func(r core.Receiver, count int) {
				d := receive(t, r, "a")
				if got := d.Incoming().DeliveryCount; got != count {
					t.Fatalf("DeliveryCount %d, want %d", got, count)
				}
				succeed(t, d.Abandon(t.Context(), errors.New("no")))
			}
			fail(r1, 1)
			fail(r2, c.other)
			fail(r1, c.redelivered)
			succeed(t, one.Close(t.Context())) // the process restarts
			fail(peekLock(t, open(t, cfg), "q"), c.restart)
		})
	}
}

// Rule C9.
func TestDeliveryCount_OfANewMessageIsOne(t *testing.T) {
	for _, native := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			transport := open(t, inmemory.Config{Capabilities: able(func(c *core.Capabilities) { c.NativeDeliveryCount = native })}, "q")
			r := peekLock(t, transport, "q")
			for range 3 { // the same message id each time
				send(t, transport, message("q", "a"))
				d := receive(t, r, "a")
				counts(t, d, 1, "")
				succeed(t, d.Abandon(t.Context(), errors.New("no")))
				d = receive(t, r, "a")
				counts(t, d, 2, "no")
				succeed(t, d.Complete(t.Context()))
			}
		})
	}
}

// Rule C22.
func TestDeadLetter_MovesTheMessage(t *testing.T) {
	for _, mode := range inmemory.Everything().Transactions {
		inBubble(t, mode.String(), func(t *testing.T) {
			transport := open(t, inmemory.Config{}, "q")
			var h core.Headers
			h.Set("k", "v")
			send(t, transport, core.Outgoing{ID: "id", Queue: "q", Headers: h, Body: []byte("a"), TimeToBeReceived: time.Second})
			d := receive(t, receiver(t, transport, "q", mode, 1), "a")
			succeed(t, d.DeadLetter(t.Context(), core.DeadLetter{Reason: "poison", Description: "cannot be\xff read"}))
			depth(t, transport, "q", queues.Depth{})
			time.Sleep(time.Hour) // dead letters do not expire
			dead := receive(t, receiver(t, transport, inmemory.DeadLetterQueue("q"), mode, 1), "a")
			in := dead.Incoming()
			counts(t, dead, 1, "")
			if in.ID != "id" || in.Headers.Get("k") != "v" ||
				in.Headers.Get(inmemory.HeaderDeadLetterReason) != "poison" ||
				in.Headers.Get(inmemory.HeaderDeadLetterDescription) != "cannot be? read" {
				t.Errorf("dead letter %s has the headers %v", in.ID, in.Headers.Map())
			}
			if d.Incoming().Headers.Len() != 1 {
				t.Errorf("the delivery's own headers changed: %v", d.Incoming().Headers.Map())
			}
			failWith(t, dead.DeadLetter(t.Context(), core.DeadLetter{Reason: "twice"}), errors.ErrUnsupported)
		})
	}
}
