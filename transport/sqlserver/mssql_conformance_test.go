//go:build mssql

package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestMSSQLConformance is all of the suite but what kills the server, or cuts the network
// of all transports.
func TestMSSQLConformance(t *testing.T) {
	conformance.Run(t, mssqlHarness(t, onMicrosoft, sqlserver.Config{}))
}

// TestMSSQLConformanceOfNServiceBusTables is the same on tables that NServiceBus made.
func TestMSSQLConformanceOfNServiceBusTables(t *testing.T) {
	h := mssqlHarness(t, onMicrosoftForeign, sqlserver.Config{NServiceBusTables: true})
	h.Mismatch = nil // they have no column that Reprise could want to be different
	conformance.Run(t, h)
}

// mssqlHarness is for queues in the schema dbo of the database, as a child process finds
// them by the URL alone.
func mssqlHarness(t *testing.T, name string, cfg sqlserver.Config) conformance.Harness {
	t.Helper()
	text := serverURL(t)
	tellChildren(t, name, text)
	parsed, u := parsedURL(t, text)
	d := newMSSQL(t) // for the table work
	d.exec(t, `create table `+d.table("work")+` (id nvarchar(200) primary key)`)
	cfg.URL, cfg.Experimental = text, sqlserver.MicrosoftSQLServer
	short := shortLeases(cfg)
	cfg = forCases(cfg)
	h := conformance.Harness{
		Name:           name,
		Open:           opens(cfg),
		OpenShortLocks: opens(short),
		OpenLimited:    opensLimited(cfg),
		Corrupt: func(t testing.TB, queue string) []byte {
			d.exec(t, `insert into [dbo].`+bracketed(queue)+` (Id, Recoverable, Headers, Body) values (newid(), 1, N'{"a": 1', cast('as it came' as varbinary(max)))`)
			return []byte("as it came")
		},
		DeleteQueue: func(t testing.TB, queue string) { d.exec(t, `drop table [dbo].`+bracketed(queue)) },
		Mismatch: func(t testing.TB) (string, [2]string) {
			queue := fmt.Sprintf("mismatch-%d", time.Now().UnixNano())
			provisionAlone(t, cfg, queue)
			d.exec(t, `alter table [dbo].`+bracketed(queue)+` alter column LastError nvarchar(4000)`)
			return queue, [2]string{"nvarchar(4000)", "nvarchar(max)"}
		},
		NativeTx: &conformance.NativeTx{
			Write: func(ctx context.Context, key string) error {
				return work(ctx, `insert into `+d.table("work")+` values (@p1)`, key)
			},
			Committed: func(t testing.TB, key string) bool {
				return d.number(t, `select count(*) from `+d.table("work")+` where id = @p1`, key) == 1
			},
			Break: func(ctx context.Context) error {
				if err := work(ctx, `set xact_abort on; select 1 / cast(@p1 as int)`, "0"); err == nil {
					return errors.New("the transaction is not broken")
				}
				return nil
			},
		},
	}
	if d.number(t, `select case when N'a' = N'A' then 1 else 0 end`) == 1 {
		h.Deviations = map[string]string{"C18 names that differ in case are different queues": "the collation of the database decides, and this one ignores case"}
	}
	if parsed.Password != "" {
		h.Secrets = append(h.Secrets, parsed.Password)
		if written, ok := u.User.Password(); ok && written != parsed.Password {
			h.Secrets = append(h.Secrets, written)
		}
	}
	return h
}

// provisionAlone creates a queue with a separate transport.
func provisionAlone(t testing.TB, cfg sqlserver.Config, queue string) {
	t.Helper()
	transport, err := sqlserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = transport.Close(t.Context()) }()
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
		t.Fatal(err)
	}
}
