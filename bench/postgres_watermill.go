package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
)

// watermillSQLSetup is one way of running Watermill's router on PostgreSQL, with the
// schema that deletes acknowledged messages.
type watermillSQLSetup struct {
	batch int  // messages of a transaction
	sends bool // the handler sends a message in the transaction
}

func (setup watermillSQLSetup) keeper(on *postgresSystem, name string) keeper {
	return keeper{name, func(ctx context.Context) (store, error) { return setup.openOn(ctx, on) }}
}

type watermillSQLStore struct {
	setup watermillSQLSetup
	*database
	pool      *pgxpool.Pool
	publisher *watermillsql.Publisher
	payload   message.Payload
	handled   atomic.Int64

	router   *message.Router
	finished chan error
}

const watermillConnections = 32

func (setup watermillSQLSetup) schema() watermillsql.PostgreSQLQueueSchema {
	return watermillsql.PostgreSQLQueueSchema{
		SubscribeBatchSize:  setup.batch,
		GeneratePayloadType: func(string) string { return "BYTEA" },
	}
}

func (setup watermillSQLSetup) openOn(ctx context.Context, on *postgresSystem) (_ store, err error) {
	s := &watermillSQLStore{setup: setup, payload: make(message.Payload, bodySize)}
	if s.database, err = on.newDatabase(ctx); err != nil {
		return nil, err
	}
	if s.pool, err = s.database.connect(ctx, watermillConnections); err != nil {
		return nil, errors.Join(err, s.database.drop(ctx))
	}
	for _, topic := range []string{ordersQueue, handlerQueue} {
		queries, err := setup.schema().SchemaInitializingQueries(watermillsql.SchemaInitializingQueriesParams{Topic: topic})
		for _, q := range queries {
			if err == nil {
				_, err = s.pool.Exec(ctx, q.Query, q.Args...)
			}
		}
		if err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
	}
	s.publisher, err = watermillsql.NewPublisher(watermillsql.BeginnerFromPgx(s.pool), watermillsql.PublisherConfig{SchemaAdapter: setup.schema()}, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *watermillSQLStore) send(_ context.Context, sequences []string) error {
	messages := make([]*message.Message, len(sequences))
	for i, sequence := range sequences {
		messages[i] = watermillMessage(sequence, s.payload)
	}
	return s.publisher.Publish(ordersQueue, messages...)
}

func (s *watermillSQLStore) start(ctx context.Context, handle func(string) error) error {
	subscriber, err := watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(s.pool), watermillsql.SubscriberConfig{
		SchemaAdapter:  s.setup.schema(),
		OffsetsAdapter: watermillsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true},
		PollInterval:   rawPause,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if s.router, err = message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}); err != nil {
		return err
	}
	s.router.AddConsumerHandler("bench", ordersQueue, subscriber, func(m *message.Message) error {
		err := handle(m.Metadata.Get(sequenceHeader))
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
func (s *watermillSQLStore) sendWith(m *message.Message) error {
	tx, ok := watermillsql.TxFromContext(m.Context())
	if !ok {
		return errors.New("there is no transaction")
	}
	publisher, err := watermillsql.NewPublisher(tx, watermillsql.PublisherConfig{SchemaAdapter: s.setup.schema()}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return publisher.Publish(handlerQueue, watermillMessage(m.UUID, s.payload))
}

// stop waits for the last batch's transaction: closed in the middle of a batch, the
// router leaves all of its messages in the table.
func (s *watermillSQLStore) stop(ctx context.Context) error {
	left, err := s.waiting(ctx)
	for ; err == nil && left > 0 && idle(ctx); left, err = s.waiting(ctx) {
	}
	err = errors.Join(err, s.router.Close(), <-s.finished)
	if err == nil && s.setup.sends {
		var n int
		n, err = s.database.count(ctx, "watermill_"+handlerQueue, "")
		if want := int(s.handled.Load()); err == nil && n != want {
			err = fmt.Errorf("handlers sent %d messages, but %d are there", want, n)
		}
	}
	return err
}

func (s *watermillSQLStore) waiting(ctx context.Context) (int, error) {
	return s.database.count(ctx, "watermill_"+ordersQueue, "")
}

func (s *watermillSQLStore) close(ctx context.Context) error {
	s.pool.Close()
	return s.database.drop(ctx)
}
