package inbox

import (
	"context"
	"errors"
	"time"
)

// Key names one entry of an inbox.
type Key struct {
	// Scope is whose entry it is: the name of an endpoint, or of an endpoint and one of its
	// handlers. All subscribers of an event get it with the same message id.
	Scope string
	// ID is the message id: UTF-8 without NUL, and of 255 bytes at most.
	ID string
}

// Entry is what a store has of a message that was handled.
type Entry struct {
	// HandledAt is when, by the clock of the process that handled it.
	HandledAt time.Time
	// Outgoing is what was given to Commit, or nil where that was nil or MarkSent was
	// called.
	Outgoing []byte
}

// ErrInProgress is the error of [Store.Begin] where another transaction has claimed the
// key and has not ended.
var ErrInProgress = errors.New("another copy of the message is being handled")

// Store keeps the entries of inboxes in the database of the handlers. Its methods may be
// called from several goroutines and processes. Package inboxtest tests one.
type Store interface {
	// Begin begins a transaction and claims key in it: the entry of key, with the time at,
	// becomes visible to others when the transaction is committed, and never if it is not. If
	// there is such an entry already it returns that, without a transaction, and changes
	// nothing.
	//
	// If another transaction has claimed the key, Begin waits until that has ended: for wait
	// at most, then the error matches ErrInProgress; a wait of 0 is without limit. ctx ends
	// the wait as well.
	Begin(ctx context.Context, key Key, at time.Time, wait time.Duration) (Transaction, *Entry, error)

	// MarkSent drops Outgoing of the entries with these keys, whose messages have left. Keys
	// without an entry are ignored.
	MarkSent(ctx context.Context, keys []Key) error

	// Remove removes entries whose HandledAt is before the given time, limit of them at
	// most, and returns how many. It must not keep Begin waiting. Where another process is
	// removing entries at the same time it may remove none.
	Remove(ctx context.Context, before time.Time, limit int) (removed int, err error)
}

// Transaction is one in the database of the handlers. One of Commit and Rollback is called
// once, by the goroutine that called Begin.
type Transaction interface {
	// Context returns the handler's context, in which the store's package finds the
	// transaction.
	Context(ctx context.Context) context.Context

	// Commit commits the transaction, and the entry with outgoing, which may be nil, in it.
	// With an error nothing was committed, or the outcome is unknown.
	Commit(ctx context.Context, outgoing []byte) error

	// Rollback undoes all that was done in the transaction, the claim too.
	Rollback(ctx context.Context) error
}
