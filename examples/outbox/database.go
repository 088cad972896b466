package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5/pgxpool"
)

// schema is where all tables are, those of the queues too.
const schema = "reprise_outbox"

// tables are the service's own. They are the same as without messages: there is neither
// an outbox table among them nor a table of handled messages.
const tables = `
create schema if not exists reprise_outbox;

create table if not exists reprise_outbox.stock (
	item      text primary key,
	available integer not null check (available >= 0)
);

create table if not exists reprise_outbox.orders (
	id       bigint generated always as identity primary key,
	request  text not null unique, -- the client's name of it
	item     text not null,
	quantity integer not null check (quantity > 0),
	status   text not null default 'placed'
);

create table if not exists reprise_outbox.invoices (
	id       bigint generated always as identity primary key,
	order_id bigint not null references reprise_outbox.orders,
	item     text not null,
	quantity integer not null
);

insert into reprise_outbox.stock values ('lamps', 10000), ('kettles', 10000), ('teapots', 10000) on conflict do nothing;
`

// Each message in a handler needs a connection, and there are two endpoints. The other
// connections are for placing orders, and for receiving.
const (
	concurrency = 4
	connections = 2*concurrency + 8
)

// openDatabase connects to the database and creates missing tables.
func openDatabase(ctx context.Context, rawURL string) (*pgxpool.Pool, error) {
	if rawURL == "" {
		return nil, errors.New(`which PostgreSQL database? Name one, and a user who may create a schema in it:

	export DATABASE_URL=postgres://user:password@localhost/database
	go run .

An empty one for the purpose, where PostgreSQL runs on this machine:

	createdb outbox && DATABASE_URL='postgres:///outbox?host=/var/run/postgresql' go run .`)
	}
	if _, err := url.Parse(rawURL); err != nil { // the text of this error might show a part of the password
		return nil, errors.New("the URL of the database cannot be read; in a password write %40 for @, %2F for /, %25 for % and so on")
	}
	config, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	// Two services that start at the same time would both create missing tables.
	if _, err := pool.Exec(ctx, `select pg_advisory_xact_lock(hashtext('reprise_outbox'));`+tables); err != nil {
		pool.Close()
		return nil, fmt.Errorf("create the tables: %w", err)
	}
	return pool, nil
}
