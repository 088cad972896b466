package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/bridge"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/inbox/postgres"
	"github.com/reprise-go/reprise/transport/rabbitmq"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

const schema = "reprise_bridge"

const tables = `
create schema if not exists reprise_bridge;

create table if not exists reprise_bridge.orders (
	id   bigint generated always as identity primary key,
	item text not null
);

create table if not exists reprise_bridge.mails (
	id       bigint generated always as identity primary key,
	order_id bigint not null -- no key forbids a second mail for an order
);
`

// connections is the size of the pool: one connection for each message in a handler, and some
// for placing orders and for receiving.
const (
	concurrency = 4
	connections = 2*concurrency + 6
)

// service has all parts in one process. They could run in three.
type service struct {
	pool     *pgxpool.Pool
	database *sqlserver.Transport
	broker   *rabbitmq.Transport
	box      *inbox.Inbox

	shop    *shop
	carrier *bridge.Bridge
	mails   *core.Endpoint
}

// open connects, and creates missing tables and queues.
func open(ctx context.Context, o options) (s *service, err error) {
	if o.database == "" || o.broker == "" {
		return nil, errors.New("set DATABASE_URL and AMQP_URL, for example postgres://user:password@localhost/database and amqp://user:password@localhost/vhost")
	}
	s = &service{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	if s.pool, err = openPool(ctx, o.database); err != nil {
		return nil, err
	}
	if s.database, err = sqlserver.New(sqlserver.Config{Pool: s.pool, Schema: schema}); err != nil {
		return nil, err
	}
	if s.broker, err = rabbitmq.Open(o.broker); err != nil {
		return nil, err
	}
	store, err := postgres.New(s.pool, postgres.Config{Schema: schema})
	if err != nil {
		return nil, err
	}
	if s.box, err = inbox.New(inbox.Config{Store: store, Logger: o.logger}); err != nil {
		return nil, err
	}
	config := core.Config{Concurrency: concurrency, Logger: o.logger}
	var errs [3]error
	s.shop, errs[0] = newShop(s.pool, s.database, config)
	s.carrier, errs[1] = newCarrier(s.database, s.broker, config)
	s.mails, errs[2] = newMails(s.broker, s.box, config)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return s, errors.Join(store.Provision(ctx), s.carrier.Provision(ctx), s.mails.Provision(ctx))
}

// snippet: carrier

// newCarrier makes the bridge.
func newCarrier(database, broker core.Transport, c core.Config) (*bridge.Bridge, error) {
	return bridge.New("shop-bridge", bridge.Config{
		Near:        bridge.Side{Transport: database, Topics: []string{orderPlaced.Name()}},
		Far:         bridge.Side{Transport: broker},
		Endpoint:    c,
		SendTimeout: 5 * time.Second, // then RabbitMQ is taken to be unreachable
	})
}

// end

// snippet: mails

// newMails makes the endpoint that writes a mail for each order. A message that arrives twice
// finds its id in the inbox, whose table is written in the handler's transaction.
func newMails(broker core.Transport, box *inbox.Inbox, c core.Config) (*core.Endpoint, error) {
	c.Middleware = append(c.Middleware, box.Middleware())
	mails, err := core.New("mails", broker, c)
	if err != nil {
		return nil, err
	}
	core.HandleEvent(mails, orderPlaced, func(ctx context.Context, _ *core.Message, body OrderPlaced) error {
		tx, err := postgres.Tx(ctx)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `insert into reprise_bridge.mails (order_id) values ($1)`, body.OrderID)
		return err
	})
	return mails, nil
}

// end

// endpoints returns the receiving endpoints.
func (s *service) endpoints() []*core.Endpoint { return append(s.carrier.Endpoints(), s.mails) }

func (s *service) run(ctx context.Context) error { return core.RunAll(ctx, s.endpoints()...) }

// isReady waits until all endpoints receive: the subscriptions are made then. It is false if
// ctx ends before.
func (s *service) isReady(ctx context.Context) bool {
	for _, ep := range s.endpoints() {
		select {
		case <-ep.Ready():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (s *service) close(ctx context.Context) error {
	var errs []error
	if s.box != nil {
		errs = append(errs, s.box.Close(ctx))
	}
	if s.broker != nil {
		errs = append(errs, s.broker.Close(ctx))
	}
	if s.database != nil {
		errs = append(errs, s.database.Close(ctx))
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return errors.Join(errs...)
}

// openPool connects to the database and creates missing tables.
func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, `select pg_advisory_xact_lock(hashtext('reprise_bridge'));`+tables); err != nil {
		pool.Close()
		return nil, fmt.Errorf("create the tables: %w", err)
	}
	return pool, nil
}
