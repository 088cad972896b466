package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// CompleteAndSend returns the statement that removes leased messages of a queue, by their
// seqs and the claims of their leases, and adds the messages that their handlers sent. A
// message whose lease is not valid is not removed, and its handler's messages are not sent.
// The statement returns the seq of removed messages.
func CompleteAndSend(t *dialect.QueueTexts, delayed *dialect.DelayedTexts, seqs []int64, claims []int32, sends []Sent) *sqlexec.Statement {
	return removeAndSend(t.Complete, []any{seqs, claims}, delayed, sends, `select seq from removed`)
}

// removeAndSend returns a statement that removes rows, of which removal returns the seq, and adds the
// messages that are sent for them. result is the final query, which reads removed.
func removeAndSend(removal string, args []any, delayed *dialect.DelayedTexts, sends []Sent, result string) *sqlexec.Statement {
	var text strings.Builder
	text.WriteString(`with removed as (` + removal + `)`)
	for i, rows := range sentRows(sends) {
		headers, bodies := columnsOf(rows.messages)
		into, columns, values := rows.to.Table.Quoted, "id, headers, body", ownID+", h, b"
		types := []string{"bigint[]", "pg_catalog.text[]", "pg_catalog.bytea[]"}
		names := "of, h, b"
		added := []any{rows.handledSeqs, headers, bodies}
		column := func(kind, name string, values any) {
			types, names, added = append(types, kind), names+", "+name, append(added, values)
		}
		ttls, delays := durationsOf(rows.messages)
		switch {
		case rows.waits:
			into, columns, values = delayed.Table.Quoted, "headers, body, destination, expires, due", "h, b, a, "+expiresIn("t")+", "+dueIn("d")
			destinations := make([]string, len(rows.messages))
			for at := range rows.messages {
				destinations[at] = rows.messages[at].Destination
			}
			column("pg_catalog.text[]", "a", destinations)
			column("bigint[]", "t", ttls)
			column("bigint[]", "d", delays)
		case slices.ContainsFunc(delays, isNotZero): // so the table has the column
			columns, values = columns+", expires, due", values+", "+expiresIn("t")+", "+dueIn("d")
			column("bigint[]", "t", ttls)
			column("bigint[]", "d", delays)
		case slices.ContainsFunc(ttls, isNotZero):
			columns, values = columns+", expires", values+", "+expiresIn("t")
			column("bigint[]", "t", ttls)
		}
		for at := range types {
			types[at] = fmt.Sprintf("$%d::%s", len(args)+1+at, types[at])
		}
		args = append(args, added...)
		// In the order in which each handler has sent them.
		fmt.Fprintf(&text, ",\nsent%d as (insert into %s (%s) select %s\nfrom unnest(%s) with ordinality as m(%s, n) where of operator(pg_catalog.=) any(select seq from removed) order by n)",
			i, into, columns, values, strings.Join(types, ", "), names)
	}
	text.WriteString("\n" + result)
	return sqlexec.Command(text.String(), args...)
}

func isNotZero(n int64) bool { return n != 0 }

// Sent are the rows for one table that are sent when one message is removed.
type Sent struct {
	Of       int64 // the seq of that message
	To       *dialect.QueueTexts
	Waits    bool // in the table of delayed messages
	Messages []dialect.NewRow
}

// rowsOfMany are the rows for one table that several messages' handlers sent.
type rowsOfMany struct {
	to          *dialect.QueueTexts
	waits       bool
	handledSeqs []int64 // the seq of the message whose handler sent it
	messages    []dialect.NewRow
}

// sentRows groups the rows by table. The order of the tables is always the same, so that
// there are few texts of statements, and so that two statements lock tables in the same
// order.
func sentRows(sends []Sent) (all []*rowsOfMany) {
	for _, s := range sends {
		i := slices.IndexFunc(all, func(r *rowsOfMany) bool { return r.to == s.To && r.waits == s.Waits || r.waits && s.Waits })
		if i < 0 {
			i = len(all)
			all = append(all, &rowsOfMany{to: s.To, waits: s.Waits})
		}
		for range s.Messages {
			all[i].handledSeqs = append(all[i].handledSeqs, s.Of)
		}
		all[i].messages = append(all[i].messages, s.Messages...)
	}
	slices.SortFunc(all, func(a, b *rowsOfMany) int {
		return cmp.Or(strings.Compare(a.to.Table.Quoted, b.to.Table.Quoted), boolCompare(a.waits, b.waits))
	})
	return all
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
