package inbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Memory is a store in the memory of the process, for tests. Its transactions have no
// database: with [MemoryTransaction] a test's fake database can take part. The zero value
// is empty and ready to use.
type Memory struct {
	mu      sync.Mutex
	entries map[Key]Entry
	claims  map[Key]chan struct{} // closed when the claim ends
}

// Begin implements Store.
func (s *Memory) Begin(ctx context.Context, key Key, wait time.Duration) (Transaction, *Entry, error) {
	var limit <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		limit = timer.C
	}
	for {
		tx, entry, ended := s.claim(key)
		if ended == nil {
			if entry != nil {
				return nil, entry, nil
			}
			return tx, nil, nil
		}
		select {
		case <-ended:
		case <-limit:
			return nil, nil, ErrInProgress
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// claim returns a transaction, or the existing entry, or a channel that is closed when
// the current claim ends.
func (s *Memory) claim(key Key) (*MemoryTransaction, *Entry, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if entry, ok := s.entries[key]; ok {
		return nil, &entry, nil
	}
	if ended, ok := s.claims[key]; ok {
		return nil, nil, ended
	}
	if s.claims == nil {
		s.claims = map[Key]chan struct{}{}
	}
	s.claims[key] = make(chan struct{})
	return &MemoryTransaction{store: s, key: key, at: time.Now()}, nil, nil
}

// MarkSent implements Store.
func (s *Memory) MarkSent(_ context.Context, keys []Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if entry, ok := s.entries[key]; ok {
			entry.Outgoing = nil
			s.entries[key] = entry
		}
	}
	return nil
}

// Remove implements Store.
func (s *Memory) Remove(_ context.Context, age time.Duration, limit int) (removed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := time.Now().Add(-age)
	for key, entry := range s.entries {
		if removed == limit {
			break
		}
		if !entry.HandledAt.After(newest) {
			delete(s.entries, key)
			removed++
		}
	}
	return removed, nil
}

// Entry returns the entry of a handled message, for tests.
func (s *Memory) Entry(key Key) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, ok := s.entries[key]
	return entry, ok
}

// MemoryTransaction is a transaction of a [Memory].
type MemoryTransaction struct {
	store *Memory
	key   Key
	at    time.Time

	mu       sync.Mutex
	ended    bool
	onCommit []func()
}

type memoryTransactionKey struct{}

// MemoryTx returns the transaction of the message being handled. ctx is the handler's.
func MemoryTx(ctx context.Context) (*MemoryTransaction, error) {
	tx, ok := ctx.Value(memoryTransactionKey{}).(*MemoryTransaction)
	if !ok {
		return nil, errors.New("inbox: there is no transaction of a Memory in this context: pass that of a handler whose endpoint has an Inbox with this store")
	}
	return tx, nil
}

// OnCommit registers f to be called when the transaction is committed, in the order of
// the calls. If the transaction is rolled back, f is not called. f stands for a handler's
// statements in a database. It must not use the store.
func (tx *MemoryTransaction) OnCommit(f func()) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		return errEnded
	}
	tx.onCommit = append(tx.onCommit, f)
	return nil
}

var errEnded = errors.New("inbox: the transaction of this message has ended")

// Context implements Transaction.
func (tx *MemoryTransaction) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, memoryTransactionKey{}, tx)
}

// Commit implements Transaction.
func (tx *MemoryTransaction) Commit(ctx context.Context, outgoing []byte) error {
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), tx.Rollback(ctx))
	}
	return tx.end(func(s *Memory) {
		if s.entries == nil {
			s.entries = map[Key]Entry{}
		}
		s.entries[tx.key] = Entry{HandledAt: tx.at, Outgoing: slices.Clone(outgoing)}
		for _, f := range tx.onCommit {
			f()
		}
	})
}

// Rollback implements Transaction.
func (tx *MemoryTransaction) Rollback(context.Context) error { return tx.end(func(*Memory) {}) }

// end calls do, with the locks of the store and of tx, and then ends the claim.
func (tx *MemoryTransaction) end(do func(*Memory)) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		return errEnded
	}
	tx.ended = true
	s := tx.store
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { // also if a function of OnCommit panics
		close(s.claims[tx.key])
		delete(s.claims, tx.key)
	}()
	do(s)
	return nil
}
