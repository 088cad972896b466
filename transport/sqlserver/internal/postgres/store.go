package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// This file has the statements of tools, which look at messages, count them and take some of them
// by key. A look writes nothing, takes no lock on a row, and reads by the index on seq.

// Store is a table that has messages of a queue, as tools see it.
type Store struct {
	table dialect.Table
	// These are expressions on a row. The key of a row is its seq and this id, which together
	// name it also after the table was created anew.
	id, due, deliveries, claims, lastError string
	delayed                                string // whether the row is not due
	locked                                 string // whether a receiver has the row
	free                                   string // whether it can be taken, if it is not locked in the server
	sent                                   string // whether due is when the message was sent
	// A condition for all rows, whose one argument is the last of a statement; or neither.
	condition string
	argument  []any
}

// inWork is true for a row that a transaction in progress has removed, leased or locked. A snapshot
// of the server lists such transactions, and those from its xmax on have begun later or are in
// progress too. Of their numbers rows have the lower 32 bits. To compare them takes no lock.
const inWork = `(xmax operator(pg_catalog.<>) '0'::pg_catalog.xid and (
		xmax operator(pg_catalog.=) any(array(select x::pg_catalog.xid from pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot()) as x))
		or ((xmax::pg_catalog.text::bigint operator(pg_catalog.-) (select pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::bigint))
			operator(pg_catalog.&) 4294967295) operator(pg_catalog.<) 2147483648))`

// dueShown is a time that Go can read.
const dueShown = `least(` + dueRead + `, timestamp with time zone '9999-12-31 00:00:00+00')`

// OwnStore has the messages of a queue in a table that this package created.
func OwnStore(t dialect.Table) *Store {
	return &Store{
		table: t, id: "id::pg_catalog.text", due: dueShown, claims: "claims", lastError: "coalesce(last_error, '')",
		deliveries: "greatest(deliveries, 0)",
		delayed:    "(due operator(pg_catalog.>) pg_catalog.now())",
		locked:     "(not " + unleased + " or " + inWork + ")",
		free:       unleased,
		sent:       "due operator(pg_catalog.<=) pg_catalog.now()",
	}
}

// ForeignStore has the messages in a table that NServiceBus created.
func ForeignStore(t dialect.Table) *Store {
	return &Store{
		table: t, id: "id::pg_catalog.text", due: "timestamp with time zone 'epoch'", deliveries: "0", claims: "0", lastError: "''",
		delayed: "false", locked: inWork, free: "true", sent: "false",
	}
}

// DelayedStore has the messages that wait for a queue which NServiceBus created. They have no id
// before they are forwarded: a digest of the headers takes its place.
func DelayedStore(delayed, queue dialect.Table) *Store {
	return &Store{
		table: delayed, due: dueShown, deliveries: "0", claims: "0", lastError: "''",
		id:      "pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(headers, 'UTF8')), 'hex')",
		delayed: "true", locked: inWork, free: "true", sent: "false",
		condition: "destination operator(pg_catalog.=) ", argument: []any{queue.Address},
	}
}

// Looking returns the rights that a look needs.
func (s *Store) Looking() []dialect.Right {
	return append(Dialect{}.Seeing(s.table), dialect.RightsOn(s.table, "select")...)
}

// Taking returns the rights that are needed to take a message, beside those of its replacements.
func (s *Store) Taking() []dialect.Right {
	return append(Dialect{}.Seeing(s.table), Dialect{}.Receiving(s.table)...)
}

// statement returns a statement with a condition in the place of each mark, and its argument.
func (s *Store) statement(text string, args ...any) *sqlexec.Statement {
	condition := ""
	if s.condition != "" {
		condition = fmt.Sprintf(" and %s$%d", s.condition, len(args)+1)
	}
	return sqlexec.Command(strings.ReplaceAll(text, conditionMark, condition), append(slices.Clip(args), s.argument...)...)
}

// conditionMark stands for the condition of the rows in a statement.
const conditionMark = "\x00"

// Last returns a statement with the last seq, or NULL: there is no message.
func (s *Store) Last() *sqlexec.Statement {
	return s.statement(`select pg_catalog.max(seq)::bigint from ` + s.table.Quoted + ` where true` + conditionMark)
}

// Part is a part of a store: messages in the order of seq, as many as fit.
type Part struct {
	Limit    int64
	MaxBytes int64 // of headers, bodies and last errors; one message may exceed it
	WithBody bool

	From, To int64   // the first and the last seq
	Seqs     []int64 // or these, if it is not nil
}

