package inmemory_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func delayed(out core.Outgoing, delay, timeToBeReceived time.Duration) core.Outgoing {
	out.Delay, out.TimeToBeReceived = delay, timeToBeReceived
	return out
}

// Rule C13.
func TestDelay_MessagesArriveInOrderAndNotEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		start := time.Now()
		send(t, transport,
			delayed(message("q", "3h"), 3*time.Hour, 0),
			delayed(message("q", "1s, first"), time.Second, 0),
			delayed(message("q", "1s, second"), time.Second, 0),
			delayed(message("q", "10y"), 10*365*24*time.Hour, 0),
			delayed(message("q", "1ns"), 1, 0),
			message("q", "now"))
		depth(t, transport, "q", queues.Depth{Ready: 1, Delayed: 5})
		for _, want := range []struct {
			body  string
			after time.Duration
		}{
			{"now", 0}, {"1ns", 1}, {"1s, first", time.Second}, {"1s, second", time.Second},
			{"3h", 3 * time.Hour}, {"10y", 10 * 365 * 24 * time.Hour},
		} {
			d := receive(t, r, want.body)
			if after := time.Since(start); after != want.after {
				t.Errorf("%q came after %v", want.body, after)
			}
			if got := d.Incoming().EnqueuedAt.Sub(start); got != want.after {
				t.Errorf("%q: EnqueuedAt is %v after the start", want.body, got)
			}
		}
	})
}

// A timer set for later must not hide an earlier message, and the other way
// round; each queue has its own.
//
// Rule C13.
func TestDelay_EachMessageHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "a", "b")
		start := time.Now()
		for i := range 50 {
			delay := time.Duration((i*37)%50+1) * time.Second
			send(t, transport, delayed(message("a", "m"), delay, 0), delayed(message("b", "m"), 2*delay, 0))
		}
		for queue, step := range map[string]time.Duration{"a": time.Second, "b": 2 * time.Second} {
			r := peekLock(t, transport, queue)
			for i := range 50 {
				d := receive(t, r, "m")
				due := start.Add(time.Duration(i+1) * step)
				if !d.Incoming().EnqueuedAt.Equal(due) || time.Now().Before(due) {
					t.Fatalf("queue %s: message %d was due at %v, says %v, came at %v", queue, i, due, d.Incoming().EnqueuedAt, time.Now())
				}
			}
		}
	})
}

// Rule C13.
func TestDelay_RetriesInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 1)
		start := time.Now()
		send(t, transport, message("q", "a"))
		for range 360 {
			d := receive(t, r, "a")
			succeed(t, d.ReplaceWith(t.Context(), []core.Outgoing{delayed(message("q", "a"), 10*time.Second, 0)}))
		}
		receive(t, r, "a")
		if took := time.Since(start); took != time.Hour {
			t.Errorf("360 delays of 10 s took %v", took)
		}
	})
}

// Rule C17.
func TestLock_IsLostWithoutACall(t *testing.T) {
	for name, c := range map[string]struct {
		native bool
		count  int
	}{"the messages count": {true, 2}, "the receiver counts": {false, 1}} {
		inBubble(t, name, func(t *testing.T) {
			cfg := inmemory.Config{Broker: inmemory.NewBroker(), LockDuration: time.Minute,
				Capabilities: able(func(caps *core.Capabilities) { caps.NativeDeliveryCount = c.native })}
			transport := open(t, cfg, "q")
			r, other := receiver(t, transport, "q", core.TransactionReceiveOnly, 1), peekLock(t, open(t, cfg), "q")
			send(t, transport, message("q", "a"))
			start := time.Now()
			d := receive(t, r, "a")
			if lockedUntil := d.LockedUntil(); !lockedUntil.Equal(start.Add(time.Minute)) {
				t.Errorf("LockedUntil is %v after the delivery", lockedUntil.Sub(start))
			}
			counts(t, receive(t, other, "a"), c.count, "")
			if waited := time.Since(start); waited != time.Minute {
				t.Errorf("the lock lasted %v", waited)
			}
			// Lost deliveries no longer fill the receiver.
			send(t, transport, message("q", "b"))
			receive(t, r, "b")
		})
	}
}

// Rule C17.
func TestRenew_ExtendsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{LockDuration: time.Minute}, "q")
		r := peekLock(t, transport, "q")
		send(t, transport, message("q", "renewed"), message("q", "left"))
		d := receive(t, r, "renewed")
		receive(t, r, "left")
		start := time.Now()
		for i := range 10 {
			time.Sleep(50 * time.Second)
			succeed(t, d.Renew(t.Context()))
			want := start.Add(time.Duration(i+1)*50*time.Second + time.Minute)
			if lockedUntil := d.LockedUntil(); !lockedUntil.Equal(want) {
				t.Fatalf("LockedUntil is %v, want %v", lockedUntil, want)
			}
		}
		depth(t, transport, "q", queues.Depth{Ready: 1, Locked: 1})
		receive(t, r, "left")
		time.Sleep(59 * time.Second)
		succeed(t, d.Complete(t.Context()))
	})
}

