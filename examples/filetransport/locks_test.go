package filetransport_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

const lock = time.Minute

// competing returns receivers of two transports on one directory: what two
// processes would have.
func competing(t *testing.T) (a, b core.Receiver, first *filetransport.Transport, dir string) {
	t.Helper()
	first, dir = opened(t, filetransport.Config{LockDuration: lock})
	second := open(t, filetransport.Config{Dir: filepath.Dir(dir), LockDuration: lock})
	return receiver(t, first, 1), receiver(t, second, 1), first, dir
}

// settlements are all that can be done to a delivery.
var settlements = map[string]func(context.Context, core.Delivery) error{
	"Complete": func(ctx context.Context, d core.Delivery) error { return d.Complete(ctx) },
	"Abandon":  func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("boom")) },
	"Release":  func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) },
	"Renew": func(ctx context.Context, d core.Delivery) error {
		return d.Renew(ctx)
	},
}

func TestLock_ExpiredIsTakenOver(t *testing.T) {
	for name, settle := range settlements {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, transport, dir := competing(t)
				send(t, transport, "m")
				expired := receive(t, a)
				start := time.Now()
				if lockedUntil := expired.LockedUntil(); !lockedUntil.Equal(start.Add(lock)) {
					t.Errorf("locked until %v, received at %v", lockedUntil, start)
				}
				taken := receive(t, b) // blocks until then
				if waited := time.Since(start); waited < lock || waited > lock+time.Second {
					t.Errorf("it came again after %v", waited)
				}
				equal(t, "count", taken.Incoming().DeliveryCount, 2)
				equal(t, "redelivered", taken.Incoming().Redelivered, true)
				equal(t, "native id", taken.Incoming().NativeID, expired.Incoming().NativeID)
				before := names(t, dir)
				matches(t, "late settlement", settle(t.Context(), expired), core.ErrLockLost)
				equal(t, "files", strings.Join(names(t, dir), " "), strings.Join(before, " "))
				settled(t, taken.Complete(t.Context()))
				equal(t, "files", len(names(t, dir)), 0)
			})
		})
	}
}

// The clock alone must not be what protects a message: a process may be stopped
// between its look at the clock and its rename. Here another one takes over a
// lock that the holder believes in.
func TestLock_NameProtectsATakenOverMessage(t *testing.T) {
	for name, settle := range settlements {
		t.Run(name, func(t *testing.T) {
			transport, dir := opened(t, filetransport.Config{LockDuration: time.Hour})
			send(t, transport, "m")
			d := receive(t, receiver(t, transport, 1))
			for _, change := range []struct{ lockedUntil, token string }{
				{future(), "held-OTHER"},            // taken over
				{future(), "back"},                  // and given back
				{at(d.LockedUntil()), "held-OTHER"}, // and held until the same moment
			} {
				taken := strings.Join([]string{change.lockedUntil, "1", d.Incoming().NativeID, change.token}, "_")
				settled(t, os.Rename(filepath.Join(dir, names(t, dir)[0]), filepath.Join(dir, taken)))
				matches(t, "with "+taken, settle(t.Context(), d), core.ErrLockLost)
				if got := names(t, dir); len(got) != 1 || got[0] != taken {
					t.Errorf("files %q, want %s", got, taken)
				}
			}
		})
	}
}

func TestRenew_KeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, transport, _ := competing(t)
		send(t, transport, "m")
		d := receive(t, a)
		for range 5 {
			time.Sleep(lock / 2)
			settled(t, d.Renew(t.Context()))
			if lockedUntil := d.LockedUntil(); !lockedUntil.Equal(time.Now().Add(lock)) {
				t.Errorf("renewed until %v at %v", lockedUntil, time.Now())
			}
			nothing(t, b)
		}
		settled(t, d.Renew(t.Context())) // to the name that it has
		settled(t, d.Renew(t.Context()))
		settled(t, d.Abandon(t.Context(), nil))
		matches(t, "Renew", d.Renew(t.Context()), core.ErrSettled)
		equal(t, "count", receive(t, b).Incoming().DeliveryCount, 2)
	})
}

func TestLock_LostMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, _ := opened(t, filetransport.Config{LockDuration: lock})
		send(t, transport, "a")
		time.Sleep(time.Nanosecond) // those of one moment are in no order
		send(t, transport, "b")
		r := receiver(t, transport, 1)
		start := time.Now()
		equal(t, "first", string(receive(t, r).Incoming().Body), "a")
		equal(t, "second", string(receive(t, r).Incoming().Body), "b") // no settlement: the engine makes none then
		if waited := time.Since(start); waited < lock || waited > lock+time.Second {
			t.Errorf("room was made after %v", waited)
		}
	})
}

func TestDeliveryCount_SurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, dir := opened(t, filetransport.Config{LockDuration: lock})
		send(t, transport, "m")
		// Of a delivery that was released the count says nothing, but Redelivered.
		for i, step := range []struct {
			settle      string
			count       int
			redelivered bool
		}{{"Release", 1, false}, {"Release", 1, true}, {"Abandon", 1, true}, {"Release", 2, true}, {"crash", 2, true}, {"Close", 3, true}, {"Complete", 3, true}} {
			process := open(t, filetransport.Config{Dir: filepath.Dir(dir), LockDuration: lock})
			r := receiver(t, process, 1)
			d := receive(t, r)
			if in := d.Incoming(); in.DeliveryCount != step.count || in.Redelivered != step.redelivered {
				t.Errorf("delivery %d: count %d, redelivered %v", i+1, in.DeliveryCount, in.Redelivered)
			}
			switch step.settle {
			case "crash": // without a renewal
			case "Close":
				settled(t, process.Close(t.Context()))
				matches(t, "after Close", d.Complete(t.Context()), core.ErrLockLost, core.ErrClosed)
			default:
				settled(t, settlements[step.settle](t.Context(), d))
				matches(t, "a second settlement", d.Complete(t.Context()), core.ErrSettled)
			}
		}
		equal(t, "files", len(names(t, dir)), 0)
	})
}

func TestReceive_PollsForOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, dir := opened(t, filetransport.Config{PollInterval: time.Second})
		other := open(t, filetransport.Config{Dir: filepath.Dir(dir)})
		r := receiver(t, transport, 2)
		for _, delay := range []time.Duration{0, time.Minute} {
			received := make(chan core.Delivery, 1)
			go func() { received <- receive(t, r) }()
			synctest.Wait() // it has found nothing
			start := time.Now()
			settled(t, other.Send(t.Context(), core.Outgoing{ID: "1", Queue: "orders", Delay: delay}))
			settled(t, (<-received).Complete(t.Context()))
			if lateness := time.Since(start) - delay; lateness < 0 || lateness > transport.Capabilities().DelayPrecision {
				t.Errorf("delayed by %v, it came %v later", delay, lateness)
			}
		}
	})
}
