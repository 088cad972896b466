package inboxtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/inbox"
)

// memoryDatabase is the database of the in-memory store: rows are counted.
type memoryDatabase struct {
	store  *inbox.Memory
	mutate func(inbox.Store) inbox.Store // or nil

	mu   sync.Mutex
	rows map[string]int
}

func newMemoryDatabase() *memoryDatabase {
	return &memoryDatabase{store: &inbox.Memory{}, rows: map[string]int{}}
}

func (d *memoryDatabase) Open(context.Context) (inbox.Store, error) {
	if d.mutate != nil {
		return d.mutate(d.store), nil
	}
	return d.store, nil
}

func (d *memoryDatabase) Effect(ctx context.Context, name string) error {
	tx, err := inbox.MemoryTx(ctx)
	if err != nil {
		return err
	}
	return tx.OnCommit(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.rows[name]++
	})
}

func (d *memoryDatabase) Effects(_ context.Context, name string) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rows[name], nil
}

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Database { return newMemoryDatabase() })
}

// mutant is a store with one mistake. Fields that are nil are without mistakes.
type mutant struct {
	inbox.Store
	begin    func(ctx context.Context, s inbox.Store, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error)
	commit   func(ctx context.Context, s inbox.Store, k inbox.Key, tx inbox.Transaction, outgoing []byte) error
	rollback func(ctx context.Context, tx inbox.Transaction) error
	mark     func(ctx context.Context, s inbox.Store, keys []inbox.Key) error
	remove   func(ctx context.Context, s inbox.Store, age time.Duration, limit int) (int, error)
}

func (m *mutant) Begin(ctx context.Context, k inbox.Key, wait time.Duration) (tx inbox.Transaction, entry *inbox.Entry, err error) {
	if m.begin != nil {
		tx, entry, err = m.begin(ctx, m.Store, k, wait)
	} else {
		tx, entry, err = m.Store.Begin(ctx, k, wait)
	}
	if tx != nil {
		tx = &mutantTransaction{tx, m, k}
	}
	return tx, entry, err
}

func (m *mutant) MarkSent(ctx context.Context, keys []inbox.Key) error {
	if m.mark != nil {
		return m.mark(ctx, m.Store, keys)
	}
	return m.Store.MarkSent(ctx, keys)
}

func (m *mutant) Remove(ctx context.Context, age time.Duration, limit int) (int, error) {
	if m.remove != nil {
		return m.remove(ctx, m.Store, age, limit)
	}
	return m.Store.Remove(ctx, age, limit)
}

type mutantTransaction struct {
	inbox.Transaction
	m *mutant
	k inbox.Key
}

func (t *mutantTransaction) Commit(ctx context.Context, outgoing []byte) error {
	if t.m.commit != nil {
		return t.m.commit(ctx, t.m.Store, t.k, t.Transaction, outgoing)
	}
	return t.Transaction.Commit(ctx, outgoing)
}

func (t *mutantTransaction) Rollback(ctx context.Context) error {
	if t.m.rollback != nil {
		return t.m.rollback(ctx, t.Transaction)
	}
	return t.Transaction.Rollback(ctx)
}

// rewriting changes the messages that an entry has to send.
func rewriting(change func([]byte) []byte) func(context.Context, inbox.Store, inbox.Key, time.Duration) (inbox.Transaction, *inbox.Entry, error) {
	return func(ctx context.Context, s inbox.Store, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
		tx, entry, err := s.Begin(ctx, k, wait)
		if entry != nil {
			entry.Outgoing = change(slices.Clone(entry.Outgoing))
		}
		return tx, entry, err
	}
}

// keyed is a store that mistakes the key.
func keyed(change func(inbox.Key) inbox.Key) *mutant {
	changed := func(keys []inbox.Key) (all []inbox.Key) {
		for _, k := range keys {
			all = append(all, change(k))
		}
		return all
	}
	return &mutant{
		begin: func(ctx context.Context, s inbox.Store, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
			return s.Begin(ctx, change(k), wait)
		},
		mark: func(ctx context.Context, s inbox.Store, keys []inbox.Key) error {
			return s.MarkSent(ctx, changed(keys))
		},
	}
}