// Rule C17.
func TestRenew_MaxLockTimeEndsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{LockDuration: time.Minute, Capabilities: able(func(c *core.Capabilities) { c.MaxLockTime = 150 * time.Second })}, "q")
		r := peekLock(t, transport, "q")
		send(t, transport, message("q", "a"))
		start := time.Now()
		d := receive(t, r, "a")
		for _, end := range []time.Duration{110 * time.Second, 150 * time.Second} {
			time.Sleep(50 * time.Second)
			succeed(t, d.Renew(t.Context()))
			if got := d.LockedUntil().Sub(start); got != end {
				t.Errorf("LockedUntil is %v after the delivery, want %v", got, end)
			}
		}
		if err := d.Renew(t.Context()); err == nil || errors.Is(err, core.ErrLockLost) || !strings.Contains(err.Error(), "MaxLockTime") {
			t.Errorf("Renew at the limit: %v, want an error that names MaxLockTime, and a lock that holds", err)
		}
		counts(t, receive(t, r, "a"), 2, "")
		if waited := time.Since(start); waited != 150*time.Second {
			t.Errorf("the delivery was kept for %v", waited)
		}
		failWith(t, d.Complete(t.Context()), core.ErrLockLost)
	})
}

// Rule C17.
func TestLock_MaxLockTimeEndsADeliveryWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.LikeRabbitMQ(), "q")
		r := peekLock(t, transport, "q")
		send(t, transport, message("q", "a"))
		start := time.Now()
		d := receive(t, r, "a")
		if lockedUntil := d.LockedUntil(); !lockedUntil.IsZero() {
			t.Errorf("LockedUntil is %v", lockedUntil)
		}
		receive(t, r, "a")
		if waited := time.Since(start); waited != 30*time.Minute {
			t.Errorf("the delivery was kept for %v", waited)
		}
		failWith(t, d.Complete(t.Context()), core.ErrLockLost)
	})
}

func TestLock_DoesNotExpireByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		send(t, transport, message("q", "a"))
		d := receive(t, peekLock(t, transport, "q"), "a")
		time.Sleep(1000 * time.Hour)
		succeed(t, d.Complete(t.Context()))
	})
}

// Rule C20.
func TestExpiry_MessageIsNotDelivered(t *testing.T) {
	giveBack := func(settle func(*testing.T, core.Delivery)) func(*testing.T, core.Transport) {
		return func(t *testing.T, transport core.Transport) {
			d := receive(t, peekLock(t, transport, "q"), "a")
			time.Sleep(time.Minute)
			settle(t, d)
		}
	}
	for name, c := range map[string]struct {
		delay time.Duration
		await func(*testing.T, core.Transport)
	}{
		"waiting":               {0, func(*testing.T, core.Transport) { time.Sleep(time.Minute) }},
		"delayed beyond it":     {2 * time.Minute, func(*testing.T, core.Transport) { time.Sleep(time.Hour) }},
		"delayed to its end":    {time.Minute, func(*testing.T, core.Transport) { time.Sleep(time.Hour) }},
		"delayed, then waiting": {59 * time.Second, func(*testing.T, core.Transport) { time.Sleep(time.Minute) }},
		"abandoned after it":    {0, giveBack(func(t *testing.T, d core.Delivery) { succeed(t, d.Abandon(t.Context(), nil)) })},
		"released after it":     {0, giveBack(func(t *testing.T, d core.Delivery) { succeed(t, d.Release(t.Context())) })},
		"abandoned before it, waits": {0, func(t *testing.T, transport core.Transport) {
			succeed(t, receive(t, peekLock(t, transport, "q"), "a").Abandon(t.Context(), nil))
			time.Sleep(time.Minute)
		}},
		"its receiver closed after it": {0, func(t *testing.T, transport core.Transport) {
			r := peekLock(t, transport, "q")
			receive(t, r, "a")
			time.Sleep(time.Minute)
			succeed(t, r.Close(t.Context()))
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, inmemory.Config{}, "q")
			send(t, transport, delayed(message("q", "a"), c.delay, time.Minute), message("q", "b"))
			first := peekLock(t, transport, "q")
			defer first.Close(t.Context())
			c.await(t, transport)
			receive(t, first, "b")
			receiveNothing(t, first)
			depth(t, transport, "q", queues.Depth{Locked: 1})
		})
	}
}

// Rule C20.
func TestExpiry_MessageInTimeIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		send(t, transport, delayed(message("q", "a"), 30*time.Second, time.Minute))
		time.Sleep(time.Minute - 1)
		d := receive(t, r, "a")
		succeed(t, d.Abandon(t.Context(), errors.New("no")))
		d = receive(t, r, "a")
		time.Sleep(time.Hour) // being handled it does not expire
		succeed(t, d.Complete(t.Context()))
	})
}

// Rule C20.
func TestExpiry_SkipsOnlyExpiredMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		send(t, transport, message("q", "1"), delayed(message("q", "short"), 0, time.Minute), message("q", "2"), message("q", "3"))
		time.Sleep(time.Minute)
		depth(t, transport, "q", queues.Depth{Ready: 3})
		if n := len(browse(t, transport, "q")); n != 3 {
			t.Errorf("Browse shows %d messages; want 3", n)
		}
		for _, body := range []string{"1", "2", "3"} {
			receive(t, r, body)
		}
		receiveNothing(t, r)
		send(t, transport, message("q", "4"))
		depth(t, transport, "q", queues.Depth{Ready: 1, Locked: 3})
	})
}

// Rule C20.
func TestExpiry_FreesMessagesWithoutAReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		for range 1000 {
			send(t, transport, delayed(message("q", "short"), 0, time.Minute))
		}
		send(t, transport, message("q", "for ever"), delayed(message("q", "late"), time.Hour, time.Minute))
		depth(t, transport, "q", queues.Depth{Ready: 1001, Delayed: 1})
		time.Sleep(time.Minute)
		depth(t, transport, "q", queues.Depth{Ready: 1})
		receive(t, peekLock(t, transport, "q"), "for ever")
	})
}
