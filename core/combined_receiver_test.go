package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core/internal/pump"

	"github.com/reprise-go/reprise/core/internal/locks"
)

// stockedReceiver has messages, which it hands out as far as MaxInFlight allows. Where it
// prefetches it takes as many ahead.
type stockedReceiver struct {
	prefetches bool

	mu         sync.Mutex
	stock      []int
	prefetched []int // prefetched
	inFlight   int   // handed out
	limit      int
	failure    error
	closed     bool
	changed    chan struct{}
	onReceive  func()
}

func newStockedReceiver(first, n int, prefetches bool, noted func()) *stockedReceiver {
	r := &stockedReceiver{prefetches: prefetches, changed: make(chan struct{}), onReceive: noted}
	for i := range n {
		r.stock = append(r.stock, first+i)
	}
	return r
}

// change makes a change and wakes all who wait. The next one closes the channel.
func (r *stockedReceiver) change(f func()) <-chan struct{} {
	r.mu.Lock()
	f()
	for r.prefetches && len(r.stock) > 0 && r.inFlight+len(r.prefetched) < r.limit {
		r.prefetched, r.stock = append(r.prefetched, r.stock[0]), r.stock[1:]
	}
	close(r.changed)
	changed := make(chan struct{})
	r.changed = changed
	r.mu.Unlock()
	r.onReceive()
	return changed
}

// tryReceive is change for a Receive, which wakes nobody if it takes nothing.
func (r *stockedReceiver) tryReceive(f func()) <-chan struct{} {
	r.mu.Lock()
	before := r.inFlight
	f()
	changed := r.changed
	took := r.inFlight != before
	r.mu.Unlock()
	if took {
		return r.change(func() {})
	}
	return changed
}

func (r *stockedReceiver) unsettledCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight + len(r.prefetched)
}

// limits returns how many deliveries the receivers may hold together at one moment.
func limits(receivers [2]*stockedReceiver) int {
	for _, r := range receivers {
		r.mu.Lock()
		defer r.mu.Unlock() //nolint:gocritic // there are two
	}
	return receivers[0].limit + receivers[1].limit
}

func (r *stockedReceiver) Receive(ctx context.Context, dst []Delivery) (n int, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		changed := r.tryReceive(func() {
			from := &r.stock
			if r.prefetches {
				from = &r.prefetched
			}
			for n < len(dst) && len(*from) > 0 && (r.prefetches || r.inFlight < r.limit) {
				dst[n] = &stockedDelivery{receiver: r, id: (*from)[0]}
				*from = (*from)[1:]
				r.inFlight++
				n++
			}
			err = r.failure
			if r.closed {
				err = ErrClosed
			}
		})
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (r *stockedReceiver) SetMaxInFlight(n int) {
	r.change(func() {
		r.limit = n
		if n == 0 && !r.prefetches {
			r.stock, r.prefetched = append(r.stock, r.prefetched...), nil
		}
	})
}

func (r *stockedReceiver) Close(context.Context) error {
	r.change(func() { r.closed = true })
	return nil
}

type stockedDelivery struct {
	Delivery // nil
	receiver *stockedReceiver
	id       int
}

func (d *stockedDelivery) Incoming() *Incoming { return &Incoming{ID: fmt.Sprint(d.id)} }

func (d *stockedDelivery) Complete(context.Context) error {
	d.receiver.change(func() { d.receiver.inFlight-- })
	return nil
}

func (d *stockedDelivery) LockedUntil() time.Time { return time.Time{} }

func (d *stockedDelivery) Abandon(ctx context.Context, _ error) error { return d.Release(ctx) }

func (d *stockedDelivery) Release(context.Context) error {
	d.receiver.change(func() {
		d.receiver.inFlight--
		d.receiver.stock = append(d.receiver.stock, d.id)
	})
	return nil
}

func newStockedReceivers(n, shared, own int, caps Capabilities) (c *combinedReceiver, receivers [2]*stockedReceiver) {
	receivers[0] = newStockedReceiver(0, shared, caps.CountsReleases, func() {})
	receivers[1] = newStockedReceiver(1_000_000, own, caps.CountsReleases, func() {})
	c = newCombinedReceiver(&queueReceiver{queue: "shared", receiver: receivers[0]}, &queueReceiver{queue: "own", receiver: receivers[1]}, TransactionReceiveOnly, caps)
	c.watch = func(Delivery) *locks.Context { return nil }
	c.release = func(item fetchedDelivery) { _ = item.Delivery.Release(context.Background()) }
	c.SetMaxInFlight(n)
	return c, receivers
}

// Calls that end at any moment, a MaxInFlight that changes, and settlements of all kinds
// lose nothing, and hand nothing out twice (C3).
func TestCombinedReceiver_StormOfCancelledReceives(t *testing.T) {
	for name, caps := range map[string]Capabilities{"on demand": {}, "prefetching": {CountsReleases: true}} {
		t.Run(name, func(t *testing.T) {
			const each = 1500
			c, receivers := newStockedReceivers(10, each, each, caps)
			var mu sync.Mutex
			completed := map[string]int{}
			done := make(chan struct{})
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), 1))
					dst := make([]Delivery, 1+i)
					for {
						select {
						case <-done:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(300))*time.Microsecond)
						n, err := c.Receive(ctx, dst)
						cancel()
						if n == 0 && !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("Receive returned %d, %v", n, err)
							return
						}
						for _, d := range dst[:n] {
							switch random.IntN(4) {
							case 0:
								_ = d.Abandon(context.Background(), nil)
							case 1:
								_ = d.Release(context.Background())
							default:
								id := d.Incoming().ID
								_ = d.Complete(context.Background())
								mu.Lock()
								completed[id]++
								if len(completed) == 2*each {
									close(done)
								}
								mu.Unlock()
							}
						}
					}
				})
			}
			all.Go(func() {
				random := rand.New(rand.NewPCG(9, 9))
				for {
					select {
					case <-done:
						return
					case <-time.After(time.Duration(random.IntN(1000)) * time.Microsecond):
						c.SetMaxInFlight(random.IntN(12))
					}
				}
			})
			all.Wait()
			for id, n := range completed {
				if n != 1 {
					t.Errorf("message %s was completed %d times", id, n)
				}
			}
			c.SetMaxInFlight(10)
			for i, q := range c.queues {
				c.mu.Lock()
				if q.count != 0 {
					t.Errorf("%d deliveries of queue %d count as unsettled", q.count, i)
				}
				c.mu.Unlock()
				if n := receivers[i].unsettledCount(); n != 0 {
					t.Errorf("receiver %d holds %d", i, n)
				}
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := c.Receive(t.Context(), make([]Delivery, 1)); !errors.Is(err, ErrClosed) {
				t.Errorf("Receive after Close returned %v", err)
			}
		})
	}
}

