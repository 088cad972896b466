package sqlserver

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
)

// strategy is how a receiver takes messages, and keeps other receivers from them until they
// are settled: leaseStrategy, transactionStrategy or noneStrategy, which belong to the
// deliveries of the same name. The receiver calls it concurrently.
type strategy interface {
	// open is called once the receiver is open, before its first fetch.
	open(ctx context.Context)

	// prepare waits for what a fetch needs besides places. It returns false if ctx or the
	// receiver ends first.
	prepare(ctx context.Context) bool

	// fetch fills dst with one statement. more says that the queue may have more messages
	// even if n is 0: the fetched messages had expired, or were for other queues.
	fetch(ctx *operation.Operation, dst []core.Delivery) (n int, more bool, err error)

	// holds reports whether messages are held until they are settled, and have places as
	// long.
	holds() bool

	// ended reports whether a delivery is no longer held, although it was not settled.
	ended(h core.Delivery, now time.Time) bool

	// releaseFetched makes messages available that a fetch brought after close.
	releaseFetched(ctx context.Context, deliveries []core.Delivery)

	// close ends settlements, and makes the messages available that are left.
	close(ctx context.Context, left []core.Delivery)
}

// inTransaction is an unsettled delivery with a transaction.
type inTransaction interface {
	core.Delivery
	// giveUp makes the message available to other receivers. The receiver is closed.
	giveUp(ctx context.Context)
}

// rollBack rolls back the transactions of messages. Each has its own connection, and all
// share one time limit: if the network drops packets, many rollbacks take no longer than
// one.
func rollBack(ctx context.Context, left []core.Delivery) {
	ctx, cancel := context.WithTimeout(ctx, operation.Grace)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range left {
		all.Go(func() { h.(inTransaction).giveUp(ctx) })
	}
	all.Wait()
}

// state is the state of a delivery's settlement.
type state int

const (
	held state = iota
	settled
	lost
)

// ended returns the error of an operation on a message that is settled or lost, or nil.
func (s state) ended() error {
	switch s {
	case settled:
		return core.ErrSettled
	case lost:
		return core.ErrLockLost
	default:
		return nil
	}
}
