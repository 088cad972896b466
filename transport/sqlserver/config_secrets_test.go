package sqlserver_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/reprise-go/reprise/internal/planted"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// nowhere is an address without a listener.
const nowhere = "127.0.0.1:1"

// placesOfPasswords are URLs with a password (%s) in it, where people write one.
var placesOfPasswords = []string{
	"postgres://app:%s@" + nowhere + "/queues",
	"postgresql://app:%s@" + nowhere + "/queues?sslmode=disable",
	"POSTGRES://app:%s@" + nowhere + "/queues?sslmode=disable",
	"postgres://app:%s@" + nowhere,
	"postgres://app:%s@" + nowhere + ",127.0.0.1:2/queues?target_session_attrs=read-write",
	"postgres://:%s@" + nowhere + "/queues",
	"postgres://" + nowhere + "/queues?user=app&password=%s",
	"postgres://app@" + nowhere + "/queues?password=%s&sslmode=disable",
	"postgres:///queues?host=127.0.0.1&port=1&user=app&password=%s",
	"postgres://?host=127.0.0.1&port=1&user=app&password=%s",
	"app:%s@" + nowhere + "/queues",
	"host=127.0.0.1 port=1 user=app password=%s",
	"postgres:app:%s@" + nowhere + "/queues",
	"sqlserver://app:%s@" + nowhere + "?database=queues",
	"sqlserver://" + nowhere + "?database=queues&user+id=app&password=%s",
	"SQLSERVER://app:%s@" + nowhere + "?database=queues",
}

// optionsOfPgx and optionsOfMicrosoft are options in which a secret may end up.
var (
	optionsOfPgx = []string{
		"sslpassword", "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcertmode", "sslsni", "sslnegotiation", "ssl", "passfile", "service", "servicefile",
		"port", "connect_timeout", "target_session_attrs", "channel_binding", "require_auth", "min_protocol_version", "max_protocol_version",
		"pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter", "pool_max_conn_idle_time",
		"pool_health_check_period", "pool_ping_timeout", "statement_cache_capacity", "description_cache_capacity", "default_query_exec_mode",
		"application_name", "options", "krbsrvname",
	}
	optionsOfMicrosoft = []string{
		"password", "change password", "encrypt", "trustservercertificate", "certificate", "servercertificate", "tlsmin", "port", "dial timeout", "connection timeout",
		"keepalive", "packet size", "log", "app name", "protocol", "failoverport", "applicationintent", "disableretry", "guid conversion", "columnencryption",
		"multisubnetfailover", "timezone", "epa enabled",
	}
)

// FuzzSecrets plants a secret into every place of a configuration, and looks for it in
// everything that the package says.
func FuzzSecrets(f *testing.F) {
	for i, odd := range planted.Oddities() {
		if !testing.Short() || i%8 == 0 {
			f.Add(odd)
		}
	}
	f.Fuzz(func(t *testing.T, odd string) {
		t.Parallel()
		secret := planted.Secret(odd)
		forms := planted.Forms(secret)
		for i, place := range placesOfPasswords {
			for j, form := range forms {
				use := j == 0 && i%3 == 0 || j == 1 && i == 0 // some as they are, and once as it should be
				checkSecrets(t, place, sqlserver.Config{URL: fmt.Sprintf(place, form)}, use)
			}
		}
		raw, encoded := forms[0], url.QueryEscape(secret)
		var places []string
		for _, option := range optionsOfPgx {
			places = append(places, "postgres://app:pw@"+nowhere+"/queues?"+option+"=")
		}
		for _, option := range optionsOfMicrosoft {
			places = append(places, "sqlserver://app:pw@"+nowhere+"?database=queues&"+url.QueryEscape(option)+"=")
		}
		for i, place := range places { // in each option one of the forms, in the next seed the other one
			form := []string{raw, encoded}[(i+len(odd))%2]
			checkSecrets(t, place, sqlserver.Config{URL: place + form}, false)
		}
		checkPools(t, "postgres://app:"+raw+"@"+nowhere+"/queues")
	})
}

// checkSecrets makes a transport. If it is to be used it prints the configuration in every
// way there is, which all show the same text, and has the transport fail in everything.
func checkSecrets(t *testing.T, place string, cfg sqlserver.Config, use bool) {
	t.Helper()
	cfg.Experimental = sqlserver.MicrosoftSQLServer
	if use {
		planted.Check(t, place, cfg)
		planted.Check(t, place, &cfg)
	} else if text := cfg.String(); strings.Contains(strings.ToLower(text), planted.Secret("")[:len(planted.Secret(""))/2]) {
		t.Errorf("%s: %s shows a secret", place, text)
	}
	transport, err := sqlserver.New(cfg)
	if err != nil {
		planted.Check(t, place+": New", err)
		return
	}
	defer closed(t, transport)
	if use && !strings.HasPrefix(strings.ToLower(cfg.URL), "sqlserver:") {
		planted.CheckTransport(t, place, transport)
	}
}

