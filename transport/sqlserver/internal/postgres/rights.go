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
	return sqlexec.Command(`select pg_catalog.quote_ident(current_user), (n operator(pg_catalog.-) 1)::int,
	coalesce(pg_catalog.quote_ident(schema) operator(pg_catalog.||) '.' operator(pg_catalog.||) pg_catalog.quote_ident(q.relname), '')
from unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.text[], $4::pg_catalog.text[]) with ordinality as needed(verb, kind, schema, relation, n)
	left join pg_catalog.pg_namespace as s on s.nspname operator(pg_catalog.=) schema
	left join pg_catalog.pg_class as c on c.relnamespace operator(pg_catalog.=) s.oid and c.relname operator(pg_catalog.=) relation
	left join pg_catalog.pg_attribute as a on kind operator(pg_catalog.=) 'sequence' and a.attrelid operator(pg_catalog.=) c.oid and a.attname operator(pg_catalog.=) 'seq'
	left join pg_catalog.pg_depend as d on d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid operator(pg_catalog.=) c.oid
		and d.refobjsubid operator(pg_catalog.=) a.attnum and d.classid operator(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass and d.deptype operator(pg_catalog.=) 'a'
	left join pg_catalog.pg_class as q on q.oid operator(pg_catalog.=) d.objid and q.relkind operator(pg_catalog.=) 'S'
where not coalesce(case
	when kind operator(pg_catalog.=) 'schema' then pg_catalog.has_schema_privilege(s.oid, verb)
	when kind operator(pg_catalog.=) 'sequence' then pg_catalog.has_sequence_privilege(q.oid, 'usage, update')
	when verb operator(pg_catalog.=) 'delete' then pg_catalog.has_table_privilege(c.oid, verb)
	else pg_catalog.has_any_column_privilege(c.oid, verb)
end, true)
order by n`, verbs, ons, schemas, names)
}