// Together the receivers may hold one delivery more than was asked for, and a queue that
// needs more places gets those of the other one. One that gives places up keeps what it
// has at that moment.
func TestCombinedReceiver_SharesMaxInFlight(t *testing.T) {
	for name, caps := range map[string]Capabilities{"on demand": {}, "prefetching": {CountsReleases: true}} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 16, 100} {
				for _, stock := range [][2]int{{500, 0}, {0, 500}, {500, 500}} {
					synctest.Test(t, func(t *testing.T) {
						c, receivers := newStockedReceivers(n, stock[0], stock[1], caps)
						check := func() {
							if may := limits(receivers); may > n+1 {
								t.Errorf("with MaxInFlight %d they may hold %d", n, may)
							}
						}
						receivers[0].onReceive, receivers[1].onReceive = check, check
						var handed []Delivery
						dst := make([]Delivery, 3)
						for len(handed) < n {
							got, err := c.Receive(t.Context(), dst[:min(len(dst), n-len(handed))])
							if err != nil {
								t.Fatal(err)
							}
							handed = append(handed, dst[:got]...)
							synctest.Wait() // what was asked for has come
						}
						check()
						from := [2]int{}
						for _, d := range handed {
							if d.(*queueDelivery).from == c.queues[0] {
								from[0]++
							} else {
								from[1]++
							}
						}
						for i, q := range c.queues {
							if stock[i] > 0 && n > 10 && from[i] == 0 {
								t.Errorf("with MaxInFlight %d and %v messages, %v were handed out", n, stock, from)
							}
							if q.maxInFlight < 1 {
								t.Errorf("queue %d may hold %d", i, q.maxInFlight)
							}
						}
						for _, d := range handed {
							_ = d.Complete(t.Context())
						}
						c.SetMaxInFlight(0)
						synctest.Wait()
						if held := receivers[0].unsettledCount() + receivers[1].unsettledCount(); held > 0 && !caps.CountsReleases {
							t.Errorf("with MaxInFlight 0 they hold %d", held)
						}
						if err := c.Close(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
			}
		})
	}
}

// Places of deliveries whose locks ran out are free again.
func TestCombinedReceiver_LostLocksFreeTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newStockedReceivers(2, 0, 0, Capabilities{})
		own := c.queues[1]
		c.mu.Lock()
		for _, q := range c.queues {
			q.addUnsettledLocked(&queueDelivery{Delivery: &expiringDelivery{until: time.Now().Add(time.Second)}, from: q})
		}
		c.balanceLocked()
		if own.maxInFlight != 1 || own.count != 1 { // 2 of 3 are the shared queue's, one of which is free
			t.Errorf("it may hold %d and holds %d", own.maxInFlight, own.count)
		}
		c.mu.Unlock()
		time.Sleep(2 * time.Second)
		c.mu.Lock()
		c.balanceLocked()
		if own.count != 0 {
			t.Errorf("it holds %d", own.count)
		}
		c.mu.Unlock()
	})
}

