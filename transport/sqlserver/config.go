package sqlserver

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoft"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/serverurl"
)

// Config names the database and its options. Set one of URL, Pool and DB; every other
// field has a default.
type Config struct {
	// URL names the server and the database: "postgres://user:password@host/database"
	// with the options of pgx and pgxpool, or
	// "sqlserver://user:password@host?database=name" with those of go-mssqldb, which
	// needs Experimental and the import of package microsoft. Connections are opened when
	// they are needed, and closed by [Transport.Close]. On PostgreSQL only the option
	// pool_max_conns limits their number; docs/transports/sqlserver.md says how many
	// there will be.
	URL string

	// Pool is an existing pool of connections to PostgreSQL. [Transport.Close] leaves it
	// open. LISTEN, and the number of the process in leases, take one more connection,
	// outside the pool. Its sessions need client_encoding=UTF8, which a role or a database
	// may set to another encoding. If a statement finds two dead connections, one after the other,
	// the idle ones are closed (Pool.Reset).
	Pool *pgxpool.Pool

	// DB is an existing pool of connections to PostgreSQL (driver "pgx"), or to Microsoft
	// SQL Server (driver "sqlserver" of go-mssqldb), which needs Experimental and the
	// import of package microsoft. [Transport.Close] leaves it open. With DB the server
	// does not wake idle receivers: they poll. A transport with receivers keeps one
	// connection for the number of the process in leases, unless the pool's limit is
	// below 5. For Microsoft SQL Server, Database has to name the database.
	DB *sql.DB

	// Experimental has to be [MicrosoftSQLServer] if the program uses that dialect, which
	// no test has ever run on a server. Without it [New], [Open] and [DDL] refuse a URL
	// or a DB of Microsoft SQL Server. New and Open also need the driver, which the
	// program imports:
	//
	//	import _ "github.com/reprise-go/reprise/transport/sqlserver/microsoft"
	//
	// Experimental has no effect on PostgreSQL.
	Experimental Experiment

	// Schema is the schema of tables whose names have none. The default is "public" on
	// PostgreSQL and "dbo" on Microsoft SQL Server. It must exist.
	Schema string

	// Database is the name of the database in addresses on Microsoft SQL Server. The
	// default is the database that URL names. It is not used on PostgreSQL.
	Database string

	// NServiceBusTables says that the queues which this transport receives from are
	// tables that NServiceBus's transport created, which are used as they are. They have
	// no column for a delivery count (NativeDeliveryCount is false) and none for leases:
	// a message is in a transaction, with its own connection, in TransactionReceiveOnly
	// too. Sending to such tables does not need it.
	NServiceBusTables bool

	// Lease is the duration of leases: messages are leased in TransactionReceiveOnly and,
	// on PostgreSQL, TransactionSendsAtomicWithReceive. The endpoint renews the lease of
	// a message until it is settled. When a process dies, its messages are redelivered
	// within 2 s if the server notices, and otherwise when their leases end: set a shorter
	// lease where a proxy hides the end of connections from the server. The default is
	// 30 s, the minimum 1 s, the maximum 24 h.
	Lease time.Duration

	// MaxMessageBytes is the maximum size of a message that applications send, headers and
	// body together. An operator who keeps large messages out of the database sets it. The
	// default is the maximum, 256 MiB: more would come close to the server's limit for one
	// value. Larger messages that are in a queue are still received, retried and moved.
	MaxMessageBytes int

	// SubscriptionCache is how long the subscribers of a topic are cached, and so how
	// long a new subscription may take to have an effect. The default is 5 s; a value
	// below 0 disables the cache. Set that in tests that subscribe with one transport and
	// publish with another.
	SubscriptionCache time.Duration

	// SubscriptionTable is the name of the table of subscriptions, or its address if it
	// is in another schema. Set it where endpoints of NServiceBus have configured another
	// table than their default, "SubscriptionRouting", which is the default here too.
	// Endpoints that share a table need different names, even in different schemas:
	// see [Transport.Subscribe].
	SubscriptionTable string
}

// Experiment names a part of the package that is available before it has been proven.
type Experiment string

// MicrosoftSQLServer is the dialect of Microsoft SQL Server and Azure SQL. The
// conformance suite has never been run on a server; docs/transports/sqlserver.md says how
// the dialect has been tested so far, and how to run the suite ("make test-mssql").
const MicrosoftSQLServer Experiment = "MicrosoftSQLServer"

