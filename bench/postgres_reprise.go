package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// postgresSetup is one way of running Reprise on PostgreSQL.
type postgresSetup struct {
	repriseSetup
	instances   int  // of the endpoint, each with its own transport; 0 is one
	apart       bool // the sender has a separate transport
	nserviceBus bool // the tables are NServiceBus's, and each message has a transaction
}

// open opens a transport.
func (setup postgresSetup) open(db *database) (*sqlserver.Transport, error) {
	return sqlserver.New(sqlserver.Config{URL: db.url, NServiceBusTables: setup.nserviceBus})
}

func (setup postgresSetup) keeper(on *postgresSystem, name string) keeper {
	return keeper{name, func(ctx context.Context) (store, error) { return setup.openOn(ctx, on) }}
}

// postgresStore is Reprise on a separate database.
type postgresStore struct {
	setup postgresSetup
	*database
	transports []*sqlserver.Transport // the receivers'
	sender     *sqlserver.Transport   // one of them, unless apart
	body       []byte
	handled    atomic.Int64

	running  int
	finished chan error
	end      context.CancelFunc
}

func (setup postgresSetup) openOn(ctx context.Context, on *postgresSystem) (_ store, err error) {
	db, err := on.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	s := &postgresStore{setup: setup, database: db, body: setup.body()}
	for range max(setup.instances, 1) {
		t, err := setup.open(db)
		if err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
		s.transports = append(s.transports, t)
	}
	s.sender = s.transports[0]
	if setup.apart {
		if s.sender, err = setup.open(db); err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
	}
	if setup.work != nil {
		if err := db.createRows(ctx); err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
	}
	err = s.sender.Provision(ctx, core.Topology{InputQueue: ordersQueue, Queues: []string{ordersQueue, repriseErrorQueue, handlerQueue}})
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *postgresStore) send(ctx context.Context, sequences []string) error {
	messages := make([]core.Outgoing, len(sequences))
	for i, sequence := range sequences {
		messages[i] = repriseMessage(sequence, s.body)
	}
	return s.sender.Send(ctx, messages...)
}

func (s *postgresStore) start(ctx context.Context, handle func(string) error) error {
	ctx, s.end = context.WithCancel(ctx)
	s.finished = make(chan error, len(s.transports))
	for _, t := range s.transports {
		ep, err := s.setup.endpointOn(t, func(sequence string) error {
			err := handle(sequence)
			if err == nil {
				s.handled.Add(1)
			}
			return err
		})
		if err != nil {
			return err
		}
		s.running++
		go func() { s.finished <- ep.Run(ctx) }()
	}
	return nil
}

func (s *postgresStore) stop(ctx context.Context) error {
	s.end()
	var errs []error
	for ; s.running > 0; s.running-- {
		errs = append(errs, <-s.finished)
	}
	if s.setup.sends {
		errs = append(errs, s.database.sent(ctx, int(s.handled.Load())))
	}
	if s.setup.work != nil {
		errs = append(errs, s.database.wrote(ctx, int(s.handled.Load())))
	}
	return errors.Join(errs...)
}

// writeRow is the work of a handler: it writes one row in the transaction of its message.
func writeRow(ctx context.Context, sequence string) error {
	tx, err := sqlserver.Tx(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, rawWrite, sequence)
	return err
}

func (s *postgresStore) close(ctx context.Context) error {
	if s.end != nil {
		s.end()
	}
	var errs []error
	for ; s.running > 0; s.running-- { // an error prevented the call of stop
		errs = append(errs, <-s.finished)
	}
	ctx = context.WithoutCancel(ctx)
	for _, t := range s.transports {
		errs = append(errs, t.Close(ctx))
	}
	if s.setup.apart && s.sender != nil {
		errs = append(errs, s.sender.Close(ctx))
	}
	return errors.Join(append(errs, s.database.drop(ctx))...)
}
