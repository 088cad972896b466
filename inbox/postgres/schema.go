package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Config says where the entries are stored. The zero value is the table reprise_inbox in
// the schema public.
type Config struct {
	// Schema is the schema of the table. Provision does not create it.
	Schema string
	// Table is the name of the table, for databases with rules for names. The default is
	// "reprise_inbox". Several inboxes may share it.
	Table string
}

const (
	defaultSchema = "public"
	defaultTable  = "reprise_inbox"
	maxNameBytes  = 63 // the limit of PostgreSQL
	indexSuffix   = "_handled_at"
)

// table is the table and the statements for it.
type table struct {
	schema, name           string
	quoted, index          string
	claim, claimFor        string // without and with a limit of the waiting time
	entry, note            string
	mark, remove, describe string
}

func newTable(c Config) (*table, error) {
	t := &table{schema: c.Schema, name: c.Table}
	if t.schema == "" {
		t.schema = defaultSchema
	}
	if t.name == "" {
		t.name = defaultTable
	}
	for field, name := range map[string]string{"Schema": t.schema, "Table": t.name} {
		if limit := maxNameBytes - len(indexSuffix); len(name) > limit || !utf8.ValidString(name) || strings.Contains(name, "\x00") {
			return nil, fmt.Errorf("inbox/postgres: Config.%s is %q; use at most %d bytes of UTF-8 without NUL", field, name, limit)
		}
	}
	t.quoted = quoted(t.schema) + "." + quoted(t.name)
	t.index = quoted(t.name + indexSuffix)

	insert := "insert into " + t.quoted + " (scope, message_id, handled_at) select $1, $2, pg_catalog.now()"
	t.claim = insert + " on conflict do nothing"
	// lock_timeout applies to this statement alone: the previous value is kept in a
	// setting of the transaction, and restored if the statement inserts a row. If it
	// inserts none, the transaction ends.
	t.claimFor = insert + ` where case when pg_catalog.set_config('reprise.lock_timeout', pg_catalog.current_setting('lock_timeout'), true) is null then false
	else pg_catalog.set_config('lock_timeout', $3, true) is not null end
on conflict do nothing returning pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('reprise.lock_timeout'), true)`
	const ofKey = " where scope operator(pg_catalog.=) $1 and message_id operator(pg_catalog.=) $2"
	t.entry = "select handled_at, outgoing from " + t.quoted + ofKey
	t.note = "update " + t.quoted + " set outgoing = $3" + ofKey
	t.mark = "update " + t.quoted + ` set outgoing = null where outgoing is not null
and (scope, message_id) operator(pg_catalog.=) any(select * from unnest($1::pg_catalog.text[], $2::pg_catalog.text[]))`
	// The time is one of the server, as that of each entry: clocks of processes differ.
	t.remove = "delete from " + t.quoted + ` where ctid operator(pg_catalog.=) any(array(
	select ctid from ` + t.quoted + ` where handled_at operator(pg_catalog.<=) (pg_catalog.now() operator(pg_catalog.-) ($1::bigint operator(pg_catalog.*) interval '1 microsecond'))
	order by handled_at limit $2 for update skip locked))`
	t.describe = `select pg_catalog.concat(a.attname, ' ', case when n.nspname operator(pg_catalog.=) 'pg_catalog'
	then pg_catalog.replace(pg_catalog.format_type(a.atttypid, a.atttypmod), 'pg_catalog.', '') else pg_catalog.format('%I.%I', n.nspname, t.typname) end)
from pg_catalog.pg_attribute as a inner join pg_catalog.pg_type as t on t.oid operator(pg_catalog.=) a.atttypid
	inner join pg_catalog.pg_namespace as n on n.oid operator(pg_catalog.=) t.typnamespace
where a.attrelid operator(pg_catalog.=) pg_catalog.to_regclass($1) and a.attnum operator(pg_catalog.>) 0 and not a.attisdropped`
	return t, nil
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// columns are the columns of the table.
var columns = []string{"scope text", "message_id text", "handled_at timestamp with time zone", "outgoing bytea"}

// DDL returns the statements that create the table, to be run by a user with the right to
// do so. They do not change existing objects.
//
// Names are compared byte by byte (collate "C"), which is also the fastest. An entry is
// updated once, when its messages have left, without a change of an index (HOT):
// fillfactor leaves room for that.
func DDL(c Config) ([]string, error) {
	t, err := newTable(c)
	if err != nil {
		return nil, err
	}
	return t.ddl(), nil
}

func (t *table) ddl() []string {
	return []string{
		"create table if not exists " + t.quoted + ` (
	scope pg_catalog.text collate pg_catalog."C" not null,
	message_id pg_catalog.text collate pg_catalog."C" not null,
	handled_at timestamp with time zone not null,
	outgoing pg_catalog.bytea,
	primary key (scope, message_id)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)`,
		"create index if not exists " + t.index + " on " + t.quoted + " (handled_at)",
		"comment on table " + t.quoted + " is 'Reprise inbox, version 1'",
	}
}

// lockSchema prevents processes from creating the table at the same time, which would
// fail. Any session may hold the lock, with any rights, so it is waited for only for 3 s,
// which is much longer than it takes to create a table. The server evaluates columns in their
// order.
const lockSchema = "select pg_catalog.set_config('lock_timeout', '3000', true), pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('reprise inbox schema', 0))"

// attemptsToCreate is how often a process tries to create the table without the lock: another
// one that does so at the same time lets it fail, and has then created the table.
const attemptsToCreate = 4

// execute runs statements in one transaction.
type execute func(ctx context.Context, statements ...string) error

// query returns the columns of the table.
type query func(ctx context.Context) ([]string, error)

// provision creates the table if it is missing, and checks it.
func (t *table) provision(ctx context.Context, do execute, describe query) error {
	err := t.check(ctx, describe)
	if errors.Is(err, errNoTable) {
		err = do(ctx, append([]string{lockSchema}, t.ddl()...)...)
		if codeOf(err) == lockNotAvailable {
			for attempt := 1; err != nil && ctx.Err() == nil && attempt <= attemptsToCreate; attempt++ {
				err = do(ctx, t.ddl()...)
			}
		}
		if err != nil {
			return fmt.Errorf("inbox/postgres: create the table %s (DDL returns the statements for somebody with the right to): %w", t.quoted, err)
		}
		err = t.check(ctx, describe)
	}
	return err
}

// errNoTable makes provision create the table.
var errNoTable = errors.New("the table does not exist")

// check verifies that the table exists and has its columns.
func (t *table) check(ctx context.Context, describe query) error {
	has, err := describe(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("inbox/postgres: look at the table %s: %w", t.quoted, err)
	case len(has) == 0:
		return fmt.Errorf("inbox/postgres: %w: there is no %s; create it with Provision or DDL", errNoTable, t.quoted)
	}
	for _, column := range columns {
		if !slices.Contains(has, column) {
			return fmt.Errorf("inbox/postgres: the table %s has no column %q; it has %q: it is no inbox, or was changed. Set Config.Table to another name, or change it back", t.quoted, column, has)
		}
	}
	return nil
}