type expiringDelivery struct {
	stockedDelivery
	until time.Time
}

func (d *expiringDelivery) LockedUntil() time.Time { return d.until }

// What arrives of the shared queue while all slots hang goes back to other instances, and
// is asked for again when there is a free one.
func TestCombinedReceiver_SharedMessagesDoNotWaitForSlotsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, receivers := newStockedReceivers(4, 0, 1, Capabilities{})
		dst := make([]Delivery, 1)
		if n, err := c.Receive(t.Context(), dst); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		receivers[0].change(func() { receivers[0].stock = []int{7} })
		time.Sleep(pump.StallTimeout / 2)
		if held := receivers[0].unsettledCount(); held != 1 {
			t.Errorf("it was asked for %d messages that it has, want 1", held)
		}
		time.Sleep(pump.StallTimeout)
		if held := receivers[0].unsettledCount(); held != 0 {
			t.Errorf("%d messages wait here for a slot", held)
		}
		if n, err := c.Receive(t.Context(), dst); n != 1 || err != nil || dst[0].Incoming().ID != "7" {
			t.Errorf("Receive returned %d, %v", n, err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCombinedReceiver_ReportsAnAdapterThatBreaksTheContract(t *testing.T) {
	for says, brings := range map[string]func(dst []Delivery) (int, error){
		"returned 4 deliveries for 3 places (C3)": func([]Delivery) (int, error) { return 4, nil },
		"neither a delivery nor an error (C3)":    func([]Delivery) (int, error) { return 0, nil },
		"1 deliveries, of which number 1 is nil":  func([]Delivery) (int, error) { return 1, nil },
		"broken beyond repair":                    func([]Delivery) (int, error) { return 0, errors.New("broken beyond repair") },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newStockedReceivers(4, 0, 0, Capabilities{})
			c.queues[1].receiver = &scriptedReceiver{c.queues[1].receiver, brings}
			_, err := c.Receive(t.Context(), make([]Delivery, 3))
			if err == nil || !errors.Is(err, c.failed) || err.Error()[:13] != `queue "own": ` {
				t.Errorf("%v, want %s", err, says)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

type scriptedReceiver struct {
	Receiver
	deliveries func(dst []Delivery) (int, error)
}

func (r *scriptedReceiver) Receive(_ context.Context, dst []Delivery) (int, error) {
	return r.deliveries(dst)
}

// Where both queues have messages, they are handed out by turns.
func TestCombinedReceiver_TakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, receivers := newStockedReceivers(20, 0, 0, Capabilities{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.mu.Lock()
		for _, q := range c.queues { // as if both had been asked before
			q.startCallsLocked(5)
		}
		c.mu.Unlock()
		if _, err := c.Receive(ctx, make([]Delivery, 1)); err == nil {
			t.Error("Receive returned no error although its context had ended")
		}
		for _, r := range receivers {
			r.change(func() { r.stock = []int{1, 2, 3, 4, 5} })
		}
		synctest.Wait()
		from := map[*queueReceiver]int{}
		dst := make([]Delivery, 4)
		n, err := c.Receive(t.Context(), dst)
		for _, d := range dst[:n] {
			from[d.(*queueDelivery).from]++
		}
		if n < 2 || err != nil || from[c.queues[0]] == 0 || from[c.queues[1]] == 0 {
			t.Errorf("Receive returned %d, %v: %d of the shared queue and %d of the other", n, err, from[c.queues[0]], from[c.queues[1]])
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A call of the receiver that was ended, and returns late, is made again for those who
// wait.
func TestCombinedReceiver_ReceivesAgainAfterACanceledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, receivers := newStockedReceivers(4, 0, 1, Capabilities{})
		late := make(chan struct{})
		calls := 0
		c.queues[0].receiver = &callingReceiver{receivers[0], func(ctx context.Context, dst []Delivery) (int, error) {
			if calls++; calls > 1 {
				return receivers[0].Receive(ctx, dst)
			}
			<-ctx.Done()
			<-late
			return 0, ctx.Err()
		}}
		dst := make([]Delivery, 1)
		if n, err := c.Receive(t.Context(), dst); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(2 * pump.StallTimeout)
		receivers[0].change(func() { receivers[0].stock = []int{7} })
		go func() {
			time.Sleep(time.Second)
			close(late)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if n, err := c.Receive(ctx, dst); n != 1 || err != nil {
			t.Errorf("Receive returned %d, %v", n, err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type callingReceiver struct {
	Receiver
	receive func(ctx context.Context, dst []Delivery) (int, error)
}

func (r *callingReceiver) Receive(ctx context.Context, dst []Delivery) (int, error) {
	return r.receive(ctx, dst)
}
