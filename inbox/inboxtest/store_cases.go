package inboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/inbox"
)

func key(scope, id string) inbox.Key { return inbox.Key{Scope: scope, ID: id} }

// begun begins a transaction. The key must be free.
func begun(ctx context.Context, store inbox.Store, k inbox.Key) (inbox.Transaction, error) {
	tx, entry, err := store.Begin(ctx, k, time.Minute)
	if err == nil && (tx == nil || entry != nil) {
		err = fmt.Errorf("there is an entry of %v, or no transaction, but nothing was committed for it", k)
	}
	return tx, err
}

// handled handles a message: it adds a row with the name of its id.
func handled(ctx context.Context, db Database, store inbox.Store, k inbox.Key, outgoing []byte) error {
	tx, err := begun(ctx, store, k)
	if err != nil {
		return err
	}
	if err := db.Effect(tx.Context(ctx), k.ID); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx, outgoing)
}

// hasEntry checks that a store has an entry.
func hasEntry(ctx context.Context, store inbox.Store, k inbox.Key, outgoing []byte) error {
	tx, entry, err := store.Begin(ctx, k, time.Minute)
	switch {
	case err != nil:
		return err
	case tx != nil:
		return errors.Join(fmt.Errorf("the entry of %v was committed, but it is claimed again", k), tx.Rollback(ctx))
	case entry == nil:
		return fmt.Errorf("Begin of %v returned neither transaction nor entry nor error", k)
	case entry.HandledAt.IsZero():
		return fmt.Errorf("the entry of %v has no time of handling", k)
	case !bytes.Equal(entry.Outgoing, outgoing):
		return fmt.Errorf("the entry of %v has %d bytes to send, but %d other ones were committed", k, len(entry.Outgoing), len(outgoing))
	}
	return nil
}

// hasNone checks that there is no entry, and that the key can be claimed.
func hasNone(ctx context.Context, store inbox.Store, k inbox.Key) error {
	tx, err := begun(ctx, store, k)
	if err != nil {
		return err
	}
	return tx.Rollback(ctx)
}

func hasEffects(ctx context.Context, db Database, name string, want int) error {
	got, err := db.Effects(ctx, name)
	if err == nil && got != want {
		err = fmt.Errorf("the effect of %q is there %d times, want %d", name, got, want)
	}
	return err
}

