package sqlserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	corequeues "github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/delayed"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/notify"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/presence"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/rowlog"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/server"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/subscriptions"
)

// Transport connects endpoints to queues that are tables. It implements core.Transport,
// core.Provisioner, core.Checker, core.Subscriber, core.Remover and core.Describer, and, on
// PostgreSQL, the interfaces of package core/queues. It is safe for concurrent use.
type Transport struct {
	db      sqlexec.Database
	dialect dialect.Dialect
	server  *server.Server
	caps    core.Capabilities

	in                dialect.Location
	lease             time.Duration
	pollIntervals     pollIntervals
	nserviceBusTables bool

	queues        *queues.Cache
	subscriptions *subscriptions.Table
	delayed       *delayed.Forwarder
	returned      *rowlog.Returned
	wakeups       *notify.Wakeups
	notifier      *notify.Notifier         // nil: the server has no notifications
	numberSession sync.Once                // starts the session of presence over database/sql
	presence      *presence.Presence       // over database/sql
	limit         *sqlexec.ConnectionLimit // limits connections in transactions; nil: no limit
	info          core.TransportInfo

	life     *transport.Lifecycle
	warnings transport.Warnings
	warnedOf sync.Map // addresses of tables that a warning has named: without a trigger, or an ownerOf

	transport.Undescribed // KeepsGroups: no queue keeps groups
}

var _ interface {
	core.Transport
	core.Provisioner
	core.Checker
	core.Subscriber
	core.Remover
	core.Describer
	corequeues.Browser
	corequeues.Taker
	corequeues.DepthReader
	corequeues.Lister
} = (*Transport)(nil)

// Open returns a transport for the server and database that the URL names, with the
// defaults of [Config]: [New] with only URL set. It refuses a URL of Microsoft SQL
// Server, which requires Config.Experimental.
func Open(url string) (*Transport, error) {
	return New(Config{URL: url})
}

// New returns a transport. It does not contact the server: [Transport.Check] does, and an
// endpoint calls Check before it starts. The error of New names every problem of cfg, and
// never the password.
func New(cfg Config) (*Transport, error) {
	return newTransport(cfg, true)
}

// newTransport is New. connects is false for a transport that never contacts its server
// and so needs no driver.
func newTransport(cfg Config, connects bool) (*Transport, error) {
	to, err := cfg.connect()
	if err != nil {
		return nil, fmt.Errorf("sqlserver: open: %w", err)
	}
	if err := cfg.complete(to.dialect, connects); err != nil {
		to.db.Close()
		return nil, fmt.Errorf("sqlserver: open: %w", err)
	}
	t := &Transport{
		db:                to.db,
		dialect:           to.dialect,
		in:                dialect.Location{Catalog: cfg.Database, Schema: cfg.Schema},
		lease:             cfg.Lease,
		pollIntervals:     defaultPolls,
		nserviceBusTables: cfg.NServiceBusTables,
		life:              transport.NewLifecycle(),
		returned:          rowlog.NewReturned(),
		info:              to.info,
	}
	if to.weakness != "" {
		t.warnings.Add(to.weakness)
	}
	t.caps = capabilities(&cfg, to.dialect)
	t.queues = queues.NewCache(t.dialect, t.in)
	t.wakeups = notify.NewWakeups()
	if d, ok := to.db.(*sqlexec.PgxDatabase); ok {
		t.notifier = notify.New(t.life, d, t.wakeups, t.free)
	}
	t.server = server.New(t.db, t.dialect, t.life, t.notifier)
	t.subscriptions = subscriptions.New(t.server, t.queues, t.tableOf(cfg.SubscriptionTable), cfg.SubscriptionCache)
	t.delayed = delayed.New(t.server, t.queues, t.tableOf(dialect.DelayedTable), t.wakeReceivers)
	// A transaction holds its connection while a handler runs, and the handler may send:
	// some connections are reserved for sends.
	if limit := to.db.Limit(); limit > 0 {
		t.limit = sqlexec.JoinConnectionLimit(to.db.Pool(), limit-keptForSending)
	}
	return t, nil
}

// keptForSending is how many connections of a limited pool are reserved: no transaction
// of a receiver may hold them.
const keptForSending = 2

// tableOf returns the table of a name that Config.complete has checked.
func (t *Transport) tableOf(name string) dialect.Table {
	table, err := t.dialect.Table(name, t.in)
	if err != nil {
		panic(err) // cannot happen
	}
	return table
}

