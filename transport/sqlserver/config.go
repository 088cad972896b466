package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
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
	// outside the pool. If a statement finds two dead connections, one after the other,
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
	// within 2 s if the server notices, and otherwise when their leases end. The default
	// is 30 s, the minimum 1 s, the maximum 24 h.
	Lease time.Duration

	// MaxMessageBytes is the largest message, headers and body together, that
	// applications may send. The default is 256 MiB, which is also the maximum: more
	// would come close to the server's limit for one value. Larger messages that are in a
	// queue, from foreign senders or from endpoints with a higher limit, are still
	// received, retried and moved.
	MaxMessageBytes int

	// SubscriptionCache is how long the subscribers of a topic are cached, and so how
	// long a new subscription may take to have an effect. The default is 5 s; a value
	// below 0 disables the cache.
	SubscriptionCache time.Duration

	// SubscriptionTable is the name of the table of subscriptions, or its address if it
	// is in another schema. The default is that of NServiceBus, "SubscriptionRouting".
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
	delayedTable             = "reprise_delayed"
	idleConnections          = 16
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
	c.URL = transport.RedactURL(c.URL, readURL)
	return c
}

// connect opens the database that the configuration names, without connecting to it.
func (c *Config) connect() (database, dialect, error) {
	given := 0
	for _, set := range []bool{c.URL != "", c.Pool != nil, c.DB != nil} {
		if set {
			given++
		}
	}
	if given == 0 {
		return nil, nil, errors.New("no database is named: Config.URL, which is also the argument of Open, is empty, and neither Config.Pool nor Config.DB is set")
	}
	if given > 1 {
		return nil, nil, fmt.Errorf("%d of Config.URL, Config.Pool and Config.DB are set; set one", given)
	}
	switch {
	case c.Pool != nil:
		if hasHostOfPassword(&c.Pool.Config().ConnConfig.Config) {
			return nil, nil, fmt.Errorf("Config.Pool: %w", errHostOfPassword)
		}
		return &pgxDatabase{connections: c.Pool, most: int(c.Pool.Config().MaxConns)}, postgres{}, nil
	case c.DB != nil:
		used := c.DB.Driver()
		if _, ok := used.(*stdlib.Driver); ok {
			return &sqlDatabase{db: c.DB}, postgres{}, nil
		}
		if isMicrosoftDriver(used) {
			return &sqlDatabase{db: c.DB}, microsoft{}, nil
		}
		return nil, nil, fmt.Errorf("Config.DB uses the driver %T; use \"sqlserver\" of %s or \"pgx\" of github.com/jackc/pgx/v5/stdlib", used, microsoftLibrary)
	}
	u, err := readURL(c.URL)
	if err != nil {
		return nil, nil, err
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		return connectPostgres(c.URL, u)
	case "sqlserver":
		return c.connectMicrosoft(u)
	default:
		return nil, nil, fmt.Errorf("Config.URL has the scheme %q; use postgres://... or sqlserver://...", u.Scheme)
	}
}

// connectionsOfOurs is the limit of a pool that we open, if the URL has none: receivers
// and senders open the connections that they need.
const connectionsOfOurs = 1 << 16

// connectTimeout limits an attempt to connect, if the URL has no limit (pgx's default is
// two minutes).
const connectTimeout = 10 * time.Second

// cancelTimeout is how long the server may take to cancel a statement before the
// connection is closed.
const cancelTimeout = time.Second

func connectPostgres(rawURL string, u *url.URL) (database, dialect, error) {
	options, err := optionsForPgx(u.RawQuery)
	if err == nil {
		err = checkOptions(options)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("Config.URL: %w", err)
	}
	cfg, err := pgxpool.ParseConfig(urlForPgx(rawURL, u)) // u.String() would break "postgres://"
	if err != nil {
		return nil, nil, fmt.Errorf("Config.URL: %s", reason(err))
	}
	d := &pgxDatabase{owned: true}
	cfg.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return &canceller{conn: conn} }
	if valueOf(options, "connect_timeout") == "" && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if text := valueOf(options, "pool_max_conns"); text == "" {
		cfg.MaxConns = connectionsOfOurs
	} else {
		d.most, _ = strconv.Atoi(text) // pgxpool has checked it
	}
	d.connections, err = pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("Config.URL: %s", reason(err))
	}
	return d, postgres{}, nil
}

