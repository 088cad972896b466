package postgres

import (
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Seeing implements dialect.Dialect.
func (Dialect) Seeing(t dialect.Table) []dialect.Right {
	return []dialect.Right{{Verb: "usage", On: dialect.OnSchema, Of: t}}
}

// Receiving implements dialect.Dialect: FOR UPDATE needs the right to update, even in modes that only delete.
func (Dialect) Receiving(t dialect.Table) []dialect.Right {
	return dialect.RightsOn(t, "select", "update", "delete")
}

// Sending implements dialect.Dialect.
func (Dialect) Sending(t dialect.Table, foreign bool) []dialect.Right {
	list := dialect.RightsOn(t, "insert")
	if foreign {
		list = append(list, dialect.Right{Verb: "usage", On: dialect.OnSequence, Of: t})
	}
	return list
}

// Grantable implements dialect.Dialect.
func (Dialect) Grantable(r dialect.Right) string {
	if r.On == dialect.OnSchema {
		return "schema " + dialect.QuoteWith(r.Of.Schema, `"`, `"`)
	}
	return r.Of.Quoted
}

// Missing looks tables up by their names in the catalogue, because to_regclass needs the
// right to use the schema. A right on columns counts like one on the table. A sequence of
// an identity column needs no right.
func (Dialect) Missing(needed []dialect.Right) *sqlexec.Statement {
	n := len(needed)
	verbs, ons, schemas, names := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i, r := range needed {
		verbs[i], ons[i], schemas[i], names[i] = r.Verb, string(r.On), r.Of.Schema, r.Of.Name
	}
	return sqlexec.Command(`select quote_ident(current_user), (n - 1)::int, coalesce(quote_ident(schema) || '.' || quote_ident(q.relname), '')
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) with ordinality as needed(verb, kind, schema, name, n)
	left join pg_namespace as s on s.nspname = schema
	left join pg_class as c on c.relnamespace = s.oid and c.relname = name
	left join pg_attribute as a on kind = 'sequence' and a.attrelid = c.oid and a.attname = 'seq'
	left join pg_depend as d on d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid and d.refobjsubid = a.attnum
		and d.classid = 'pg_class'::regclass and d.deptype = 'a'
	left join pg_class as q on q.oid = d.objid and q.relkind = 'S'
where not coalesce(case
	when kind = 'schema' then has_schema_privilege(s.oid, verb)
	when kind = 'sequence' then has_sequence_privilege(q.oid, 'usage, update')
	when verb = 'delete' then has_table_privilege(c.oid, verb)
	else has_any_column_privilege(c.oid, verb)
end, true)
order by n`, verbs, ons, schemas, names)
}