func capabilities(cfg *Config, d dialect.Dialect) core.Capabilities {
	_, onPostgres := d.(postgres.Dialect)
	return core.Capabilities{
		Transactions: []core.TransactionMode{
			core.TransactionNone,
			core.TransactionReceiveOnly,
			core.TransactionSendsAtomicWithReceive,
		},
		Abilities: core.Abilities{
			DelayedDelivery:  true,
			PublishSubscribe: true,
			BaseTopics:       true,
			TimeToBeReceived: true,
			// Microsoft SQL Server has savepoints too, but after some errors a transaction
			// cannot return to one.
			Savepoints:   onPostgres,
			Prefetch:     !cfg.NServiceBusTables,
			AtomicLeases: onPostgres && !cfg.NServiceBusTables,
			Browse:       onPostgres,
			Take:         onPostgres,
		},
		Limits: core.Limits{
			DelayPrecision:    time.Second,
			SubscriptionDelay: cfg.SubscriptionCache,
			MaxMessageBytes:   cfg.MaxMessageBytes,
			MaxQueueName:      d.MaxName(),
			MaxTopicName:      subscriptions.MaxTopic,
		},
		Guarantees: core.Guarantees{
			NativeDeliveryCount: !cfg.NServiceBusTables,
			Durable:             true,
			ConfirmsSettlement:  true,
		},
	}
}

// maxMessageBytes keeps a message, and a batch with it, well below the size of one value
// or one packet of the servers (1 GB in PostgreSQL).
const maxMessageBytes = 256 << 20

// Capabilities implements core.Transport.
func (t *Transport) Capabilities() core.Capabilities {
	caps := t.caps
	caps.Transactions = slices.Clone(caps.Transactions)
	return caps
}

// String describes the transport without secrets.
func (t *Transport) String() string {
	return fmt.Sprintf("sqlserver (%s, schema %q)", t.dialect.Product(), t.in.Schema)
}

// Describe implements core.Describer. The server of a Config.DB is unknown.
func (t *Transport) Describe() core.TransportInfo { return t.info }

// GoString returns the same text as String.
func (t *Transport) GoString() string { return t.String() }

// Warnings implements core.Describer: it returns warnings about connections to other
// machines that do not verify the server, and about tables without the trigger that wakes
// receivers.
func (t *Transport) Warnings() []string { return t.warnings.Take() }

// Address returns the queue's address as NServiceBus writes it: "schema"."table" on
// PostgreSQL, table@[schema]@[database] on Microsoft SQL Server.
func (t *Transport) Address(queue string) (string, error) {
	table, err := t.dialect.Table(queue, t.in)
	if err != nil {
		return "", fmt.Errorf("sqlserver: address: %w", err)
	}
	return table.Address, nil
}

// OpenReceiver starts to receive from a queue. While the server cannot be reached it
// waits, until ctx ends.
func (t *Transport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := t.openReceiver(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("sqlserver: open receiver for %q: %w", cfg.Queue, err)
	}
	return r, nil
}

func (t *Transport) openReceiver(ctx context.Context, cfg core.ReceiverConfig) (*receiver, error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	if err := transport.CheckReceiver(&cfg, &t.caps); err != nil {
		return nil, err
	}
	switch {
	case cfg.Mode == core.TransactionSendsAtomicWithReceive && t.limit != nil && t.limit.Max() == 0:
		return nil, fmt.Errorf("in %v the transaction of a handler holds a connection: it needs a pool of %d connections or more, this one has %d; raise its limit (pool_max_conns in the URL)",
			cfg.Mode, 1+keptForSending, t.db.Limit())
	case t.isInTransaction(cfg.Mode) && t.limit != nil && cfg.MaxInFlight > t.limit.Max():
		return nil, fmt.Errorf("in %v each message holds a connection: MaxInFlight %d needs a pool of %d connections, this one has %d; raise its limit (pool_max_conns in the URL) or lower the concurrency",
			cfg.Mode, cfg.MaxInFlight, cfg.MaxInFlight+keptForSending, t.db.Limit())
	}
	q, err := t.queues.Get(cfg.Queue)
	if err != nil {
		return nil, err
	}
	foreign, err := t.awaitExamination(ctx, q, cfg.ConnectionChanged)
	if err != nil {
		return nil, err
	}
	if foreign != t.nserviceBusTables {
		return nil, wrongKind(q.Table, foreign)
	}
	r := newReceiver(t, q, cfg)
	r.strategy = newStrategy(r)
	if err := t.life.Add(r); err != nil {
		return nil, err
	}
	r.open()
	r.strategy.open(ctx)
	t.delayed.Listen(r.closing, q.Table.Name, &cfg)
	t.delayed.Watch()
	return r, nil
}