func (c *Config) connectMicrosoft(u *url.URL) (database, dialect, error) {
	if err := checkMicrosoftOptions(u.Query()); err != nil {
		return nil, nil, fmt.Errorf("Config.URL: %w", err)
	}
	server := &microsoftdriver.Server{Database: microsoftDatabase(u), Connector: noDriver{}}
	if library := microsoftdriver.Registered(); library != nil {
		var err error
		if server, err = library.Parse(u.String()); err != nil {
			return nil, nil, fmt.Errorf("Config.URL: %s", reason(err))
		}
	}
	if c.Database == "" {
		c.Database = server.Database
	}
	// Without a database, the tables would be in the default database of the login, which
	// is usually master. DDL needs no database.
	if c.Database == "" && u.Host != "" {
		return nil, nil, errors.New("Config.URL names no database: add the option database=name, or set Config.Database (what follows the host is the name of an instance)")
	}
	db := sql.OpenDB(server.Connector)
	db.SetMaxIdleConns(idleConnections)
	return &sqlDatabase{db: db, owned: true, server: server}, microsoft{}, nil
}

const (
	microsoftLibrary = "github.com/microsoft/go-mssqldb"
	microsoftPackage = "github.com/reprise-go/reprise/transport/sqlserver/microsoft"
)

// isMicrosoftDriver reports whether a driver is go-mssqldb's. It compares the type's
// name, so that it also works in a program that imports go-mssqldb and not package
// microsoft.
func isMicrosoftDriver(d driver.Driver) bool {
	t := reflect.TypeOf(d)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == microsoftLibrary && t.Elem().Name() == "Driver"
}

// noDriver never connects. DDL uses it in a program that does not import package
// microsoft.
type noDriver struct{}

// Connect implements driver.Connector.
func (noDriver) Connect(context.Context) (driver.Conn, error) { return nil, errNoDriver }

// Driver implements driver.Connector.
func (d noDriver) Driver() driver.Driver { return d }

// Open implements driver.Driver.
func (noDriver) Open(string) (driver.Conn, error) { return nil, errNoDriver }

var errNoDriver = fmt.Errorf("the program does not import the package for it: add import _ %q", microsoftPackage)

// complete sets the defaults, and checks the configuration as far as that is possible
// without the server. connects is false for a transport that never contacts its server.
func (c *Config) complete(d dialect, connects bool) error {
	var errs []error
	if err := c.checkExperimental(d, connects); err != nil {
		errs = append(errs, err)
	}
	switch {
	case c.MaxMessageBytes < 0 || c.MaxMessageBytes > mostMessageBytes:
		errs = append(errs, fmt.Errorf("Config.MaxMessageBytes is %d, but must be from 1 to %d (256 MiB), or 0 for that", c.MaxMessageBytes, mostMessageBytes))
	case c.MaxMessageBytes == 0:
		c.MaxMessageBytes = mostMessageBytes
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
		c.Schema = d.defaultSchema()
	}
	if c.SubscriptionTable == "" {
		c.SubscriptionTable = defaultSubscriptionTable
	}
	for _, name := range []string{c.SubscriptionTable, delayedTable} {
		if _, err := d.table(name, location{c.Database, c.Schema}); err != nil {
			errs = append(errs, fmt.Errorf("Config.Schema %q, Config.SubscriptionTable %q: %w", c.Schema, c.SubscriptionTable, err))
			break
		}
	}
	return errors.Join(errs...)
}

// checkExperimental refuses a dialect that was never run on a server, unless
// Config.Experimental names it, and a dialect whose driver is needed and not imported.
func (c *Config) checkExperimental(d dialect, connects bool) error {
	switch c.Experimental {
	case "", MicrosoftSQLServer:
	default:
		return fmt.Errorf("Config.Experimental is %q, which is no experiment of this package; use sqlserver.MicrosoftSQLServer, or leave it empty", c.Experimental)
	}
	if _, isMicrosoft := d.(microsoft); !isMicrosoft {
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
		return fmt.Errorf("%s is for %s, and %w", named, d.product(), errNoDriver)
	}
	todo := "call New with Config.Experimental set to sqlserver.MicrosoftSQLServer"
	if !imported {
		todo += fmt.Sprintf(", and add import _ %q", microsoftPackage)
	}
	return fmt.Errorf("%s is for %s, and that dialect is experimental: the conformance suite has never been run on a server. To use it nevertheless, %s; \"make test-mssql\" runs the suite on a server of yours (docs/transports/sqlserver.md)",
		named, d.product(), todo)
}
