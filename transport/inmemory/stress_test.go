package inmemory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Everything at once: several senders and transports, receivers that compete,
// are full, cancelled, closed and reopened, workers that abandon, release and
// oversleep their locks. Each message must be completed exactly once and no two
// workers may hold it at the same time.
//
// Rule C16.
func TestComplete_ExactlyOnceUnderStress(t *testing.T) {
	const (
		senders, perSender   = 4, 600
		transports, workers  = 3, 6
		total                = senders * perSender
		lock                 = 10 * time.Second
		maxInFlight, maxTake = 8, 5
	)
	for name, mode := range map[string]core.TransactionMode{
		"receive only": core.TransactionReceiveOnly, "atomic": core.TransactionSendsAtomicWithReceive,
	} {
		inBubble(t, name, func(t *testing.T) {
			broker := inmemory.NewBroker()
			admin := open(t, inmemory.Config{Broker: broker}, "q", "done")

			var mu sync.Mutex
			completed := map[string]int{}
			type hold struct {
				lockedUntil time.Time
				closed      *bool // its receiver
			}
			holds := map[string]hold{}
			finished := make(chan struct{})
			complete := func(ctx context.Context, d core.Delivery) error {
				err := d.CompleteWith(ctx, []core.Outgoing{message("done", string(d.Incoming().Body))})
				if errors.Is(err, errors.ErrUnsupported) {
					return d.Complete(ctx)
				}
				return err
			}
			work := func(d core.Delivery, closed *bool) {
				ctx, body := t.Context(), string(d.Incoming().Body)
				forget := func() {
					mu.Lock()
					defer mu.Unlock()
					delete(holds, body)
				}
				if d.Renew(ctx) != nil {
					return // lost while it waited for this worker
				}
				mu.Lock()
				if *closed { // Close has given it back, and another may have it
					mu.Unlock()
					return
				}
				if other, ok := holds[body]; ok && !*other.closed && time.Now().Before(other.lockedUntil) {
					t.Errorf("message %s is held twice", body)
				}
				holds[body] = hold{d.LockedUntil(), closed}
				mu.Unlock()
				finish := func() error {
					if err := complete(ctx, d); err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					delete(holds, body)
					if completed[body]++; len(completed) == total && completed[body] == 1 {
						close(finished)
					}
					return nil
				}
				var err error
				switch rand.IntN(8) {
				case 0:
					forget()
					err = d.Abandon(ctx, errors.New("no"))
				case 1:
					forget()
					err = d.Release(ctx)
				case 2: // late, or nearly so
					time.Sleep(lock + time.Duration(rand.IntN(3)-1)*time.Millisecond)
					err = finish()
				case 3: // long, and renewed
					time.Sleep(lock / 2)
					if err = d.Renew(ctx); err == nil {
						time.Sleep(lock - time.Millisecond)
					}
					err = finish()
				default:
					err = finish()
				}
				if err != nil && !errors.Is(err, core.ErrLockLost) {
					t.Error(err)
				}
			}

			var running sync.WaitGroup
			for range transports {
				transport := open(t, inmemory.Config{Broker: broker, LockDuration: lock})
				running.Go(func() {
					for { // one life of a receiver
						r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: mode, MaxInFlight: maxInFlight})
						if err != nil {
							t.Error(err)
							return
						}
						var life sync.WaitGroup
						closed := false
						for range workers {
							life.Go(func() {
								dst := make([]core.Delivery, maxTake)
								for {
									ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(50))*time.Millisecond)
									n, err := r.Receive(ctx, dst[:1+rand.IntN(maxTake)])
									cancel()
									if errors.Is(err, core.ErrClosed) {
										return
									}
									for _, d := range dst[:n] {
										work(d, &closed)
									}
								}
							})
						}
						over := false
						select {
						case <-finished:
							over = true
						case <-time.After(time.Duration(rand.IntN(60)) * time.Second):
						}
						mu.Lock()
						closed = true
						mu.Unlock()
						if err := r.Close(t.Context()); err != nil {
							t.Error(err)
						}
						life.Wait()
						if over {
							return
						}
					}
				})
			}
			for sender := range senders {
				running.Go(func() {
					for i := range perSender {
						out := message("q", fmt.Sprintf("%d/%d", sender, i))
						if i%10 == 0 {
							out.Delay = time.Duration(rand.IntN(1000)) * time.Millisecond
						}
						if err := admin.Send(t.Context(), out); err != nil {
							t.Error(err)
						}
						if i%100 == 0 {
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			running.Wait()

			if len(completed) != total {
				t.Errorf("%d messages completed, want %d", len(completed), total)
			}
			for body, times := range completed {
				if times != 1 {
					t.Errorf("message %s was completed %d times", body, times)
				}
			}
			depth(t, admin, "q", queues.Depth{})
			if mode == core.TransactionSendsAtomicWithReceive {
				depth(t, admin, "done", queues.Depth{Ready: total})
			}
		})
	}
}

// The receiver of the next message of a group sends later than the one before: the messages
// of both are stored in the order of their group.
//
// Rule C24.
func TestReplaceWith_KeepsTheOrderOfAGroupUnderStress(t *testing.T) {
	const messages, receivers = 5_000, 4
	transport := open(t, inmemory.Config{}, "q", "out")
	for i := range messages {
		m := message("q", fmt.Sprint(i))
		m.GroupKey = "one"
		send(t, transport, m)
	}
	var workers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		workers.Wait()
	}()
	for range receivers {
		r := receiver(t, transport, "q", core.TransactionSendsAtomicWithReceive, 1)
		workers.Go(func() {
			for batch := make([]core.Delivery, 1); ; {
				if _, err := r.Receive(ctx, batch); err != nil {
					return // ctx ended
				}
				d := batch[0]
				if err := d.ReplaceWith(t.Context(), []core.Outgoing{message("out", string(d.Incoming().Body))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	out := peekLock(t, transport, "out")
	for i := range messages {
		succeed(t, receive(t, out, fmt.Sprint(i)).Complete(t.Context()))
	}
}
