package sqlserver_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver"
	_ "github.com/reprise-go/reprise/transport/sqlserver/microsoft"
)

const mssqlURL = "sqlserver://app:hunter2@h?database=queues"

// TestExperimental_MicrosoftSQLServerIsRefusedWithoutIt: who has not written that the
// dialect is experimental does not get it, and reads why and what to write.
func TestExperimental_MicrosoftSQLServerIsRefusedWithoutIt(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlserver", mssqlURL) // which does not connect
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	_, openErr := sqlserver.Open(mssqlURL)
	_, urlErr := sqlserver.New(sqlserver.Config{URL: mssqlURL})
	_, dbErr := sqlserver.New(sqlserver.Config{DB: db, Database: "queues"})
	text, ddlErr := sqlserver.DDL(sqlserver.Config{URL: "sqlserver://"}, "orders")
	if text != "" {
		t.Errorf("DDL returns %q", text)
	}
	for call, c := range map[string]struct {
		err   error
		named string
	}{
		"Open":             {openErr, "Config.URL"},
		"New with a URL":   {urlErr, "Config.URL"},
		"New with a DB":    {dbErr, "Config.DB"},
		"DDL without a DB": {ddlErr, "Config.URL"},
	} {
		if c.err == nil {
			t.Errorf("%s succeeds", call)
			continue
		}
		for _, want := range []string{
			c.named + " is for Microsoft SQL Server", "experimental", "has never been run on a server",
			"Config.Experimental set to sqlserver.MicrosoftSQLServer", "make test-mssql", "docs/transports/sqlserver.md",
		} {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("%s: %q does not say %q", call, c.err, want)
			}
		}
		if strings.Contains(c.err.Error(), "hunter2") {
			t.Errorf("%s: %q has the password in it", call, c.err)
		}
	}
}

// TestExperimental_MicrosoftSQLServerIsOpenedWithIt: by a URL and by a pool. The word
// changes nothing on PostgreSQL.
func TestExperimental_MicrosoftSQLServerIsOpenedWithIt(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlserver", mssqlURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for name, cfg := range map[string]sqlserver.Config{
		"orders@[dbo]@[queues]": {URL: mssqlURL},
		"orders@[dbo]@[shop]":   {DB: db, Database: "shop"},
		`"public"."orders"`:     {URL: "postgres://app@h/queues"},
	} {
		cfg.Experimental = sqlserver.MicrosoftSQLServer
		transport, err := sqlserver.New(cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if address, err := transport.Address("orders"); err != nil || address != name {
			t.Errorf("the address is %s, %v, want %s", address, err, name)
		}
		closed(t, transport)
	}
}

// TestExperimental_UnknownNamesAreRefused on every server, so that a typing error shows
// where the program is tested.
func TestExperimental_UnknownNamesAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{mssqlURL, "postgres://app@h/queues"} {
		_, err := sqlserver.New(sqlserver.Config{URL: url, Experimental: "mssql"})
		if err == nil || !strings.Contains(err.Error(), `Config.Experimental is "mssql"`) || !strings.Contains(err.Error(), "sqlserver.MicrosoftSQLServer") {
			t.Errorf("%s: %v, want an error that names the value and the one to use", url, err)
		}
	}
}