// steps runs steps until one fails.
func steps(all ...func() error) error {
	for _, step := range all {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// two opens two stores.
func two(ctx context.Context, db Database) (one, other inbox.Store, err error) {
	if one, err = db.Open(ctx); err == nil {
		other, err = db.Open(ctx)
	}
	return one, other, err
}

func commitsTogether(ctx context.Context, db Database) error {
	one, other, err := two(ctx, db)
	if err != nil {
		return err
	}
	k := key("billing", "m1")
	return steps(
		func() error { return handled(ctx, db, one, k, nil) },
		func() error { return hasEffects(ctx, db, "m1", 1) },
		func() error { return hasEntry(ctx, one, k, nil) },
		func() error { return hasEntry(ctx, other, k, nil) },
		func() error { return hasEffects(ctx, db, "m1", 1) },
	)
}

func keepsOutgoing(ctx context.Context, db Database) error {
	store, err := db.Open(ctx)
	if err != nil {
		return err
	}
	for id, outgoing := range map[string][]byte{
		"short": []byte(`[{"id":"s1"}]`), "binary": {0, 1, 0xff, '\\', '\'', 0}, "large": bytes.Repeat([]byte("0123456789abcdef"), 64<<10),
	} {
		k := key("billing", id)
		if err := handled(ctx, db, store, k, outgoing); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if err := hasEntry(ctx, store, k, outgoing); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if err := hasEntry(ctx, store, k, outgoing); err != nil {
			return fmt.Errorf("%s, at the second look: %w", id, err)
		}
	}
	return nil
}

func commitFails(ctx context.Context, db Database) error {
	store, err := db.Open(ctx)
	if err != nil {
		return err
	}
	k := key("billing", "m1")
	tx, err := begun(ctx, store, k)
	if err != nil {
		return err
	}
	if err := db.Effect(tx.Context(ctx), "m1"); err != nil {
		return err
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := tx.Commit(ended, []byte("x")); err == nil {
		return errors.New("Commit returned nil though its context had ended")
	}
	return steps(
		func() error { return hasEffects(ctx, db, "m1", 0) },
		func() error { return hasNone(ctx, store, k) },
	)
}

func rollsBack(ctx context.Context, db Database) error {
	one, other, err := two(ctx, db)
	if err != nil {
		return err
	}
	k := key("billing", "m1")
	tx, err := begun(ctx, one, k)
	if err != nil {
		return err
	}
	return steps(
		func() error { return db.Effect(tx.Context(ctx), "m1") },
		func() error { return tx.Rollback(ctx) },
		func() error { return hasEffects(ctx, db, "m1", 0) },
		func() error { return hasNone(ctx, other, k) },
		func() error { return handled(ctx, db, one, k, nil) },
		func() error { return hasEffects(ctx, db, "m1", 1) },
	)
}

func endsTransaction(ctx context.Context, db Database) error {
	store, err := db.Open(ctx)
	if err != nil {
		return err
	}
	for id, end := range map[string]func(inbox.Transaction) error{
		"committed":   func(tx inbox.Transaction) error { return tx.Commit(ctx, nil) },
		"rolled back": func(tx inbox.Transaction) error { return tx.Rollback(ctx) },
	} {
		tx, err := begun(ctx, store, key("billing", id))
		if err != nil {
			return err
		}
		bound := tx.Context(ctx)
		if err := end(tx); err != nil {
			return err
		}
		if err := db.Effect(bound, "late"); err == nil {
			return fmt.Errorf("a handler can still use its transaction when it is %s", id)
		}
		if err := hasEffects(ctx, db, "late", 0); err != nil {
			return err
		}
	}
	if err := db.Effect(ctx, "outside"); err == nil {
		return errors.New("there is a transaction in a context that no store made")
	}
	return nil
}

func tellsKeysApart(ctx context.Context, db Database) error {
	store, err := db.Open(ctx)
	if err != nil {
		return err
	}
	long := strings.Repeat("x", 253)
	all := []inbox.Key{
		key("billing", "m1"), key("billing", "m2"), key("shipping", "m1"), key("billing/a", "m1"), key("billing/b", "m1"),
		key("billing", "M1"), key("billing", "m1 "), key("billing", " m1"), key("billing", "m"), key("billingm", "1"),
		key("billing", "\u00e9"), key("billing", "e\u0301"), key("billing", "e"), key("Billing", "m1"),
		key("billing", long+"1"), key("billing", long+"2"), key(long+"1", "m1"), key("billing", `'"\%_`), key("billing", "\n\t{}"),
	}
	for i, k := range all {
		if err := hasNone(ctx, store, k); err != nil {
			return fmt.Errorf("%v after %v were handled: %w", k, all[:i], err)
		}
		if err := handled(ctx, db, store, k, []byte(k.Scope+k.ID)); err != nil {
			return fmt.Errorf("%v: %w", k, err)
		}
	}
	for _, k := range all {
		if err := hasEntry(ctx, store, k, []byte(k.Scope+k.ID)); err != nil {
			return err
		}
	}
	return nil
}

// claimed is the result of a Begin that waited.
type claimed struct {
	tx    inbox.Transaction
	entry *inbox.Entry
	err   error
}

// claiming calls Begin in a goroutine.
func claiming(ctx context.Context, store inbox.Store, k inbox.Key, wait time.Duration) <-chan claimed {
	result := make(chan claimed, 1)
	go func() {
		tx, entry, err := store.Begin(ctx, k, wait)
		result <- claimed{tx, entry, err}
	}()
	return result
}

func waitsForOther(ctx context.Context, db Database) error {
	one, other, err := two(ctx, db)
	if err != nil {
		return err
	}
	for id, commit := range map[string]bool{"commits": true, "rolls back": false} {
		for _, wait := range []time.Duration{0, time.Minute} {
			k := key("billing", fmt.Sprint(id, wait))
			tx, err := begun(ctx, one, k)
			if err != nil {
				return err
			}
			waiting := claiming(ctx, other, k, wait)
			select {
			case c := <-waiting:
				return errors.Join(fmt.Errorf("Begin does not wait while another transaction has claimed the key: %+v", c), tx.Rollback(ctx))
			case <-time.After(50 * time.Millisecond): // enough time to detect the mistake
			}
			if commit {
				err = tx.Commit(ctx, []byte("x"))
			} else {
				err = tx.Rollback(ctx)
			}
			if err != nil {
				return err
			}
			c := <-waiting
			switch {
			case c.err != nil:
				return fmt.Errorf("Begin, when the transaction that it waited for %s: %w", id, c.err)
			case commit && (c.tx != nil || c.entry == nil || string(c.entry.Outgoing) != "x"):
				return fmt.Errorf("Begin returned %+v, but the transaction that it waited for was committed", c)
			case !commit && (c.tx == nil || c.entry != nil):
				return fmt.Errorf("Begin returned %+v, but the transaction that it waited for was rolled back", c)
			case !commit:
				if err := c.tx.Rollback(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func waitIsBounded(ctx context.Context, db Database) error {
	one, other, err := two(ctx, db)
	if err != nil {
		return err
	}
	k := key("billing", "m1")
	tx, err := begun(ctx, one, k)
	if err != nil {
		return err
	}
	if c := <-claiming(ctx, other, k, 20*time.Millisecond); !errors.Is(c.err, inbox.ErrInProgress) || c.tx != nil || c.entry != nil {
		return errors.Join(fmt.Errorf("Begin returned %+v after its wait, want ErrInProgress alone", c), tx.Rollback(ctx))
	}
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if c := <-claiming(brief, other, k, time.Hour); c.err == nil || errors.Is(c.err, inbox.ErrInProgress) {
		return errors.Join(fmt.Errorf("Begin returned %+v after the end of its context, want another error than ErrInProgress", c), tx.Rollback(ctx))
	}
	return steps(
		func() error { return tx.Commit(ctx, nil) },
		func() error { return hasEntry(ctx, other, k, nil) },
		func() error { return handled(ctx, db, other, key("billing", "m2"), nil) }, // it works as before
		func() error { return hasEffects(ctx, db, "m2", 1) },
	)
}

func marksSent(ctx context.Context, db Database) error {
	one, other, err := two(ctx, db)
	if err != nil {
		return err
	}
	keys := []inbox.Key{key("billing", "m1"), key("billing", "m2"), key("shipping", "m1")}
	for _, k := range keys {
		if err := handled(ctx, db, one, k, []byte("x")); err != nil {
			return err
		}
	}
	return steps(
		func() error { return one.MarkSent(ctx, nil) },
		func() error { return hasEntry(ctx, other, keys[0], []byte("x")) },
		func() error { return one.MarkSent(ctx, []inbox.Key{keys[0], keys[0], key("billing", "unknown")}) },
		func() error { return hasEntry(ctx, other, keys[0], nil) },
		func() error { return hasEntry(ctx, other, keys[1], []byte("x")) },
		func() error { return hasEntry(ctx, other, keys[2], []byte("x")) },
		func() error { return hasNone(ctx, other, key("billing", "unknown")) },
	)
}

func removesByTime(ctx context.Context, db Database) error {
	store, err := db.Open(ctx)
	if err != nil {
		return err
	}
	k := key("billing", "m1")
	removes := func(age time.Duration, limit, want int) func() error {
		return func() error {
			removed, err := store.Remove(ctx, age, limit)
			if err == nil && removed != want {
				err = fmt.Errorf("Remove of entries that were written %v ago, with a limit of %d, removed %d entries, want %d", age, limit, removed, want)
			}
			return err
		}
	}
	const age = 50 * time.Millisecond
	all := []func() error{
		func() error { return handled(ctx, db, store, k, []byte("x")) },
		removes(time.Hour, 10, 0),
		func() error {
			for ended := time.Now(); time.Since(ended) <= age; { // at each look the entry stays as old as it is
				if err := hasEntry(ctx, store, k, []byte("x")); err != nil {
					return err
				}
			}
			return nil
		},
		removes(age, 10, 1),
		func() error { return handled(ctx, db, store, k, nil) },
	}
	for i := range 4 {
		all = append(all, func() error { return handled(ctx, db, store, key("billing", fmt.Sprint(i)), nil) })
	}
	return steps(append(all,
		removes(0, 3, 3),
		removes(0, 3, 2),
		removes(0, 3, 0),
		func() error { return hasEffects(ctx, db, "m1", 2) },
	)...)
}

func removeDoesNotBlock(ctx context.Context, db Database) error {
	one, other, err := two(ctx, db)
	if err != nil {
		return err
	}
	const entries = 30
	for i := range entries {
		if err := handled(ctx, db, one, key("billing", fmt.Sprint("old ", i)), nil); err != nil {
			return err
		}
	}
	open, err := begun(ctx, one, key("billing", "open")) // its entry is just as old
	if err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed { // otherwise the test would wait for its connection
			_ = open.Rollback(context.WithoutCancel(ctx))
		}
	}()
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	removed := make(chan int, entries+4)
	for range 4 {
		wg.Go(func() {
			for range entries {
				n, err := other.Remove(ctx, 0, 2)
				if err != nil {
					errs <- err
					return
				}
				removed <- n
			}
		})
	}
	total := 0
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for waiting := true; waiting; {
		select {
		case n := <-removed:
			total += n
		case <-ended:
			waiting = false
		case <-ctx.Done():
			return errors.New("Remove waits for a transaction that has claimed a key")
		}
	}
	close(removed)
	for n := range removed {
		total += n
	}
	select {
	case err := <-errs:
		return err
	default:
	}
	for { // entries that concurrent calls left to each other
		n, err := other.Remove(ctx, 0, entries)
		if err != nil {
			return err
		}
		if total += n; n == 0 {
			break
		}
	}
	if total != entries {
		return fmt.Errorf("%d entries were removed, want the %d that are committed", total, entries)
	}
	committed = true
	return steps(
		func() error { return open.Commit(ctx, nil) },
		func() error { return hasEntry(ctx, other, key("billing", "open"), nil) },
	)
}
