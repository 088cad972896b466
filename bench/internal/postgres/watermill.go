package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/watermillrouter"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// watermillSetup is one way of running Watermill's router on PostgreSQL, with the
// schema that deletes acknowledged messages.
type watermillSetup struct {
	batch int  // messages of a transaction
	sends bool // the handler sends a message in the transaction
}

func (setup watermillSetup) contender(server *Server, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, server) }}
}

type watermillStore struct {
	setup watermillSetup
	*Database
	pool      *pgxpool.Pool
	publisher *watermillsql.Publisher
	payload   message.Payload
	handled   atomic.Int64

	router   *message.Router
	finished chan error
}

const watermillConnections = 32

func (setup watermillSetup) schema() watermillsql.PostgreSQLQueueSchema {
	return watermillsql.PostgreSQLQueueSchema{
		SubscribeBatchSize:  setup.batch,
		GeneratePayloadType: func(string) string { return "BYTEA" },
	}
}

func (setup watermillSetup) openOn(ctx context.Context, server *Server) (_ measure.Store, err error) {
	s := &watermillStore{setup: setup, payload: make(message.Payload, workload.BodySize)}
	if s.Database, err = server.NewDatabase(ctx); err != nil {
		return nil, err
	}
	if s.pool, err = s.Database.Connect(ctx, watermillConnections); err != nil {
		return nil, errors.Join(err, s.Database.Drop(ctx))
	}
	for _, topic := range []string{workload.Queue, workload.HandlerQueue} {
		queries, err := setup.schema().SchemaInitializingQueries(watermillsql.SchemaInitializingQueriesParams{Topic: topic})
		for _, q := range queries {
			if err == nil {
				_, err = s.pool.Exec(ctx, q.Query, q.Args...)
			}
		}
		if err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
	}
	s.publisher, err = watermillsql.NewPublisher(watermillsql.BeginnerFromPgx(s.pool), watermillsql.PublisherConfig{SchemaAdapter: setup.schema()}, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *watermillStore) Send(_ context.Context, sequences []string) error {
	messages := make([]*message.Message, len(sequences))
	for i, sequence := range sequences {
		messages[i] = watermillrouter.Message(sequence, s.payload)
	}
	return s.publisher.Publish(workload.Queue, messages...)
}

func (s *watermillStore) Start(ctx context.Context, handle func(string) error) error {
	subscriber, err := watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(s.pool), watermillsql.SubscriberConfig{
		SchemaAdapter:  s.setup.schema(),
		OffsetsAdapter: watermillsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true},
		PollInterval:   measure.PollInterval,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if s.router, err = message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}); err != nil {
		return err
	}
	s.router.AddConsumerHandler("bench", workload.Queue, subscriber, func(m *message.Message) error {
		err := handle(m.Metadata.Get(workload.SequenceHeader))
		if err != nil || !s.setup.sends {
			return err
		}
		s.handled.Add(1)
		return s.sendWith(m)
	})
	s.finished = make(chan error, 1)
	go func() { s.finished <- s.router.Run(ctx) }()
	return nil
}

// sendWith sends a message in the transaction in which m was received.
func (s *watermillStore) sendWith(m *message.Message) error {
	tx, ok := watermillsql.TxFromContext(m.Context())
	if !ok {
		return errors.New("there is no transaction")
	}
	publisher, err := watermillsql.NewPublisher(tx, watermillsql.PublisherConfig{SchemaAdapter: s.setup.schema()}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return publisher.Publish(workload.HandlerQueue, watermillrouter.Message(m.UUID, s.payload))
}

// Stop waits for the last batch's transaction: closed in the middle of a batch, the
// router leaves all of its messages in the table.
func (s *watermillStore) Stop(ctx context.Context) error {
	left, err := s.Waiting(ctx)
	for ; err == nil && left > 0 && measure.WaitPollInterval(ctx); left, err = s.Waiting(ctx) {
	}
	err = errors.Join(err, s.router.Close(), <-s.finished)
	if err == nil && s.setup.sends {
		var n int
		n, err = s.Database.Count(ctx, "watermill_"+workload.HandlerQueue, "")
		if want := int(s.handled.Load()); err == nil && n != want {
			err = fmt.Errorf("handlers sent %d messages, but %d are there", want, n)
		}
	}
	return err
}

func (s *watermillStore) Waiting(ctx context.Context) (int, error) {
	return s.Database.Count(ctx, "watermill_"+workload.Queue, "")
}

func (s *watermillStore) Close(ctx context.Context) error {
	s.pool.Close()
	return s.Database.Drop(ctx)
}
