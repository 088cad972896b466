package sqlserver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport/sqlserver"
)

// hostileDatabase is a database with the rights of PostgreSQL 14, in which every role may
// create objects in the schema public, and two roles that have nothing to do with each other.
// Its URL and pool are a superuser's.
type hostileDatabase struct {
	*testDatabase
	app, appURL   string // the role of the endpoints
	evil, evilURL string
}

func newHostileDatabase(t *testing.T) *hostileDatabase {
	t.Helper()
	db := &hostileDatabase{testDatabase: newDatabase(t)}
	db.url = server.URL(db.name)
	db.pool = poolOf(t, db.url)
	db.exec(t, `grant usage, create on schema public to public`)
	db.app, db.appURL = db.role(t)
	db.evil, db.evilURL = db.role(t)
	return db
}

// asEvil runs statements as the hostile role.
func (db *hostileDatabase) asEvil(t *testing.T, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.evilURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, text := range statements {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// traps are functions, operators, types and tables of the hostile role in public, by the names
// of those in pg_catalog: each with the same types, which a search_path with public before
// pg_catalog finds first, and operators for many other pairs of types, which match better than
// those of pg_catalog where a statement relies on a conversion. Each call counts, and fails.
const traps = `
create sequence public.trapped;
grant usage, select on sequence public.trapped to public;
do $do$ declare
	f record; l pg_catalog.text; r pg_catalog.text; o pg_catalog.text;
	body constant pg_catalog.text := $body$ begin
		perform pg_catalog.nextval('public.trapped');
		raise exception 'a function of the hostile role is called';
	end $body$;
begin
	for f in select p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid) as arguments, pg_catalog.format_type(p.prorettype, null) as result, p.proretset
		from pg_catalog.pg_proc as p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind in ('f', 'a') and p.proname = any('{now,clock_timestamp,octet_length,min,count,unnest,
			current_setting,set_config,pg_notify,pg_current_xact_id,pg_snapshot_xmax,pg_current_snapshot,pg_xact_status,pg_backend_pid,pg_postmaster_start_time,pg_try_advisory_lock,
			pg_advisory_xact_lock,hashtext,hashtextextended,gen_random_uuid,quote_ident,has_schema_privilege,has_sequence_privilege,has_table_privilege,has_any_column_privilege,
			format_type,to_regclass,format,concat,substr,encode,sha256,convert_to,replace,pg_has_role,pg_get_userbyid,timezone,date_part,extract,overlay,current_database}')
	loop
		begin
			execute pg_catalog.format('create function public.%I(%s) returns %s %s language plpgsql as %L', f.proname, f.arguments,
				case when f.proretset then 'setof' else '' end, f.result, body);
		exception when others then null; -- a pseudo-type that no function of a user may have
		end;
	end loop;
	create function public.replace(name, pg_catalog.text, pg_catalog.text) returns pg_catalog.text language plpgsql as $body$ begin perform pg_catalog.nextval('public.trapped'); raise exception 'trap'; end $body$;
	create function public.quote_ident(name) returns pg_catalog.text language plpgsql as $body$ begin perform pg_catalog.nextval('public.trapped'); raise exception 'trap'; end $body$;
	foreach l in array '{bool,int2,int4,int8,float8,numeric,text,varchar,name,char,oid,timestamptz,timestamp,interval,uuid,tid,bytea,xid8,_text,_int8}'::pg_catalog.text[] loop
		foreach r in array '{bool,int2,int4,int8,float8,numeric,text,varchar,name,char,oid,timestamptz,timestamp,interval,uuid,tid,bytea,xid8,_text,_int8}'::pg_catalog.text[] loop
			execute pg_catalog.format('create function public.trap(pg_catalog.%1$I, pg_catalog.%2$I) returns boolean language plpgsql as %3$L', l, r, body);
			execute pg_catalog.format('create function public.trap_left(pg_catalog.%1$I, pg_catalog.%2$I) returns pg_catalog.%1$I language plpgsql as %3$L', l, r, body);
			foreach o in array '{=,<>,<,>,<=,>=}'::pg_catalog.text[] loop
				execute pg_catalog.format('create operator public.%1$s (leftarg = pg_catalog.%2$I, rightarg = pg_catalog.%3$I, function = public.trap)', o, l, r);
			end loop;
			foreach o in array '{+,-,*,/,&,|,<<,>>,||}'::pg_catalog.text[] loop
				execute pg_catalog.format('create operator public.%1$s (leftarg = pg_catalog.%2$I, rightarg = pg_catalog.%3$I, function = public.trap_left)', o, l, r);
			end loop;
		end loop;
	end loop;
	foreach o in array '{pg_locks,pg_database,pg_class,pg_trigger,pg_proc,pg_attribute,pg_namespace,pg_depend,pg_roles}'::pg_catalog.text[] loop
		execute pg_catalog.format('create table public.%I ()', o);
		execute pg_catalog.format('grant select on public.%I to public', o);
	end loop;
	foreach o in array '{text,uuid,bytea,timestamptz,regclass,regproc,regprocedure,regrole,xid8,oid,trigger}'::pg_catalog.text[] loop
		execute pg_catalog.format('create type public.%I as (trap int)', o);
	end loop;
end $do$`

// trapsFound is the number of calls of the hostile role's functions.
func (db *hostileDatabase) trapsFound(t *testing.T) string {
	t.Helper()
	return db.column(t, `select case when is_called then last_value else 0 end::pg_catalog.text from public.trapped`)[0]
}

// tracer collects the texts of statements, and errors that say that a name was resolved
// differently.
type tracer struct {
	mu    sync.Mutex
	texts map[string]bool
	n     int
	errs  []error
}

// count is how many statements there were.
func (tr *tracer) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.n
}

func (tr *tracer) text(sql string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.texts[sql] = true
	tr.n++
}

func (tr *tracer) failed(err error) {
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.HasPrefix(server.Code, "42") && server.Code != "P0001" && server.Code != "2F005" {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.errs = append(tr.errs, err)
}

// TraceQueryStart implements pgx.QueryTracer.
func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.text(data.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (tr *tracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	tr.failed(data.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (tr *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		tr.text(q.SQL)
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (tr *tracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	tr.failed(data.Err)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (tr *tracer) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	tr.failed(data.Err)
}

// collected returns the texts and the errors.
func (tr *tracer) collected() (texts []string, errs []error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for text := range tr.texts {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts, slices.Clone(tr.errs)
}

// traced returns a pool of the endpoints' role whose statements are collected.
func (db *hostileDatabase) traced(t *testing.T, searchPath string) (*pgxpool.Pool, *tracer) {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.appURL)
	if err != nil {
		t.Fatal(err)
	}
	tr := &tracer{texts: map[string]bool{}}
	config.ConnConfig.Tracer = tr
	if searchPath != "" {
		config.ConnConfig.RuntimeParams["search_path"] = searchPath
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, tr
}

// asApp opens a transport of the endpoints' role.
func (db *hostileDatabase) asApp(t *testing.T) *sqlserver.Transport {
	t.Helper()
	return db.open(t, sqlserver.Config{URL: db.appURL})
}