// mutants are stores with a mistake each, and one of the tests that must find it.
var mutants = map[string]struct {
	mutant  func() *mutant
	foundBy string
}{
	"drops the sends": {func() *mutant {
		return &mutant{commit: func(ctx context.Context, _ inbox.Store, _ inbox.Key, tx inbox.Transaction, _ []byte) error {
			return tx.Commit(ctx, nil)
		}}
	}, "Endpoint_LostSendsAreRepeated"},
	"gives the sends new ids": {func() *mutant {
		return &mutant{begin: rewriting(func(out []byte) []byte { return bytes.ReplaceAll(out, []byte(`"id":"`), []byte(`"id":"new`)) })}
	}, "Endpoint_LostSendsAreRepeated"},
	"drops the bodies before acceptance": {func() *mutant {
		return &mutant{commit: func(ctx context.Context, s inbox.Store, k inbox.Key, tx inbox.Transaction, out []byte) error {
			return errors.Join(tx.Commit(ctx, out), s.MarkSent(ctx, []inbox.Key{k}))
		}}
	}, "Endpoint_LostSendsAreRepeated"},
	"never drops the bodies": {func() *mutant {
		return &mutant{mark: func(context.Context, inbox.Store, []inbox.Key) error { return nil }}
	}, "Endpoint_LostSendsAreRepeated"},
	"forgets the entry with its bodies": {func() *mutant {
		return &mutant{mark: func(ctx context.Context, s inbox.Store, keys []inbox.Key) error {
			_, err := s.Remove(ctx, 0, len(keys))
			return err
		}}
	}, "MarkSent_DropsOutgoingAlone"},
	"finds no bodies": {func() *mutant {
		return &mutant{begin: rewriting(func([]byte) []byte { return nil })}
	}, "Commit_KeepsOutgoing"},
	"key without scope": {func() *mutant { return keyed(func(k inbox.Key) inbox.Key { return inbox.Key{ID: k.ID} }) }, "Endpoint_EachScopeHandles"},
	"key without handler": {func() *mutant {
		return keyed(func(k inbox.Key) inbox.Key { return inbox.Key{Scope: "billing", ID: k.ID} })
	}, "Endpoint_EachHandlerOnce"},
	"key of scope and id run together": {func() *mutant {
		return keyed(func(k inbox.Key) inbox.Key { return inbox.Key{ID: k.Scope + k.ID} })
	}, "Begin_TellsKeysApart"},
	"key in lower case": {func() *mutant {
		return keyed(func(k inbox.Key) inbox.Key { return inbox.Key{Scope: k.Scope, ID: string(bytes.ToLower([]byte(k.ID)))} })
	}, "Begin_TellsKeysApart"},
	"key without spaces at its end": {func() *mutant {
		return keyed(func(k inbox.Key) inbox.Key {
			return inbox.Key{Scope: k.Scope, ID: string(bytes.TrimRight([]byte(k.ID), " "))}
		})
	}, "Begin_TellsKeysApart"},
	"key is cut": {func() *mutant {
		return keyed(func(k inbox.Key) inbox.Key { return inbox.Key{Scope: k.Scope, ID: k.ID[:min(len(k.ID), 253)]} })
	}, "Begin_TellsKeysApart"},
	"notes before the commit": {func() *mutant {
		return &mutant{begin: func(ctx context.Context, s inbox.Store, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
			tx, entry, err := s.Begin(ctx, k, wait)
			if tx == nil {
				return nil, entry, err
			}
			if err := tx.Commit(ctx, nil); err != nil {
				return nil, nil, err
			}
			k.ID += "\x00work" // so that the handler has a transaction
			return s.Begin(ctx, k, wait)
		}}
	}, "Rollback_UndoesClaimAndEffect"},
	"notes work that was rolled back": {func() *mutant {
		return &mutant{rollback: func(ctx context.Context, tx inbox.Transaction) error { return tx.Commit(ctx, nil) }}
	}, "Endpoint_Verdicts"},
	"commits in an ended context": {func() *mutant {
		return &mutant{commit: func(ctx context.Context, _ inbox.Store, _ inbox.Key, tx inbox.Transaction, out []byte) error {
			return tx.Commit(context.WithoutCancel(ctx), out)
		}}
	}, "Commit_EndedContext"},
	"does not wait": {func() *mutant {
		return &mutant{begin: func(ctx context.Context, s inbox.Store, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
			return s.Begin(ctx, k, time.Nanosecond)
		}}
	}, "Begin_WaitsForTheOtherCopy"},
	"takes the copy in progress for one that was handled": {func() *mutant {
		return &mutant{begin: func(ctx context.Context, s inbox.Store, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
			tx, entry, err := s.Begin(ctx, k, time.Nanosecond)
			if errors.Is(err, inbox.ErrInProgress) {
				return nil, &inbox.Entry{HandledAt: time.Now()}, nil
			}
			return tx, entry, err
		}}
	}, "Begin_WaitIsBounded"},
	"waits without limit": {func() *mutant {
		return &mutant{begin: func(ctx context.Context, s inbox.Store, k inbox.Key, _ time.Duration) (inbox.Transaction, *inbox.Entry, error) {
			brief, cancel := context.WithTimeout(ctx, time.Second) // or the test would take minutes
			defer cancel()
			return s.Begin(brief, k, 0)
		}}
	}, "Begin_WaitIsBounded"},
	"fails a copy at the same time": {func() *mutant {
		return &mutant{begin: func(ctx context.Context, s inbox.Store, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
			tx, entry, err := s.Begin(ctx, k, time.Nanosecond)
			if errors.Is(err, inbox.ErrInProgress) {
				err = errors.New("duplicate key value violates unique constraint")
			}
			return tx, entry, err
		}}
	}, "Endpoint_CopiesAtOnce"},
	"expiry by the last sight": {func() *mutant {
		var seen atomic.Bool // a duplicate, a moment ago
		return &mutant{
			begin: func(ctx context.Context, s inbox.Store, k inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
				tx, entry, err := s.Begin(ctx, k, wait)
				if entry != nil {
					seen.Store(true)
				}
				return tx, entry, err
			},
			remove: func(ctx context.Context, s inbox.Store, age time.Duration, limit int) (int, error) {
				if age > 0 && seen.Load() {
					return 0, nil
				}
				return s.Remove(ctx, age, limit)
			},
		}
	}, "Remove_ByTheTimeOfWriting"},
	"removes new entries": {func() *mutant {
		return &mutant{remove: func(ctx context.Context, s inbox.Store, _ time.Duration, limit int) (int, error) {
			return s.Remove(ctx, 0, limit)
		}}
	}, "Remove_ByTheTimeOfWriting"},
	"removes without a limit": {func() *mutant {
		return &mutant{remove: func(ctx context.Context, s inbox.Store, age time.Duration, _ int) (int, error) {
			return s.Remove(ctx, age, 1<<30)
		}}
	}, "Remove_ByTheTimeOfWriting"},
}

func TestMutants(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(cases, func(c testCase) bool { return c.name == m.foundBy })
			// Some are found only where goroutines meet at the right time.
			var err error
			for range 50 {
				if err = checkMutant(t.Context(), m.mutant(), cases[i]); err != nil {
					break
				}
			}
			if err == nil {
				t.Fatalf("%s does not find it", m.foundBy)
			}
			t.Log(err)
		})
	}
}

// checkMutant returns the mistakes that a case finds in a mutant.
func checkMutant(ctx context.Context, m *mutant, c testCase) error {
	db := newMemoryDatabase()
	m.Store = db.store
	db.mutate = func(inbox.Store) inbox.Store { return m }
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // some mutants keep a test waiting
	defer cancel()
	return c.check(ctx, db)
}
