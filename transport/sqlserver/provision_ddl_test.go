package sqlserver_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver"
)

// catalogue returns all that the server knows of a schema's tables, but for who owns
// them. The schema's name is left out.
func (db *testDatabase) catalogue(t *testing.T) []string {
	t.Helper()
	const inSchema = ` where n.nspname = $1`
	lines := db.column(t, `
select concat_ws(' ', 'relation', c.relname, c.relkind, c.relpersistence, array_to_string(c.reloptions, ','), obj_description(c.oid, 'pg_class'), 'toast', array_to_string(t.reloptions, ','))
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace left join pg_class as t on t.oid = c.reltoastrelid`+inSchema+`
union all
select concat_ws(' ', 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated, a.attstorage,
	pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum), a.attstattarget)
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0
left join pg_attrdef as d on d.adrelid = c.oid and d.adnum = a.attnum`+inSchema+`
union all
select concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid), i.indisvalid)
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace join pg_index as i on i.indrelid = c.oid`+inSchema+`
union all
select concat_ws(' ', 'constraint', c.relname, k.conname, pg_get_constraintdef(k.oid))
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace join pg_constraint as k on k.conrelid = c.oid`+inSchema+`
union all
select concat_ws(' ', 'sequence', c.relname, format_type(s.seqtypid, null), s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle)
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace join pg_sequence as s on s.seqrelid = c.oid`+inSchema+`
union all
select concat_ws(' ', 'trigger', c.relname, pg_get_triggerdef(g.oid, true))
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace join pg_trigger as g on g.tgrelid = c.oid and not g.tgisinternal`+inSchema+`
union all
select concat_ws(' ', 'function', p.proname, pg_get_functiondef(p.oid))
from pg_proc as p join pg_namespace as n on n.oid = p.pronamespace`+inSchema+`
order by 1`, db.schema)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], db.table("")[:len(db.table(""))-2], "")
	}
	slices.Sort(lines)
	return lines
}

// differences lists the things that are in one of the two.
func differences(got, want []string) (lines []string) {
	for _, line := range got {
		if !slices.Contains(want, line) {
			lines = append(lines, "+ "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			lines = append(lines, "- "+line)
		}
	}
	return lines
}

// TestDDL_CreatesTheTablesOfProvision: to the last option, for names of every kind, by
// psql and by a driver, and again without harm.
func TestDDL_CreatesTheTablesOfProvision(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, cfg := range map[string]sqlserver.Config{
		"tables of Reprise":     {},
		"tables of NServiceBus": {NServiceBusTables: true},
		"other subscriptions":   {SubscriptionTable: `Subscriptions "of" all;`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provisioned, byHand, driven := newSchema(t), newSchema(t), newSchema(t)
			queues := slices.Clone(legalNames)
			queues = slices.DeleteFunc(queues, func(name string) bool { return strings.HasPrefix(name, `"`) })
			transport := provisioned.open(t, cfg)
			provision(t, transport, queues...)
			want := provisioned.catalogue(t)
			if len(want) < 10*len(queues) {
				t.Fatalf("the catalogue has only %d lines", len(want))
			}

			// A server that is not there is not missed.
			cfg.URL = "postgres://nobody:secret@127.0.0.1:1/none"
			cfg.Schema = byHand.schema
			text, err := sqlserver.DDL(cfg, queues...)
			if err != nil {
				t.Fatal(err)
			}
			for round := range 2 {
				if _, err := server.Exec(t.Context(), byHand.name, text); err != nil {
					t.Fatal(err)
				}
				if lines := differences(byHand.catalogue(t), want); len(lines) > 0 {
					t.Errorf("round %d: psql makes this differently:\n%s", round, strings.Join(lines, "\n"))
				}
			}

			cfg.URL, cfg.Schema = "postgres://", driven.schema
			text, err = sqlserver.DDL(cfg, queues...)
			if err != nil {
				t.Fatal(err)
			}
			for round := range 2 {
				driven.exec(t, `select 1`)
				conn, err := driven.pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_, err = conn.Conn().PgConn().Exec(t.Context(), text).ReadAll()
				conn.Release()
				if err != nil {
					t.Fatal(err)
				}
				if lines := differences(driven.catalogue(t), want); len(lines) > 0 {
					t.Errorf("round %d: pgx makes this differently:\n%s", round, strings.Join(lines, "\n"))
				}
				if round == 0 {
					driven.exec(t, `insert into `+driven.table("orders")+` (id, headers) values (gen_random_uuid(), '{}')`)
				}
			}
			if n := driven.count(t, driven.table("orders")); n != "1" {
				t.Errorf("%s messages are left, want 1", n)
			}
			// What was made by hand is all that there is to be made.
			provision(t, driven.open(t, sqlserver.Config{NServiceBusTables: cfg.NServiceBusTables, SubscriptionTable: cfg.SubscriptionTable}), queues...)
			if lines := differences(driven.catalogue(t), want); len(lines) > 0 {
				t.Errorf("Provision afterwards makes this differently:\n%s", strings.Join(lines, "\n"))
			}
		})
	}
}

// TestDDL_NoQueues is for what belongs to no queue.
func TestDDL_NoQueues(t *testing.T) {
	t.Parallel()
	text, err := sqlserver.DDL(sqlserver.Config{URL: "postgres://", Schema: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"s"."SubscriptionRouting"`, `"s"."reprise_delayed"`, "version 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
	if !strings.HasSuffix(text, ";\n") || strings.Contains(text, ";;") {
		t.Errorf("the statements do not end as they should:\n%s", text)
	}
}

func TestDDL_RefusesTheConfigurationsOfNew(t *testing.T) {
	t.Parallel()
	for _, cfg := range []sqlserver.Config{{}, {URL: "mysql://root:secret@host/db"}, {URL: "postgres://", Lease: 1}, {URL: "postgres://", Schema: "\xff"}} {
		if text, err := sqlserver.DDL(cfg, "orders"); err == nil || text != "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("DDL(%v) = %q, %v", cfg, text, err)
		}
	}
	if text, err := sqlserver.DDL(sqlserver.Config{URL: "postgres://"}, "orders", ""); err == nil || text != "" {
		t.Errorf("DDL of a queue without a name = %q, %v", text, err)
	}
}
