package postgres_test

import (
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

func TestUnqualifiedNames(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`select 1 where a = b`, `select a||b`, `select - a`, `select a * b`, `select now()`, `select x, f(y)`, `select a::text`, `select a::pg_catalog.text[] || b`,
		`select 1 from pg_class`, `select x from y where a in (select b from c)`, `select nullif(a, b)`, `select case a when b then c end`, `select a is distinct from b`,
		`create table "s"."q" (id uuid)`, `create table "s"."q" (a varchar(200) collate "C")`, `update "s"."q" set a = b where c = d`,
		`update "s"."q" set a = (b = c)`, `select a between b and c`, `do $x$ begin perform f(); end $x$`, `select timestamptz '-infinity'`, `select a operator(public.=) b`, `select a from unnest($1::bigint[]) as a`,
	} {
		if len(postgres.UnqualifiedNames(text)) == 0 {
			t.Errorf("%s passes", text)
		}
	}
	for _, text := range []string{
		`select 1`, `select * from "public"."q"`, `select pg_catalog.now()`, `select a operator(pg_catalog.=) any(array(select b from c))`, `select a::bigint, b::pg_catalog.text[]`,
		`update "s"."q" as m set a = null, b = s.b from unnest($1::bigint[], $2::int[]) as s(a, b) where m.a operator(pg_catalog.=) s.a`,
		`insert into "s"."q" (a, b) values ($1, overlay(a placing 'x' from 1)) on conflict (a, b) do update set a = excluded.a`,
		`select pg_catalog.count(*), distinct_a from "s"."q"`, `select distinct a from "s"."q"`, `select pg_catalog.count(*) filter (where a) from "s"."q"`, `create table "s"."q" (a integer default 0, unique (a)) with (fillfactor = 50, x = -1)`,
		`select coalesce(extract(epoch from a), 0), interval '1 s', timestamp with time zone 'x', a at time zone 'utc'`, `select 'a = b()', "a = b()" from "s"."q" -- a = b()`,
	} {
		if found := postgres.UnqualifiedNames(text); len(found) > 0 {
			t.Errorf("%s is refused: %q", text, found)
		}
	}
}
