package postgres

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// repriseSetup is one way of running Reprise on PostgreSQL.
type repriseSetup struct {
	reprise.Setup
	instances      int  // of the endpoint, each with its own transport; 0 is one
	separateSender bool // the sender has a separate transport
	nserviceBus    bool // the tables are NServiceBus's, and each message has a transaction
}

// open opens a transport.
func (setup repriseSetup) open(db *Database) (*sqlserver.Transport, error) {
	return sqlserver.New(sqlserver.Config{URL: db.url, NServiceBusTables: setup.nserviceBus})
}

func (setup repriseSetup) contender(server *Server, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, server) }}
}

// repriseStore is Reprise on a separate database.
type repriseStore struct {
	setup repriseSetup
	*Database
	transports []*sqlserver.Transport // the receivers'
	sender     *sqlserver.Transport   // one of them, unless separateSender
	body       []byte
	handled    atomic.Int64

	running  int
	finished chan error
	end      context.CancelFunc
}

func (setup repriseSetup) openOn(ctx context.Context, server *Server) (_ measure.Store, err error) {
	db, err := server.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	s := &repriseStore{setup: setup, Database: db, body: setup.Body()}
	for range max(setup.instances, 1) {
		t, err := setup.open(db)
		if err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
		s.transports = append(s.transports, t)
	}
	s.sender = s.transports[0]
	if setup.separateSender {
		if s.sender, err = setup.open(db); err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
	}
	if setup.Work != nil {
		if err := db.createRows(ctx); err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
	}
	err = s.sender.Provision(ctx, core.Topology{InputQueue: workload.Queue, Queues: []string{workload.Queue, reprise.ErrorQueue, workload.HandlerQueue}})
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *repriseStore) Send(ctx context.Context, sequences []string) error {
	messages := make([]core.Outgoing, len(sequences))
	for i, sequence := range sequences {
		messages[i] = reprise.Message(sequence, s.body)
	}
	return s.sender.Send(ctx, messages...)
}

func (s *repriseStore) Start(ctx context.Context, handle func(string) error) error {
	ctx, s.end = context.WithCancel(ctx)
	s.finished = make(chan error, len(s.transports))
	for _, t := range s.transports {
		ep, err := s.setup.NewEndpoint(t, func(sequence string) error {
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

func (s *repriseStore) Stop(ctx context.Context) error {
	s.end()
	var errs []error
	for ; s.running > 0; s.running-- {
		errs = append(errs, <-s.finished)
	}
	if s.setup.Sends {
		errs = append(errs, s.Database.sent(ctx, int(s.handled.Load())))
	}
	if s.setup.Work != nil {
		errs = append(errs, s.Database.wrote(ctx, int(s.handled.Load())))
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

func (s *repriseStore) Close(ctx context.Context) error {
	if s.end != nil {
		s.end()
	}
	var errs []error
	for ; s.running > 0; s.running-- { // an error prevented the call of Stop
		errs = append(errs, <-s.finished)
	}
	ctx = context.WithoutCancel(ctx)
	for _, t := range s.transports {
		errs = append(errs, t.Close(ctx))
	}
	if s.setup.separateSender && s.sender != nil {
		errs = append(errs, s.sender.Close(ctx))
	}
	return errors.Join(append(errs, s.Database.Drop(ctx))...)
}
