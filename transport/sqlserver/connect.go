package sqlserver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoft"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/serverurl"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// connections are the connections to the database that a configuration names.
type connections struct {
	db       sqlexec.Database
	dialect  dialect.Dialect
	info     core.TransportInfo // for telemetry: no user, and only host and port of the URL
	weakness string             // a warning about their security, or ""; those of Config.DB are unknown
}

// connect opens the database that the configuration names, without connecting to it.
func (c *Config) connect() (*connections, error) {
	given := 0
	for _, set := range []bool{c.URL != "", c.Pool != nil, c.DB != nil} {
		if set {
			given++
		}
	}
	if given == 0 {
		return nil, errors.New("no database is named: Config.URL, which is also the argument of Open, is empty, and neither Config.Pool nor Config.DB is set")
	}
	if given > 1 {
		return nil, fmt.Errorf("%d of Config.URL, Config.Pool and Config.DB are set; set one", given)
	}
	switch {
	case c.Pool != nil:
		if serverurl.HasHostOfPassword(&c.Pool.Config().ConnConfig.Config) {
			return nil, fmt.Errorf("Config.Pool: %w", serverurl.ErrHostOfPassword)
		}
		return connectionsOf(sqlexec.NewPgx(c.Pool, int(c.Pool.Config().MaxConns))), nil
	case c.DB != nil:
		used := c.DB.Driver()
		if _, ok := used.(*stdlib.Driver); ok {
			return &connections{db: sqlexec.NewSQL(c.DB, nil), dialect: postgres.Dialect{}, info: core.TransportInfo{System: systemPostgres}}, nil
		}
		if isMicrosoftDriver(used) {
			return &connections{db: sqlexec.NewSQL(c.DB, microsoft.TransactionEnded), dialect: microsoft.Dialect{}, info: core.TransportInfo{System: systemMicrosoft}}, nil
		}
		return nil, fmt.Errorf("Config.DB uses the driver %T; use \"sqlserver\" of %s or \"pgx\" of github.com/jackc/pgx/v5/stdlib", used, microsoftLibrary)
	}
	u, err := serverurl.Read(c.URL)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		return connectPostgres(c.URL, u)
	case "sqlserver":
		return c.connectMicrosoft(u)
	default:
		return nil, fmt.Errorf("Config.URL has the scheme %q; use postgres://... or sqlserver://...", u.Scheme)
	}
}

// These are the names of the products in telemetry.
const (
	systemPostgres  = "postgresql"
	systemMicrosoft = "microsoft.sql_server"
)

// connectionsOf describes connections to PostgreSQL through pgx.
func connectionsOf(db *sqlexec.PgxDatabase) *connections {
	server := &db.Connections.Config().ConnConfig.Config
	info := core.TransportInfo{System: systemPostgres, ServerAddress: server.Host, ServerPort: int(server.Port)}
	if strings.HasPrefix(server.Host, "/") { // a Unix domain socket
		info.ServerPort = 0
	}
	return &connections{db: db, dialect: postgres.Dialect{}, info: info, weakness: serverurl.WeaknessOfPgx(server)}
}

// connectionsOfOurs is the limit of a pool that we open, if the URL has none: receivers
// and senders open the connections that they need.
const connectionsOfOurs = 1 << 16

// connectTimeout limits an attempt to connect, if the URL has no limit (pgx's default is
// two minutes).
const connectTimeout = 10 * time.Second

func connectPostgres(rawURL string, u *url.URL) (*connections, error) {
	options, err := serverurl.PostgresOptions(u.RawQuery)
	if err == nil {
		err = serverurl.CheckPostgresOptions(options)
	}
	if err != nil {
		return nil, fmt.Errorf("Config.URL: %w", err)
	}
	cfg, err := pgxpool.ParseConfig(serverurl.ForPgx(rawURL, u)) // u.String() would break "postgres://"
	if err != nil {
		return nil, fmt.Errorf("Config.URL: %s", serverurl.Reason(err))
	}
	cfg.ConnConfig.BuildContextWatcherHandler = sqlexec.NewCanceller
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "UTF8" // as pgx writes; a role or a database may set another one
	if serverurl.Value(options, "connect_timeout") == "" && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	limit := 0
	if text := serverurl.Value(options, "pool_max_conns"); text == "" {
		cfg.MaxConns = connectionsOfOurs
	} else {
		limit, _ = strconv.Atoi(text) // pgxpool has checked it
	}
	db, err := sqlexec.OpenPgx(cfg, limit)
	if err != nil {
		return nil, fmt.Errorf("Config.URL: %s", serverurl.Reason(err))
	}
	return connectionsOf(db), nil
}

func (c *Config) connectMicrosoft(u *url.URL) (*connections, error) {
	if err := serverurl.CheckMicrosoftOptions(u.Query()); err != nil {
		return nil, fmt.Errorf("Config.URL: %w", err)
	}
	server := &microsoftdriver.Server{Database: serverurl.MicrosoftDatabase(u), Connector: noDriver{}}
	if library := microsoftdriver.Registered(); library != nil {
		var err error
		if server, err = library.Parse(u.String()); err != nil {
			return nil, fmt.Errorf("Config.URL: %s", serverurl.Reason(err))
		}
	}
	if c.Database == "" {
		c.Database = server.Database
	}
	// Without a database, the tables would be in the default database of the login, which
	// is usually master. DDL needs no database.
	if c.Database == "" && u.Host != "" {
		return nil, errors.New("Config.URL names no database: add the option database=name, or set Config.Database (the text after the host is the name of an instance)")
	}
	return &connections{
		db:       sqlexec.OpenSQL(server.Connector, microsoft.TransactionEnded),
		dialect:  microsoft.Dialect{},
		info:     core.TransportInfo{System: systemMicrosoft, ServerAddress: server.Host, ServerPort: server.Port},
		weakness: serverurl.WeaknessOfMicrosoft(server, u.Hostname()),
	}, nil
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
