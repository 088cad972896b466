package sqlserver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// completeAndSend returns the statement that removes leased messages of a queue and adds
// the messages that their handlers sent. A message whose lease is not valid is not
// removed, and its handler's messages are not sent. The statement returns the seq of
// removed messages.
func (postgres) completeAndSend(t *queueTexts, delayed *delayedTexts, orders []*settleRequest) *sqlexec.Statement {
	seqs, claims := make([]int64, len(orders)), make([]int32, len(orders))
	for i, o := range orders {
		seqs[i], claims[i] = o.leased.seq, int32(o.leased.claims)
	}
	args := []any{seqs, claims}
	var text strings.Builder
	text.WriteString(`with removed as (` + t.complete + `)`)
	for i, rows := range sentRows(orders) {
		headers, bodies := columnsOf(rows.messages)
		into, columns, values := rows.to.table.quoted, "id, headers, body", ownID+", h, b"
		types := []string{"bigint[]", "text[]", "bytea[]"}
		names := "of, h, b"
		added := []any{rows.of, headers, bodies}
		column := func(kind, name string, values any) {
			types, names, added = append(types, kind), names+", "+name, append(added, values)
		}
		ttls, delays := durationsOf(rows.messages)
		switch {
		case rows.waits:
			into, columns, values = delayed.table.quoted, "headers, body, destination, expires, due", "h, b, a, "+fmt.Sprintf(expiresIn, "t")+", "+fmt.Sprintf(dueIn, "d")
			destinations := make([]string, len(rows.messages))
			for at := range rows.messages {
				destinations[at] = rows.messages[at].destination
			}
			column("text[]", "a", destinations)
			column("bigint[]", "t", ttls)
			column("bigint[]", "d", delays)
		case slices.ContainsFunc(delays, isNotZero): // so the table has the column
			columns, values = columns+", expires, due", values+", "+fmt.Sprintf(expiresIn, "t")+", "+fmt.Sprintf(dueIn, "d")
			column("bigint[]", "t", ttls)
			column("bigint[]", "d", delays)
		case slices.ContainsFunc(ttls, isNotZero):
			columns, values = columns+", expires", values+", "+fmt.Sprintf(expiresIn, "t")
			column("bigint[]", "t", ttls)
		}
		for at := range types {
			types[at] = fmt.Sprintf("$%d::%s", len(args)+1+at, types[at])
		}
		args = append(args, added...)
		// In the order in which each handler has sent them.
		fmt.Fprintf(&text, ",\nsent%d as (insert into %s (%s) select %s\nfrom unnest(%s) with ordinality as m(%s, n) where of in (select seq from removed) order by n)",
			i, into, columns, values, strings.Join(types, ", "), names)
	}
	text.WriteString("\nselect seq from removed")
	return sqlexec.Command(text.String(), args...)
}

func isNotZero(n int64) bool { return n != 0 }

// rowsOfMany are the rows for one table that several messages' handlers sent.
type rowsOfMany struct {
	to       *queue
	waits    bool
	of       []int64 // the seq of the message whose handler sent it
	messages []newRow
}

// sentRows groups the rows by table. The order of the tables is always the same, so that
// there are few texts of statements, and so that two statements lock tables in the same
// order.
func sentRows(orders []*settleRequest) (all []*rowsOfMany) {
	for _, o := range orders {
		if o.sends == nil {
			continue
		}
		for _, p := range o.sends.batches {
			i := slices.IndexFunc(all, func(r *rowsOfMany) bool { return r.to == p.to && r.waits == p.waits || r.waits && p.waits })
			if i < 0 {
				i = len(all)
				all = append(all, &rowsOfMany{to: p.to, waits: p.waits})
			}
			for range p.messages {
				all[i].of = append(all[i].of, o.leased.seq)
			}
			all[i].messages = append(all[i].messages, p.messages...)
		}
	}
	slices.SortFunc(all, func(a, b *rowsOfMany) int {
		return cmp.Or(strings.Compare(a.to.table.quoted, b.to.table.quoted), boolCompare(a.waits, b.waits))
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