const (
	defaultLease             = 30 * time.Second
	minLease                 = time.Second
	maxLease                 = 24 * time.Hour // see unleased
	defaultSubscriptionCache = 5 * time.Second
	defaultSubscriptionTable = "SubscriptionRouting"
)

// String returns the configuration without the password and the options of URL. fmt, slog
// and encoding/json show a Config like this, also within other values. fmt cannot do so
// for an unexported field of another struct: give that struct a String method.
func (c Config) String() string { return fmt.Sprintf("%+v", plainConfig(c.shown())) }

// GoString returns the same text as String.
func (c Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer with the text of String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON writes the configuration as String shows it, without Pool and DB. Its URL
// has no password: to store a configuration, store its fields.
func (c Config) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		plainConfig
		Pool, DB any `json:",omitempty"` // never written
	}{plainConfig: plainConfig(c.shown())})
}

// plainConfig is a Config without methods.
type plainConfig Config

// shown returns the configuration without secrets.
func (c Config) shown() Config {
	c.URL = transport.RedactURL(c.URL, serverurl.Read)
	return c
}

// complete sets the defaults, and checks the configuration as far as that is possible
// without the server. connects is false for a transport that never contacts its server.
func (c *Config) complete(d dialect.Dialect, connects bool) error {
	var errs []error
	if err := c.checkExperimental(d, connects); err != nil {
		errs = append(errs, err)
	}
	switch {
	case c.MaxMessageBytes < 0 || c.MaxMessageBytes > maxMessageBytes:
		errs = append(errs, fmt.Errorf("Config.MaxMessageBytes is %d, but must be from 1 to %d (256 MiB), or 0 for that", c.MaxMessageBytes, maxMessageBytes))
	case c.MaxMessageBytes == 0:
		c.MaxMessageBytes = maxMessageBytes
	}
	switch {
	case c.Lease == 0:
		c.Lease = defaultLease
	case c.Lease < minLease:
		errs = append(errs, fmt.Errorf("Config.Lease is %v, but must be at least %v", c.Lease, minLease))
	case c.Lease > maxLease:
		errs = append(errs, fmt.Errorf("Config.Lease is %v, but must be at most %v: a lease is renewed for as long as the handler runs", c.Lease, maxLease))
	}
	switch {
	case c.SubscriptionCache == 0:
		c.SubscriptionCache = defaultSubscriptionCache
	case c.SubscriptionCache < 0:
		c.SubscriptionCache = 0
	}
	if c.Schema == "" {
		c.Schema = d.DefaultSchema()
	}
	if c.SubscriptionTable == "" {
		c.SubscriptionTable = defaultSubscriptionTable
	}
	for _, name := range []string{c.SubscriptionTable, dialect.DelayedTable} {
		if _, err := d.Table(name, dialect.Location{Catalog: c.Database, Schema: c.Schema}); err != nil {
			errs = append(errs, fmt.Errorf("Config.Schema %q, Config.SubscriptionTable %q: %w", c.Schema, c.SubscriptionTable, err))
			break
		}
	}
	return errors.Join(errs...)
}

// checkExperimental refuses a dialect that was never run on a server, unless
// Config.Experimental names it, and a dialect whose driver is needed and not imported.
func (c *Config) checkExperimental(d dialect.Dialect, connects bool) error {
	switch c.Experimental {
	case "", MicrosoftSQLServer:
	default:
		return fmt.Errorf("Config.Experimental is %q, which is no experiment of this package; use sqlserver.MicrosoftSQLServer, or leave it empty", c.Experimental)
	}
	if _, isMicrosoft := d.(microsoft.Dialect); !isMicrosoft {
		return nil
	}
	asked, imported := c.Experimental == MicrosoftSQLServer, !connects || microsoftdriver.Registered() != nil
	if asked && imported {
		return nil
	}
	named := "Config.URL"
	if c.DB != nil {
		named = "Config.DB"
	}
	if asked {
		return fmt.Errorf("%s is for %s, and %w", named, d.Product(), errNoDriver)
	}
	todo := "call New with Config.Experimental set to sqlserver.MicrosoftSQLServer"
	if !imported {
		todo += fmt.Sprintf(", and add import _ %q", microsoftPackage)
	}
	return fmt.Errorf("%s is for %s, and that dialect is experimental: the conformance suite has never been run on a server. To use it nevertheless, %s; \"make test-mssql\" runs the suite on a server of yours (docs/transports/sqlserver.md)",
		named, d.Product(), todo)
}
