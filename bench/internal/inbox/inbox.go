// Package inbox has the scenario of the inbox, and its contenders.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/inmemory"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/postgres"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/inbox"
	inboxpostgres "github.com/reprise-go/reprise/inbox/postgres"
	inmemorytransport "github.com/reprise-go/reprise/transport/inmemory"
)

// Scenarios returns the scenarios of the inbox compared with a handler's own transaction. The broker is in memory, so that
// the database takes most of the measured time.
func Scenarios(server *postgres.Server) []scenario.Scenario {
	return []scenario.Scenario{{
		Name:  "postgres-inbox",
		Title: "PostgreSQL, an inbox in the handler's transaction",
		About: "A handler inserts a row, in its own transaction or in that of the inbox, and sends a message or none. Messages come from the in-memory transport in ReceiveOnly, " +
			"so that the database is what is measured. The raw one is the handler's transaction alone, without messages.",
		Run: func(ctx context.Context, l scenario.Load) ([]table.Table, error) {
			return handlerTransaction(ctx, server, l)
		},
	}}
}

const (
	maxMessages = 20_000 // most of a sample
	concurrency = 16
	insertRow   = "insert into invoices (sequence) values ($1)"
)

// handlerSetup is one way to handle messages with a row in PostgreSQL.
type handlerSetup struct {
	reprise.Setup
	inbox bool // the handler is in an inbox, without its own transaction
	raw   bool // there are no messages: a transaction for each sequence
}

func handlerTransaction(ctx context.Context, server *postgres.Server, l scenario.Load) ([]table.Table, error) {
	var tables []table.Table
	for _, sends := range []bool{false, true} {
		const own, boxed, raw = "own transaction", "inbox", "raw transaction"
		setup := reprise.Setup{Mode: core.TransactionReceiveOnly, Concurrency: concurrency, Sends: sends}
		c, err := compare.Run(ctx, l.Repetitions, measure.Work{Messages: l.AtMost(maxMessages).Messages}.Trials(
			handlerSetup{Setup: setup, raw: true}.contender(server, raw),
			handlerSetup{Setup: setup}.contender(server, own),
			handlerSetup{Setup: setup, inbox: true}.contender(server, boxed),
		))
		if err != nil {
			return nil, err
		}
		title := "A handler that sends nothing"
		if sends {
			title = "A handler that sends a message"
		}
		t := c.Table(title, raw, own)
		t.Aims = append(t.Aims, table.Aim{Figure: "times as long as the handler's own transaction", Want: 1.3, Got: 1 / c.RateRatio(boxed, own), Ceiling: true})
		tables = append(tables, t)
	}
	return tables, nil
}

func (setup handlerSetup) contender(server *postgres.Server, name string) measure.Contender {
	return measure.Contender{Name: name, Open: func(ctx context.Context, handle func(string) error) (measure.System, error) {
		return setup.open(ctx, server, handle)
	}}
}

// handlerSystem is an endpoint in memory whose handler writes to a database, or only the
// database.
type handlerSystem struct {
	*postgres.Database
	*inmemory.System
	pool    *pgxpool.Pool
	box     *inbox.Inbox
	handle  func(string) error
	handled atomic.Int64

	// Of the raw system.
	sequences chan string
	workers   errgroup.Group
}

func (setup handlerSetup) open(ctx context.Context, server *postgres.Server, handle func(string) error) (_ measure.System, err error) {
	s := &handlerSystem{}
	s.handle = func(sequence string) error {
		err := handle(sequence)
		if err == nil {
			s.handled.Add(1)
		}
		return err
	}
	if s.Database, err = server.NewDatabase(ctx); err != nil {
		return nil, err
	}
	if err := setup.start(ctx, s); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (setup handlerSetup) start(ctx context.Context, s *handlerSystem) (err error) {
	if s.pool, err = s.Database.Connect(ctx, concurrency); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, "create table invoices (sequence text)"); err != nil {
		return err
	}
	if setup.raw {
		s.startRaw(ctx)
		return nil
	}
	setup.Middleware = []core.Middleware{core.MiddlewareFunc(s.ownTransaction)}
	if setup.inbox {
		store, err := inboxpostgres.New(s.pool, inboxpostgres.Config{})
		if err != nil {
			return err
		}
		if err := store.Provision(ctx); err != nil {
			return err
		}
		if s.box, err = inbox.New(inbox.Config{Store: store, Logger: workload.DiscardingLogger(), Key: sequenceOf}); err != nil {
			return err
		}
		setup.Middleware = []core.Middleware{s.box.Middleware(), core.MiddlewareFunc(inInbox)}
	}
	t := inmemorytransport.Open()
	if err := t.Provision(ctx, core.Topology{InputQueue: workload.HandlerQueue, Queues: []string{workload.HandlerQueue}}); err != nil {
		return err
	}
	if s.System, err = inmemory.Start(ctx, setup.Setup, t, s.handle); err != nil {
		return errors.Join(err, t.Close(ctx))
	}
	return nil
}

// ownTransaction inserts a row in a transaction around the handler.
func (s *handlerSystem) ownTransaction(next core.HandlerFunc) core.HandlerFunc {
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
func sequenceOf(m *core.Message) (string, error) { return m.Headers.Get(workload.SequenceHeader), nil }

// inInbox inserts a row in the transaction of the inbox.
func inInbox(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		tx, err := inboxpostgres.Tx(ctx)
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
func (s *handlerSystem) startRaw(ctx context.Context) {
	s.sequences = make(chan string, 1000)
	for range concurrency {
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

func (s *handlerSystem) Send(ctx context.Context, sequence string) error {
	if s.System != nil {
		return s.System.Send(ctx, sequence)
	}
	select {
	case s.sequences <- sequence:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close checks that each message has one row.
func (s *handlerSystem) Close(ctx context.Context) error {
	var errs []error
	if s.sequences != nil {
		close(s.sequences)
		errs = append(errs, s.workers.Wait())
	}
	if s.System != nil {
		errs = append(errs, s.System.Close(ctx))
	}
	if s.box != nil {
		errs = append(errs, s.box.Close(ctx))
	}
	if s.pool != nil {
		s.pool.Close()
	}
	rows, err := s.Database.Count(ctx, "invoices", "")
	if want := int(s.handled.Load()); err == nil && rows != want {
		err = fmt.Errorf("%d rows of %d messages", rows, want)
	}
	return errors.Join(append(errs, err, s.Database.Drop(ctx))...)
}
