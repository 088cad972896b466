package microsoft

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// rowsAtOnce is how many messages one statement inserts at most. A statement has no
// more than 2,100 parameters.
const rowsAtOnce = 256

// Insert writes the columns that NServiceBus's tables have too, and Due only for messages
// with a delay, which are never for such tables.
func (Dialect) Insert(t *dialect.QueueTexts, messages []dialect.NewRow, _ bool) []*sqlexec.Statement {
	return inserts(t.Table, messages, false)
}

// InsertDelayed implements dialect.Dialect.
func (Dialect) InsertDelayed(t *dialect.DelayedTexts, messages []dialect.NewRow) []*sqlexec.Statement {
	return inserts(t.Table, messages, true)
}

// inserts adds messages with as few statements as possible.
func inserts(into dialect.Table, messages []dialect.NewRow, destinations bool) (all []*sqlexec.Statement) {
	for len(messages) > 0 {
		n := min(len(messages), rowsAtOnce)
		all = append(all, insertRows(into, messages[:n], destinations))
		messages = messages[n:]
	}
	return all
}

// field is a column of the inserted rows: the type of its parameters, their value for one
// message, and the inserted expression. The parameters and the columns of the list of
// values have the same names.
type field struct {
	name   string
	kind   string
	none   any // NULL of that type
	value  func(m *dialect.NewRow) any
	column string
	insert string
}

// insertRows inserts messages in their order. There is a statement for 1, 2, 4, and so on
// messages: unused rows are NULL. So there are few statements and few plans.
//
// For the same reason it calls sp_executesql itself. go-mssqldb would declare each
// parameter with the length of its value, and each length is another plan.
func insertRows(into dialect.Table, messages []dialect.NewRow, destinations bool) *sqlexec.Statement {
	fields := []field{
		{"h", "nvarchar(max)", sql.NullString{}, func(m *dialect.NewRow) any { return microsoftdriver.Text(m.Headers) }, "Headers", "m.h"},
		{"b", "varbinary(max)", []byte(nil), func(m *dialect.NewRow) any { return m.Body }, "Body", "m.b"},
	}
	expires, waits := false, destinations
	for i := range messages {
		expires = expires || messages[i].TTL > 0
		waits = waits || messages[i].Delay > 0
	}
	if expires {
		fields = append(fields, field{"t", "bigint", sql.NullInt64{}, lifetime, "Expires", expiry("m.t")})
	}
	if waits {
		fields = append(fields, field{"d", "bigint", sql.NullInt64{}, delay, "Due", after("m.d")})
	}
	if destinations {
		fields = append(fields, field{"a", "nvarchar(max)", sql.NullString{}, func(m *dialect.NewRow) any { return microsoftdriver.Text(m.Destination) }, "Destination", "m.a"})
	}
	var columns, selected, names []string
	if !destinations {
		columns, selected = []string{"Id", "Recoverable"}, []string{"newid()", "1"}
	}
	for _, f := range fields {
		columns, selected, names = append(columns, f.column), append(selected, f.insert), append(names, f.name)
	}
	room := 1
	for room < len(messages) {
		room *= 2
	}
	var rows, declared []string
	var args []any
	for i := range room {
		values := []string{fmt.Sprint(i)}
		for _, f := range fields {
			name := fmt.Sprint(f.name, i)
			values, declared = append(values, "@"+name), append(declared, "@"+name+" "+f.kind)
			value := f.none
			if i < len(messages) {
				value = f.value(&messages[i])
			}
			args = append(args, sql.Named(name, value))
		}
		rows = append(rows, "("+strings.Join(values, ", ")+")")
	}
	text := `insert into ` + into.Quoted + ` (` + strings.Join(columns, ", ") + `)
select ` + strings.Join(selected, ", ") + `
from (values
	` + strings.Join(rows, ",\n\t") + `
) as m (i, ` + strings.Join(names, ", ") + `)
where m.h is not null
order by m.i;`
	return sqlexec.Command("sp_executesql", append([]any{text, strings.Join(declared, ", ")}, args...)...)
}

// lifetime rounds down, but never to 0 for a message that expires.
func lifetime(m *dialect.NewRow) any { return max(m.TTL.Microseconds(), min(1, int64(m.TTL))) }

// delay rounds up.
func delay(m *dialect.NewRow) any {
	d := m.Delay.Microseconds()
	if m.Delay%time.Microsecond > 0 {
		d++
	}
	return d
}
