package microsoft

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf16"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Dialect is the dialect of Microsoft SQL Server 2017 and later and of Azure SQL, in
// databases with the compatibility level 130 or higher (OPENJSON).
//
// It has never been run against a server. Its statements pass a T-SQL parser, the
// engine's reactions to the server's errors are tested with a fake driver, and statements
// here about the server are from its documentation.
type Dialect struct{}

// Product implements dialect.Dialect.
func (Dialect) Product() string { return "Microsoft SQL Server" }

// DefaultSchema implements dialect.Dialect.
func (Dialect) DefaultSchema() string { return "dbo" }

// Length counts UTF-16 code units, as nvarchar does.
func (Dialect) Length(text string) (n int) {
	for _, r := range text {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}

// nameUnits is the longest name (sysname), in UTF-16 code units.
const nameUnits = 128

// MaxName implements dialect.Dialect.
func (Dialect) MaxName() int { return nameUnits }

// Table parses a plain name, or an address as NServiceBus writes it:
// table@[schema]@[catalog]. The name of the table is never in brackets there and ends at
// the first @, so it cannot contain an @; the schema and the catalog may be without
// brackets.
func (Dialect) Table(queue string, in dialect.Location) (dialect.Table, error) {
	t := dialect.Table{Location: in}
	name, rest, qualified := strings.Cut(queue, "@")
	t.Name = name
	for _, part := range []*string{&t.Schema, &t.Catalog} {
		if !qualified {
			break
		}
		var text string
		var ok bool
		if text, rest, qualified, ok = addressPart(rest); !ok {
			return dialect.Table{}, transport.BadName("queue", queue, 0, "queue address %q is not of the form table@[schema]@[catalog]", queue)
		}
		if strings.TrimSpace(text) != "" { // as in NServiceBus
			*part = text
		}
	}
	switch {
	case qualified:
		return dialect.Table{}, transport.BadName("queue", queue, 0, "queue address %q has more parts than table@[schema]@[catalog]", queue)
	case strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]"):
		return dialect.Table{}, transport.BadName("queue", queue, 0, "queue %q: write the name of the table without brackets, as NServiceBus does", queue)
	case strings.HasPrefix(name, "#"):
		return dialect.Table{}, transport.BadName("queue", queue, 0, "queue %q: a table whose name begins with # is one of the session", queue)
	case name != "" && strings.TrimSpace(name) == "":
		return dialect.Table{}, transport.BadName("queue", queue, 0, "queue %q: the name of the table is blank", queue)
	}
	names := []string{t.Schema, t.Name}
	if t.Catalog != "" {
		names = []string{t.Catalog, t.Schema, t.Name}
	}
	for i, name := range names {
		if err := dialect.CheckName(queue, name, len(utf16.Encode([]rune(name))), nameUnits, "characters"); err != nil {
			return dialect.Table{}, err
		}
		names[i] = bracketed(name)
	}
	t.Quoted = strings.Join(names, ".")
	t.Address = t.Name + "@" + bracketed(t.Schema)
	if t.Catalog != "" {
		t.Address += "@" + bracketed(t.Catalog)
	}
	return t, nil
}

// addressPart splits off the schema or the catalog at the beginning of text. more says
// that another part follows.
func addressPart(text string) (part, rest string, more, ok bool) {
	if !strings.HasPrefix(text, "[") {
		part, rest, more = strings.Cut(text, "@")
		return part, rest, more, part != ""
	}
	var b strings.Builder
	for text = text[1:]; ; {
		inside, after, closed := strings.Cut(text, "]")
		if !closed {
			return "", "", false, false
		}
		b.WriteString(inside)
		if !strings.HasPrefix(after, "]") {
			part, text = b.String(), after
			break
		}
		b.WriteByte(']')
		text = after[1:]
	}
	if text == "" {
		return part, "", false, true
	}
	rest, more = strings.CutPrefix(text, "@")
	return part, rest, more, more
}

func bracketed(name string) string { return dialect.QuoteWith(name, "[", "]") }

// literal quotes a text.
func literal(text string) string { return "N" + dialect.QuoteWith(text, "'", "'") }

// List passes columns as one text, a JSON array with an array for each row, which
// openjson turns into a table. With a list of parameters each length would be another
// statement with another plan.
func (Dialect) List(columns ...any) []any {
	values := make([]reflect.Value, len(columns))
	for i, column := range columns {
		values[i] = reflect.ValueOf(column)
	}
	rows := make([][]any, values[0].Len())
	for i := range rows {
		for _, column := range values {
			rows[i] = append(rows[i], column.Index(i).Interface())
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		panic(fmt.Sprintf("sqlserver: a list of numbers and texts cannot be written as JSON: %v", err))
	}
	return []any{microsoftdriver.Text(string(text))}
}

// These are errors that the statements below raise.
const (
	NumberEnded  = 50901 // the transaction is no longer the message's
	NumberNested = 50902 // a handler has left a nested transaction open
	NumberLevel  = 50903 // the compatibility level is too low
	NumberLock   = 50904 // another session has the lock on the schema for too long
)

// Savepoint also records the identity of the transaction, before the handler gets it.
func (Dialect) Savepoint(name string) *sqlexec.Statement {
	text := `save transaction ` + name + `;`
	if name == dialect.BeforeHandler {
		text += `
declare @transaction bigint = current_transaction_id();
exec sys.sp_set_session_context @key = N'reprise transaction', @value = @transaction;`
	}
	return sqlexec.Command(text)
}

// RollbackTo also undoes transactions that a handler has begun and not committed: the
// server only counts these, and while the count is above 1 a commit only decrements it.
// The rollback removes the savepoint, so it is set again.
func (Dialect) RollbackTo(name string) *sqlexec.Statement {
	return sqlexec.Command(`rollback transaction ` + name + `;
while @@trancount > 1 commit transaction;
save transaction ` + name + `;`)
}

// Intact fails if the transaction has ended. The server ends it as the victim of a
// deadlock and after some errors, and a handler can end it (or a procedure that it
// calls); later statements would be executed and committed outside of any transaction.
// go-mssqldb detects that itself, but not if another transaction has been begun since.
func (Dialect) Intact() *sqlexec.Statement {
	return sqlexec.Command(fmt.Sprintf(`if xact_state() <> 1 or isnull(cast(session_context(N'reprise transaction') as bigint), 0) <> current_transaction_id()
	throw %d, N'the transaction of the message has ended: the server has rolled it back, or the handler has ended it', 1;
if @@trancount <> 1
	throw %d, N'the handler has left a transaction open that it began inside that of the message', 1;`, NumberEnded, NumberNested))
}
