package inbox

import (
	"context"
	"errors"
	"time"
)

// Key identifies an entry of an inbox.
type Key struct {
	// Scope is the owner of the entry: the name of an endpoint, or of an endpoint and one
	// of its handlers. It keeps subscribers of an event apart, which all get the event
	// with the same message id.
	Scope string
	// ID is the message id: UTF-8 without NUL, 255 bytes at most.
	ID string
}

// Entry is a store's record of a handled message.
type Entry struct {
	// HandledAt is the time at which the handling began, by the clock of the store.
	HandledAt time.Time
	// Outgoing is the value given to Commit. It is nil if that was nil, or after
	// MarkSent.
	Outgoing []byte
}

// ErrInProgress is the error of [Store.Begin] if another transaction has claimed the key
// and has not ended.
var ErrInProgress = errors.New("another copy of the message is being handled")

// Store keeps the entries of inboxes in the database of the handlers. Its methods may be
// called from several goroutines and processes. Package inboxtest tests a store.
type Store interface {
	// Begin begins a transaction and claims key in it: when the transaction is committed,
	// the entry of key becomes visible to others; if it is rolled
	// back, there is no entry. If the entry already exists, Begin returns it, without a
	// transaction, and changes nothing.
	//
	// If another transaction has claimed the key, Begin waits until that one ends: for at
	// most wait, after which the error matches ErrInProgress; a wait of 0 means no limit.
	// The end of ctx also ends the wait.
	Begin(ctx context.Context, key Key, wait time.Duration) (Transaction, *Entry, error)

	// MarkSent clears Outgoing of the entries with these keys, whose messages have left.
	// Keys without an entry are ignored.
	MarkSent(ctx context.Context, keys []Key) error

	// Remove removes entries whose HandledAt is at least age ago, at most limit of them,
	// and returns their number. The clock is that of HandledAt, which all processes share: an
	// entry that one of them takes for old protects the others from a duplicate. Remove must
	// not block Begin. While another process removes entries, it may remove none.
	Remove(ctx context.Context, age time.Duration, limit int) (removed int, err error)
}

// Transaction is a transaction in the database of the handlers. Either Commit or Rollback
// is called, once, by the goroutine that called Begin.
type Transaction interface {
	// Context returns the handler's context, in which the store's package finds the
	// transaction.
	Context(ctx context.Context) context.Context

	// Commit commits the transaction, and with it the entry with outgoing, which may be
	// nil. After an error nothing was committed, or the outcome is unknown.
	Commit(ctx context.Context, outgoing []byte) error

	// Rollback undoes everything that was done in the transaction, including the claim.
	Rollback(ctx context.Context) error
}
