// Package pump fetches deliveries and has workers handle them. It decides how many are
// fetched, when, and which are given back unstarted. The caller knows the
// deliveries, and handles them.
//
// Messages have no goroutine or channel of their own: an idle worker becomes the fetcher,
// puts the fetched deliveries into a buffer, and wakes one other worker, which wakes the
// next if there is more to do. If a Receive returns few deliveries at a time
// ([Rules].MaxBatch), and returned as many as it could, more workers fetch at the same time.
// If each delivery takes a connection ([Rules].FetchPerWorker), each worker fetches for
// itself, so that no delivery waits unstarted.
package pump

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/internal/locks"
	"github.com/reprise-go/reprise/core/internal/prefetch"
)

// Receiver is the source of deliveries: core.Receiver, as far as the pump needs it. D is an
// interface; a nil delivery is an error of the receiver.
type Receiver[D any] interface {
	Receive(ctx context.Context, dst []D) (n int, err error)
	SetMaxInFlight(n int)
}

// Item is a delivery with the renewal of its lock, if it has one.
type Item[D any] struct {
	Delivery D
	Lock     *locks.Context
}

// Rules are how a pump works with a transport in a transaction mode.
type Rules struct {
	FetchPerWorker   bool          // each delivery takes a connection: none waits unstarted
	ReceiveAndDelete bool          // fetched deliveries cannot be released (TransactionNone)
	CountsReleases   bool          // the broker counts a delivery that is released as an attempt
	Prefetches       bool          // deliveries may be fetched beyond the free slots; a slot is free while its delivery is being settled
	MaxBatch         int           // deliveries of a Receive; 0 = no limit
	MaxPrefetchBytes int           // of unstarted deliveries, by Calls.Bytes; 0 = no limit
	Isolates         bool          // suspects are attempted alone, see Calls.IsSuspect
	SlowAfter        time.Duration // after which Calls.OnSlow is called, once an attempt; 0 = never
}

// Calls are the functions that a pump calls. All are called concurrently, and
// without a lock unless it is said.
type Calls[D, A any] struct {
	// Fetched returns a delivery that Receive has returned as it is to be handled.
	Fetched func(D) Item[D]
	// Handle handles a delivery until it is settled, or kept (Pump.Retain).
	Handle func(*Worker[D, A], Item[D])
	// Release gives an unstarted delivery back.
	Release func(Item[D])
	// OnError is called once, when the receiver has failed permanently. It must not block.
	OnError func(error)
	// OnSlow is called for an attempt that has been running for Rules.SlowAfter.
	OnSlow func(a *A, running time.Duration)

	// Bytes returns the memory that a delivery takes; called under the pump's lock.
	Bytes func(D) int
	// IsSuspect reports whether a delivery may have killed its process before, and
	// TotalDeliveries how often it was delivered in all; the latter is called under the
	// pump's lock. They are needed if Rules.Isolates.
	IsSuspect       func(D) bool
	TotalDeliveries func(D) int
	// OnIsolate is called with the first suspect, and with the zero value when messages are
	// attempted side by side again. It is called under the pump's lock, and must not block.
	OnIsolate func(isolating bool, suspect D)
}

// New returns a pump without slots, which SetLimit gives it. It fetches until base ends, or
// Stop is called.
func New[D, A any](base context.Context, receiver Receiver[D], rules Rules, calls Calls[D, A]) *Pump[D, A] {
	p := &Pump[D, A]{receiver: receiver, base: base, rules: rules, calls: calls, workers: map[*Worker[D, A]]struct{}{}}
	p.maxInFlight = -1 // impossible, so that the receiver is told the first one in any case
	p.isolation.probing = rules.Isolates
	p.estimate.Max = rules.maxPrefetch()
	p.buffer.Limit = rules.MaxPrefetchBytes
	p.buffer.Size = func(item Item[D]) int { return calls.Bytes(item.Delivery) }
	p.pool.run = (*Worker[D, A]).run
	p.wakeUp = sync.NewCond(&p.mu)
	p.fetchCtx, p.interrupt = context.WithCancel(base)
	return p
}

func (r Rules) maxPrefetch() int {
	if r.CountsReleases {
		return prefetch.MaxCounted
	}
	return prefetch.Max
}

// FirstMaxInFlight returns the MaxInFlight that a pump begins with for a number of slots.
func (r Rules) FirstMaxInFlight(limit int) int {
	p := Pump[struct{}, struct{}]{rules: r}
	p.isolation.probing = r.Isolates
	return p.receiverLimitLocked(limit)
}
