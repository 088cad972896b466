package sqlserver_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

// What endpoints of NServiceBus's PostgreSQL transport (versions 8 and 9) do to
// tables, as far as another program can tell: the columns that they create, write
// and read, with their types, conditions and order. $1 and so on are their
// parameters, %[1]s is the table.
const (
	theirQueue = `create table if not exists %[1]s (
	Id uuid not null primary key,
	Expires timestamp,
	Headers text not null,
	Body bytea,
	Seq serial not null unique)`
	// The time to be received is in milliseconds, or null.
	theirSend = `insert into %[1]s (Id, Expires, Headers, Body)
values ($1, (now() at time zone 'UTC') + ($2::int || ' ms')::interval, $3, $4)`
	// What was delayed is moved to the sender's input queue like this.
	theirMove    = `insert into %[1]s (id, expires, headers, body) select $1::uuid, null, $2::text, $3::bytea`
	theirReceive = `delete from %[1]s rs where rs.id = (select id from %[1]s order by Seq limit 1 for update skip locked)
returning rs.id::text, case when Expires is null then 0 when Expires > now() at time zone 'UTC' then 0 else 1 end, rs.Headers, rs.Body`
	theirPeek = `select coalesce(cast((select seq from %[1]s order by seq desc limit 1 for update skip locked)
	- (select seq from %[1]s order by seq asc limit 1 for update skip locked) + 1 as int), 0)::text`
	// An optional column that shows a text to operators.
	theirBodyText = `alter table %[1]s add BodyString text generated always as (encode(Body, 'escape')) stored`
)

// theirHeaders is as their serializer writes headers: a slash is escaped, and a
// header may be null.
const theirHeaders = `{"NServiceBus.MessageId":"b5f3a9a1-6a1d-4c8e-8f8e-b1d000d2d4c5",` +
	`"NServiceBus.MessageIntent":"Send",` +
	`"NServiceBus.ConversationId":"0d3a3a9c-45b1-4d2f-9b8f-b1d000d2d4c5",` +
	`"NServiceBus.ReplyToAddress":"\"public\".\"Sales.Web\"",` +
	`"NServiceBus.OriginatingEndpoint":"Sales.Web",` +
	`"$.diagnostics.originating.hostid":"6d0d6c2d1b8e4c5c8d0b1a2f3c4d5e6f",` +
	`"NServiceBus.ContentType":"application\/json",` +
	`"NServiceBus.EnclosedMessageTypes":"Sales.PlaceOrder, Sales.Messages, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",` +
	`"NServiceBus.RelatedTo":null,` +
	`"NServiceBus.TimeSent":"2026-08-21 10:11:12:345678 Z"}`

const theirMessageID = "b5f3a9a1-6a1d-4c8e-8f8e-b1d000d2d4c5"

// on puts a table into a statement of theirs.
func on(quotedTable, statement string) string {
	return strings.ReplaceAll(statement, "%[1]s", quotedTable)
}

// theirAddress reads an address as they do: a dot outside of quotes ends the
// schema, and a name loses its quotes if it has them.
func theirAddress(address string) (schema, table string) {
	quotes := 0
	for i := range len(address) {
		switch {
		case address[i] == '"':
			quotes++
		case address[i] == '.' && quotes%2 == 0:
			return theirUnquoted(address[:i]), theirUnquoted(address[i+1:])
		}
	}
	return "", theirUnquoted(address)
}

func theirUnquoted(name string) string {
	if len(name) < 2 || !strings.HasPrefix(name, `"`) || !strings.HasSuffix(name, `"`) {
		return name
	}
	return strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
}

// theirRow is a row that they receive.
type theirRow struct {
	id      string
	expired int
	headers map[string]string
	body    []byte
}

// receiveAsThey takes the first message as one of their endpoints does.
func (db *testDatabase) receiveAsThey(t *testing.T, quotedTable string) (row theirRow, ok bool) {
	t.Helper()
	var headers string
	err := db.pool.QueryRow(t.Context(), on(quotedTable, theirReceive)).Scan(&row.id, &row.expired, &headers, &row.body)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(headers), &row.headers); err != nil {
		t.Fatalf("headers %s: %v", headers, err)
	}
	return row, true
}

// inColumn returns headers as the column has them: they read U+FFFD for a NUL.
func inColumn(t *testing.T, headers map[string]string) (stored map[string]string) {
	t.Helper()
	if err := json.Unmarshal(dialect.AppendHeaders(nil, core.HeadersFromMap(headers)), &stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

// awaitAsThey is receiveAsThey for what is still to come.
func (db *testDatabase) awaitAsThey(t *testing.T, quotedTable string) (row theirRow) {
	t.Helper()
	await(t, "a message in "+quotedTable, func() (ok bool) {
		row, ok = db.receiveAsThey(t, quotedTable)
		return ok
	})
	return row
}

// theirTable creates a queue as they do, and returns how statements name it.
func (db *testDatabase) theirTable(t *testing.T, name string) string {
	t.Helper()
	db.exec(t, on(db.table(name), theirQueue))
	return db.table(name)
}