// Read returns a statement that reads a part. It returns the columns of [dialect.Row], and those of
// [Seen].
//
// The sizes of all rows are read first: they are in the rows, even if the contents are stored
// outside them.
func (s *Store) Read(p Part) *sqlexec.Statement {
	rows, args := `seq operator(pg_catalog.>=) $4::bigint and seq operator(pg_catalog.<=) $5::bigint`, []any{p.Limit, p.MaxBytes, p.WithBody, p.From, p.To}
	if p.Seqs != nil {
		rows, args = `seq operator(pg_catalog.=) any($4::bigint[])`, []any{p.Limit, p.MaxBytes, p.WithBody, p.Seqs}
	}
	from := `from ` + s.table.Quoted + ` where ` + rows + conditionMark
	const fits = `n operator(pg_catalog.<=) $1::bigint and before operator(pg_catalog.<) $2::bigint`
	return s.statement(`with sizes as (
	select seq, pg_catalog.row_number() over ordered as n, (pg_catalog.sum(size) over ordered)::bigint operator(pg_catalog.-) size as before
	from (select seq, pg_catalog.octet_length(headers)::bigint operator(pg_catalog.+) pg_catalog.octet_length(`+s.lastError+`) operator(pg_catalog.+)
			case when $3::boolean then coalesce(pg_catalog.octet_length(body), 0) else 0 end as size
		`+from+` order by seq limit $1::bigint operator(pg_catalog.+) 1) as listed
	window ordered as (order by seq rows unbounded preceding)
), part as (
	select pg_catalog.max(seq) filter (where `+fits+`) as last, pg_catalog.count(*) filter (where not (`+fits+`)) as others from sizes
)
select `+s.id+`, seq::bigint, headers, case when $3 then coalesce(body, '') else '' end, `+s.due+`, `+s.deliveries+`, `+s.claims+`, '',
	`+untilExpiry+`, `+s.lastError+`,
	case when `+s.locked+` then 1 when `+s.delayed+` then 2 else 0 end, coalesce(pg_catalog.octet_length(body), 0), (select others operator(pg_catalog.>) 0 from part)
`+from+` and seq operator(pg_catalog.<=) (select last from part) order by seq`, args...)
}

// Seen is a row that was looked at.
type Seen struct {
	dialect.Row
	State     int // as those of core/queues: ready, locked, delayed
	BodyBytes int
	More      bool // the part has other rows, which did not fit
}

// Columns returns pointers to the fields, in the order of the statement's columns.
func (s *Seen) Columns() []any { return append(s.Row.Columns(), &s.State, &s.BodyBytes, &s.More) }

// Take returns a statement that removes messages by their seqs and ids, unless a receiver has them,
// and adds the messages that are sent instead of them. It returns a row (seq, removed) for each
// message that was there.
func (s *Store) Take(seqs []int64, ids []string, delayed *dialect.DelayedTexts, sends []Sent) *sqlexec.Statement {
	from := `from ` + s.table.Quoted + ` as m inner join unnest($1::bigint[], $2::pg_catalog.text[]) as named(number, digits)
		on seq operator(pg_catalog.=) number and ` + s.id + ` operator(pg_catalog.=) digits`
	if s.condition != "" {
		from += ` and ` + s.condition + `$3`
	}
	removal := `delete from ` + s.table.Quoted + ` where ctid operator(pg_catalog.=) any(array(
	select m.ctid ` + from + ` where ` + s.free + ` for update of m skip locked)) returning seq`
	return removeAndSend(removal, append([]any{seqs, ids}, s.argument...), delayed, sends,
		`select seq::bigint, seq operator(pg_catalog.=) any(array(select seq from removed)) `+from)
}

// Depth returns a statement with the numbers of ready, of locked and of delayed messages, and when
// the oldest message was sent, or NULL if that is not known. waiting is the store of the messages
// that wait for the queue in another table, or nil.
func (s *Store) Depth(waiting *Store) *sqlexec.Statement {
	others, args := `0`, []any(nil)
	if waiting != nil {
		others, args = `(select pg_catalog.count(*) from `+waiting.table.Quoted+` where `+waiting.condition+`$1)`, waiting.argument
	}
	return sqlexec.Command(`select pg_catalog.count(*) filter (where not `+s.locked+` and not `+s.delayed+`), pg_catalog.count(*) filter (where `+s.locked+`),
	pg_catalog.count(*) filter (where not `+s.locked+` and `+s.delayed+`) operator(pg_catalog.+) `+others+`, pg_catalog.min(case when `+s.sent+` then `+s.due+` end)
from `+s.table.Quoted, args...)
}

// Queues returns a statement with the address of each table in a schema that may be read and has the
// columns of a queue, of either maker.
func (Dialect) Queues(schema string) *sqlexec.Statement {
	var names, kinds []string
	wanted := Dialect{}.Wanted(dialect.Table{}, true)
	for _, c := range wanted {
		for kind := range strings.SplitSeq(c.Kind, " or ") {
			names, kinds = append(names, c.Name), append(kinds, kind)
		}
	}
	return sqlexec.Command(`select pg_catalog.concat('"', pg_catalog.replace(n.nspname, '"', '""'), '"."', pg_catalog.replace(c.relname, '"', '""'), '"')
from pg_catalog.pg_class as c inner join pg_catalog.pg_namespace as n on n.oid operator(pg_catalog.=) c.relnamespace
where n.nspname operator(pg_catalog.=) $1 and c.relkind operator(pg_catalog.=) any(array['r', 'p']::"char"[])
	and pg_catalog.has_schema_privilege(n.oid, 'usage') and pg_catalog.has_table_privilege(c.oid, 'select')
	and (select pg_catalog.count(*) from pg_catalog.pg_attribute as a
			inner join unnest($2::pg_catalog.text[], $3::pg_catalog.text[]) as w(name, kind) on a.attname operator(pg_catalog.=) w.name
				and a.atttypid operator(pg_catalog.=) w.kind::pg_catalog.regtype
		where a.attrelid operator(pg_catalog.=) c.oid and a.attnum operator(pg_catalog.>) 0 and not a.attisdropped)
		operator(pg_catalog.=) $4`,
		schema, names, kinds, len(wanted))
}
