package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/inbox/postgres"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// inboxScenarios returns the scenarios of the inbox compared with a handler's own transaction. The broker is in memory, so that
// the database takes most of the measured time.
func inboxScenarios(on *postgresSystem) []scenario {
	return []scenario{{
		name:  "postgres-inbox",
		title: "PostgreSQL, an inbox in the handler's transaction",
		about: "A handler inserts a row, in its own transaction or in that of the inbox, and sends a message or none. Messages come from the in-memory transport in ReceiveOnly, " +
			"so that the database is what is measured. The raw one is the handler's transaction alone, without messages.",
		run: func(ctx context.Context, l load) ([]table, error) { return inboxTransaction(ctx, on, l) },
	}}
}

const (
	inboxMessages    = 20_000 // most of a sample
	inboxConcurrency = 16
	insertRow        = "insert into invoices (sequence) values ($1)"
)

// inboxSetup is one way to handle messages with a row in PostgreSQL.
type inboxSetup struct {
	repriseSetup
	inbox bool // the handler is in an inbox, without its own transaction
	raw   bool // there are no messages: a transaction for each sequence
}

func inboxTransaction(ctx context.Context, on *postgresSystem, l load) ([]table, error) {
	var tables []table
	for _, sends := range []bool{false, true} {
		const own, boxed, raw = "own transaction", "inbox", "raw transaction"
		setup := repriseSetup{mode: core.TransactionReceiveOnly, concurrency: inboxConcurrency, sends: sends}
		c, err := compare(ctx, l.repetitions, work{messages: l.atMost(inboxMessages).messages}.at(
			inboxSetup{repriseSetup: setup, raw: true}.contender(on, raw),
			inboxSetup{repriseSetup: setup}.contender(on, own),
			inboxSetup{repriseSetup: setup, inbox: true}.contender(on, boxed),
		))
		if err != nil {
			return nil, err
		}
		title := "A handler that sends nothing"
		if sends {
			title = "A handler that sends a message"
		}
		t := c.table(title, raw, own)
		t.aims = append(t.aims, aim{what: "times as long as the handler's own transaction", want: 1.3, got: 1 / c.times(boxed, own), ceiling: true})
		tables = append(tables, t)
	}
	return tables, nil
}

func (setup inboxSetup) contender(on *postgresSystem, name string) contender {
	return contender{name, func(ctx context.Context, handle func(string) error) (system, error) {
		return setup.open(ctx, on, handle)
	}}
}

// inboxSystem is an endpoint in memory whose handler writes to a database, or only the
// database.
type inboxSystem struct {
	*database
	*inMemorySystem
	pool    *pgxpool.Pool
	box     *inbox.Inbox
	handle  func(string) error
	handled atomic.Int64

	// Of the raw system.
	sequences chan string
	workers   errgroup.Group
}

func (setup inboxSetup) open(ctx context.Context, on *postgresSystem, handle func(string) error) (_ system, err error) {
	s := &inboxSystem{}
	s.handle = func(sequence string) error {
		err := handle(sequence)
		if err == nil {
			s.handled.Add(1)
		}
		return err
	}
	if s.database, err = on.newDatabase(ctx); err != nil {
		return nil, err
	}
	if err := setup.start(ctx, s); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (setup inboxSetup) start(ctx context.Context, s *inboxSystem) (err error) {
	if s.pool, err = s.database.connect(ctx, inboxConcurrency); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, "create table invoices (sequence text)"); err != nil {
		return err
	}
	if setup.raw {
		s.startRaw(ctx)
		return nil
	}
	setup.middleware = []core.Middleware{s.ownTransaction}
	if setup.inbox {
		store, err := postgres.New(s.pool, postgres.Config{})
		if err != nil {
			return err
		}
		if err := store.Provision(ctx); err != nil {
			return err
		}
		if s.box, err = inbox.New(inbox.Config{Store: store, Logger: discardingLogger(), Key: sequenceOf}); err != nil {
			return err
		}
		setup.middleware = []core.Middleware{s.box.Middleware(), inInbox}
	}
	t := inmemory.Open()
	if err := t.Provision(ctx, core.Topology{InputQueue: handlerQueue, Queues: []string{handlerQueue}}); err != nil {
		return err
	}
	if s.inMemorySystem, err = startInMemory(ctx, setup.repriseSetup, t, s.handle); err != nil {
		return errors.Join(err, t.Close(ctx))
	}
	return nil
}

// ownTransaction inserts a row in a transaction around the handler.
func (s *inboxSystem) ownTransaction(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertRow, m.ID); err != nil {
				return err
			}
			return next(ctx, m)
		})
	}
}

// sequenceOf is the key of a message, which has no id in its headers.
func sequenceOf(m *core.Message) (string, error) { return m.Headers.Get(sequenceHeader), nil }

// inInbox inserts a row in the transaction of the inbox.
func inInbox(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		tx, err := postgres.Tx(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertRow, m.ID); err != nil {
			return err
		}
		return next(ctx, m)
	}
}

// startRaw starts goroutines that each make a transaction for a sequence.
func (s *inboxSystem) startRaw(ctx context.Context) {
	s.sequences = make(chan string, 1000)
	for range inboxConcurrency {
		s.workers.Go(func() error {
			for sequence := range s.sequences {
				err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insertRow, sequence)
					return errors.Join(err, s.handle(sequence))
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func (s *inboxSystem) send(ctx context.Context, sequence string) error {
	if s.inMemorySystem != nil {
		return s.inMemorySystem.send(ctx, sequence)
	}
	select {
	case s.sequences <- sequence:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close checks that each message has one row.
func (s *inboxSystem) close(ctx context.Context) error {
	var errs []error
	if s.sequences != nil {
		close(s.sequences)
		errs = append(errs, s.workers.Wait())
	}
	if s.inMemorySystem != nil {
		errs = append(errs, s.inMemorySystem.close(ctx))
	}
	if s.box != nil {
		errs = append(errs, s.box.Close(ctx))
	}
	if s.pool != nil {
		s.pool.Close()
	}
	rows, err := s.database.count(ctx, "invoices", "")
	if want := int(s.handled.Load()); err == nil && rows != want {
		err = fmt.Errorf("%d rows of %d messages", rows, want)
	}
	return errors.Join(append(errs, err, s.database.drop(ctx))...)
}