// checkPools does so with callers' pools, whose URLs pgx alone has read.
func checkPools(t *testing.T, raw string) {
	t.Helper()
	if pool, err := pgxpool.New(t.Context(), raw); err == nil {
		checkSecrets(t, "Config.Pool", sqlserver.Config{Pool: pool}, isNowhere(pool.Config()))
		pool.Close()
	}
	if db, err := sql.Open("pgx", raw); err == nil {
		if pool, err := pgxpool.ParseConfig(raw); err == nil && isNowhere(pool) && pool.ConnConfig.Host != "127.0.0.1" {
			checkSecrets(t, "Config.DB", sqlserver.Config{DB: db}, true)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// isNowhere reports whether a pool is for nowhere, or for a host that is the end of a
// password. Other parts of a URL that pgx has read otherwise are the caller's own, which
// made the pool.
func isNowhere(cfg *pgxpool.Config) bool {
	host := cfg.ConnConfig.Host
	return cfg.ConnConfig.Port == 1 && (host == "127.0.0.1" || strings.HasSuffix(host, "@127.0.0.1"))
}

// TestSecrets_OfTheEnvironment: what pgx reads besides the URL is shown no more than that.
func TestSecrets_OfTheEnvironment(t *testing.T) {
	secret := planted.Secret("x")
	passfile, servicefile := filepath.Join(t.TempDir(), "passfile"), filepath.Join(t.TempDir(), "services")
	for path, text := range map[string]string{passfile: "*:*:*:*:" + secret, servicefile: "[queues]\npassword=" + secret + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ variables map[string]string }{
		"a password":                {map[string]string{"PGPASSWORD": secret}},
		"a file of passwords":       {map[string]string{"PGPASSFILE": passfile}},
		"a service":                 {map[string]string{"PGSERVICE": "queues", "PGSERVICEFILE": servicefile}},
		"a service there is not":    {map[string]string{"PGSERVICE": secret, "PGSERVICEFILE": servicefile}},
		"a file there is not":       {map[string]string{"PGSERVICE": secret, "PGSERVICEFILE": secret}},
		"a certificate there isn't": {map[string]string{"PGSSLROOTCERT": secret}},
		"an sslmode":                {map[string]string{"PGSSLMODE": secret}},
		"session attributes":        {map[string]string{"PGTARGETSESSIONATTRS": secret}},
		"a timeout":                 {map[string]string{"PGCONNECT_TIMEOUT": secret}},
		"a protocol":                {map[string]string{"PGMINPROTOCOLVERSION": secret}},
		"channel binding":           {map[string]string{"PGCHANNELBINDING": secret}},
		"a port":                    {map[string]string{"PGPORT": secret}},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range c.variables {
				t.Setenv(variable, value)
			}
			url := "postgres://app@" + nowhere + "/queues"
			if name == "a port" {
				url = "postgres://app@127.0.0.1/queues"
			}
			checkSecrets(t, name, sqlserver.Config{URL: url}, true)
		})
	}
}

// TestSecrets_AtSignInAPassword: pgx connects to the host that the configuration shows.
func TestSecrets_AtSignInAPassword(t *testing.T) {
	t.Parallel()
	const raw = "postgres://app:hunter2@tail@" + nowhere + "/queues"
	transport, err := sqlserver.Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, transport)
	pool := transport.Pool().Config().ConnConfig
	if pool.Host != "127.0.0.1" || pool.Port != 1 || pool.Password != "hunter2@tail" || pool.User != "app" || pool.Database != "queues" {
		t.Errorf("pgx has the host %q, the port %d, the user %q and the database %q, and another password", pool.Host, pool.Port, pool.User, pool.Database)
	}
	for name, cfg := range map[string]func() sqlserver.Config{
		"Config.Pool": func() sqlserver.Config {
			pool, err := pgxpool.New(t.Context(), raw)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return sqlserver.Config{Pool: pool}
		},
		"Config.DB": func() sqlserver.Config {
			db, err := sql.Open("pgx", raw)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return sqlserver.Config{DB: db}
		},
	} {
		transport, err := sqlserver.New(cfg())
		if err == nil {
			err = transport.Send(t.Context(), letter("1", "orders"))
			closed(t, transport)
		}
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "%40") || strings.Contains(err.Error(), "tail") {
			t.Errorf("%s: %v, want an error that says what to write", name, err)
		}
	}
}
