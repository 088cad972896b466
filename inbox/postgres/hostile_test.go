package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/inbox/postgres"
	server "github.com/reprise-go/reprise/internal/testserver/postgres"
)

// TestStatements_NamesAreQualified: no statement looks up a function, an operator, a type or a
// table of the catalogue along search_path, where another role may have put its own.
func TestStatements_NamesAreQualified(t *testing.T) {
	t.Parallel()
	found, err := server.UnqualifiedNamesInSource(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		t.Error(name)
	}
	texts, err := postgres.Statements(postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		for _, name := range server.UnqualifiedNames(text) {
			t.Errorf("%s\n%s", name, text)
		}
	}
}

var hostileRoles atomic.Int64

// asHostileRole connects as a role that may create objects in public, as every role may up to
// PostgreSQL 14, and has no other right.
func (d *database) asHostileRole(t *testing.T) *pgx.Conn {
	t.Helper()
	name := fmt.Sprintf("hostile_%d", hostileRoles.Add(1))
	at, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Exec(t.Context(), strings.TrimPrefix(at.Path, "/"), fmt.Sprintf("create role %s login password '%s'; grant usage, create on schema public to public", name, server.Password)); err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword(name, server.Password)
	conn, err := pgx.Connect(t.Context(), at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestHostileRole_NamesAreNotResolvedInItsSchema: a store calls no function or operator of a role
// that may create them, even where the path has public before pg_catalog.
func TestHostileRole_NamesAreNotResolvedInItsSchema(t *testing.T) {
	t.Parallel()
	for name, bySQL := range map[string]bool{"pgx": false, "database/sql": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, bySQL, "")
			if _, err := d.asHostileRole(t).PgConn().Exec(t.Context(), `do $do$ declare
				signature text; operand text;
				body constant text := $body$ begin raise exception 'a function of the hostile role is called'; end $body$;
			begin
				foreach signature in array array['now() returns timestamptz', 'current_setting(text) returns text', 'set_config(text, text, boolean) returns text', 'format_type(oid, integer) returns text',
					'to_regclass(text) returns regclass', 'hashtextextended(text, bigint) returns bigint', 'replace(text, text, text) returns text'] loop
					execute format('create function public.%s language plpgsql as %L', signature, body);
				end loop;
				foreach operand in array array['text', 'name', 'timestamptz', 'tid', 'oid', 'int2'] loop
					execute format('create function public.trap(%1$s, %1$s) returns boolean language plpgsql as %2$L', operand, body);
					execute format('create operator public.= (leftarg = %1$s, rightarg = %1$s, function = public.trap)', operand);
					execute format('create operator public.<= (leftarg = %1$s, rightarg = %1$s, function = public.trap)', operand);
				end loop;
				execute format('create function public.trap(timestamptz, interval) returns timestamptz language plpgsql as %L', body);
				create operator public.- (leftarg = timestamptz, rightarg = interval, function = public.trap);
				execute format('create function public.trap(bigint, interval) returns interval language plpgsql as %L', body);
				create operator public.* (leftarg = bigint, rightarg = interval, function = public.trap);
			end $do$`).ReadAll(); err != nil {
				t.Fatal(err)
			}
			at, err := url.Parse(d.url)
			if err != nil {
				t.Fatal(err)
			}
			options := at.Query()
			options.Set("search_path", "public,pg_catalog")
			at.RawQuery = options.Encode()
			d.url = at.String()
			store := opened(t, d)
			if err := begin(t, store, m1).Commit(t.Context(), []byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := store.MarkSent(t.Context(), []inbox.Key{m1}); err != nil {
				t.Error(err)
			}
			if tx, entry, err := store.Begin(t.Context(), m1, 0); tx != nil || err != nil || entry.Outgoing != nil {
				t.Errorf("%v, %v, %v", tx, entry, err)
			}
			if n, err := store.Remove(t.Context(), 0, 10); n != 1 || err != nil {
				t.Errorf("%d entries are removed, %v", n, err)
			}
		})
	}
}

// TestHostileRole_LockDoesNotPreventProvision: advisory locks need no right. Several processes that
// cannot have theirs create the table at the same moment.
func TestHostileRole_LockDoesNotPreventProvision(t *testing.T) {
	t.Parallel()
	for name, bySQL := range map[string]bool{"pgx": false, "database/sql": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, bySQL, "")
			if _, err := d.asHostileRole(t).Exec(t.Context(), `select pg_advisory_lock(hashtextextended('reprise inbox schema', 0))`); err != nil {
				t.Fatal(err)
			}
			store, err := d.open(postgres.Config{})
			if err != nil {
				t.Fatal(err)
			}
			const processes = 4
			errs := make(chan error)
			for range processes {
				go func() { errs <- store.Provision(t.Context()) }()
			}
			for range processes {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if err := store.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
