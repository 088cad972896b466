package microsoftdriver_test

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/microsoft/go-mssqldb" // the driver "sqlserver"

	"github.com/reprise-go/reprise/transport/sqlserver"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
)

// The tests of package sqlserver import package microsoft. These run without it, as programs
// do that use PostgreSQL.

const (
	mssqlURL    = "sqlserver://app:hunter2@h?database=queues"
	wantsImport = `import _ "github.com/reprise-go/reprise/transport/sqlserver/microsoft"`
)

// TestUnregistered_ErrorNamesTheImport also where the program imports go-mssqldb itself, and
// together with everything else that is wrong with the configuration.
func TestUnregistered_ErrorNamesTheImport(t *testing.T) {
	t.Parallel()
	if microsoftdriver.Registered() != nil {
		t.Fatal("a driver is registered: these tests are about a program without one")
	}
	db := openDB(t)
	for name, c := range map[string]struct {
		cfg  sqlserver.Config
		says []string
	}{
		"a URL":                  {sqlserver.Config{URL: mssqlURL, Experimental: sqlserver.MicrosoftSQLServer}, []string{"Config.URL is for Microsoft SQL Server"}},
		"a URL, not asked for":   {sqlserver.Config{URL: mssqlURL}, []string{"Config.URL is for Microsoft SQL Server", "experimental", "Config.Experimental set to sqlserver.MicrosoftSQLServer"}},
		"a pool":                 {sqlserver.Config{DB: db, Database: "queues", Experimental: sqlserver.MicrosoftSQLServer}, []string{"Config.DB is for Microsoft SQL Server"}},
		"a pool, not asked for":  {sqlserver.Config{DB: db, Database: "queues"}, []string{"Config.DB is for Microsoft SQL Server", "experimental", "Config.Experimental set to sqlserver.MicrosoftSQLServer"}},
		"a lease that is wrong":  {sqlserver.Config{URL: mssqlURL, Experimental: sqlserver.MicrosoftSQLServer, Lease: 1}, []string{"Config.URL is for Microsoft SQL Server", "Config.Lease"}},
		"no option is looked at": {sqlserver.Config{URL: mssqlURL + "&encrypt=hunter2", Experimental: sqlserver.MicrosoftSQLServer}, []string{"Config.URL is for Microsoft SQL Server"}},
	} {
		transport, err := sqlserver.New(c.cfg)
		if err == nil {
			t.Errorf("%s: New succeeds without a driver", name)
			_ = transport.Close(t.Context())
			continue
		}
		for _, want := range append(c.says, "sqlserver: open: ", wantsImport) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q has the password in it", name, err)
		}
	}
	if _, err := sqlserver.Open(mssqlURL); err == nil || !strings.Contains(err.Error(), wantsImport) {
		t.Errorf("Open returns %v, want an error that names the import", err)
	}
}

// TestUnregistered_DDL reaches no server, and so needs no driver. The database of the URL is in
// the statements all the same.
func TestUnregistered_DDL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  sqlserver.Config
		want string
	}{
		"no database":            {sqlserver.Config{URL: "sqlserver://"}, "[dbo].[orders]"},
		"the database in a URL":  {sqlserver.Config{URL: "sqlserver://h?dataBase=shop"}, "[shop].[dbo].[orders]"},
		"the database beside it": {sqlserver.Config{URL: "sqlserver://h?database=shop", Database: "other"}, "[other].[dbo].[orders]"},
		"the database of a pool": {sqlserver.Config{DB: openDB(t), Database: "shop"}, "[shop].[dbo].[orders]"},
	} {
		c.cfg.Experimental = sqlserver.MicrosoftSQLServer
		text, err := sqlserver.DDL(c.cfg, "orders")
		if err != nil || !strings.Contains(text, "create table "+c.want) {
			t.Errorf("%s: DDL returns %v and this, want a table %s:\n%s", name, err, c.want, text)
		}
	}
	for name, cfg := range map[string]sqlserver.Config{
		"not asked for": {URL: "sqlserver://"},
		"no database":   {URL: "sqlserver://h", Experimental: sqlserver.MicrosoftSQLServer},
		"a bad lease":   {URL: "sqlserver://", Experimental: sqlserver.MicrosoftSQLServer, Lease: 1},
	} {
		if text, err := sqlserver.DDL(cfg, "orders"); err == nil || text != "" || strings.Contains(err.Error(), "import") {
			t.Errorf("%s: DDL returns %q and %v, want an error that asks for no import", name, text, err)
		}
	}
}

// TestUnregistered_ErrorsAreFromNoServer: PostgreSQL's errors are asked for too.
func TestUnregistered_ErrorsAreFromNoServer(t *testing.T) {
	t.Parallel()
	if errs := microsoftdriver.Errors(sql.ErrTxDone); errs != nil || microsoftdriver.Severed(sql.ErrTxDone) {
		t.Errorf("an error of database/sql is one of the server: %v", errs)
	}
}

func openDB(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlserver", mssqlURL) // which does not connect
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