// newStrategy returns the strategy of a receiver's mode.
func newStrategy(r *receiver) strategy {
	switch {
	case r.mode == core.TransactionNone:
		return noneStrategy{r}
	case r.t.isInTransaction(r.mode):
		return transactionStrategy{r}
	default:
		return newLeaseStrategy(r, r.t.joinPresence)
	}
}

// wrongKind is the error of a table that cannot be received from with this
// configuration.
func wrongKind(table dialect.Table, foreign bool) error {
	if foreign {
		return fmt.Errorf("the table %s was made by NServiceBus: receive from it with Config.NServiceBusTables", table.Quoted)
	}
	return fmt.Errorf("the table %s was not made by NServiceBus: receive from it without Config.NServiceBusTables", table.Quoted)
}

// isInTransaction reports whether each message is in a transaction from its receipt on. In other
// modes messages are leased, and their transactions begin when their handlers ask for
// them.
func (t *Transport) isInTransaction(mode core.TransactionMode) bool {
	switch mode {
	case core.TransactionSendsAtomicWithReceive:
		return t.nserviceBusTables || !t.onPostgres()
	case core.TransactionReceiveOnly:
		return t.nserviceBusTables
	default:
		return false
	}
}

func (t *Transport) onPostgres() bool {
	_, ok := t.dialect.(postgres.Dialect)
	return ok
}

// joinPresence returns the presence whose number new leases have, or nil if there is none.
// The receiver is open.
func (t *Transport) joinPresence() *presence.Presence {
	switch db := t.db.(type) {
	case *sqlexec.PgxDatabase:
		return t.notifier.Presence()
	case *sqlexec.SQLDatabase:
		t.numberSession.Do(func() { t.presence = t.startNumberSession(db) })
		return t.presence
	default:
		return nil
	}
}

// minForPresence is the smallest limit of a pool of database/sql of which one
// connection is taken for the session of the presence.
const minForPresence = keptForSending + 3

// presence.StartSession returns the presence of a transport over database/sql, or nil if there
// cannot be one: it must not take a connection that others need.
func (t *Transport) startNumberSession(db *sqlexec.SQLDatabase) *presence.Presence {
	if limit := db.Limit(); !t.onPostgres() || limit > 0 && limit < minForPresence {
		return nil
	}
	return presence.StartSession(t.life, db.DB, t.wakeups.QueuesByAddress, t.free)
}

// free wakes receivers of a queue whose messages were released. due is the first
// message's.
func (t *Transport) free(q *queues.Queue, due time.Time) {
	for _, r := range t.life.Receivers() {
		if r, is := r.(*receiver); is && r.q.Table.Address == q.Table.Address {
			r.lowerWatermark(due)
		}
	}
	t.wakeReceivers(q)
}

// awaitExamination examines a queue's table. While the server cannot be reached it tries
// again.
func (t *Transport) awaitExamination(ctx context.Context, q *queues.Queue, told func(core.ConnectionChange)) (foreign bool, err error) {
	o := transport.Outages{ConnectionChanged: told}
	err = o.Retry(ctx, func() error {
		foreign, err = t.server.Examine(ctx, q)
		return err
	}, t.server.Transient, func(d time.Duration) error { return transport.Sleep(ctx, t.life.Context(), d, nil) })
	return foreign, err
}

// Close closes every connection and goroutine of the transport, and receivers that are
// still open. If ctx ends first, operations in progress are cancelled: the server rolls
// them back, or their messages are redelivered when their leases end. Its error says that
// connections were still open soon after that; they continue to be closed. A pool that
// was given to [New] stays open. Close is idempotent.
func (t *Transport) Close(ctx context.Context) error {
	if !t.life.Close(ctx, nil) {
		return nil
	}
	t.limit.Release()
	closed := make(chan struct{})
	go func() { // pools have no contexts
		defer close(closed)
		t.db.Close()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-closed:
		return nil
	case <-time.After(operation.Grace):
		return fmt.Errorf("sqlserver: close: connections are still being closed: %w", ctx.Err())
	}
}
