package sqlserver

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// postgres is the dialect of PostgreSQL 13 and later.
type postgres struct{}

func (postgres) product() string       { return "PostgreSQL" }
func (postgres) defaultSchema() string { return "public" }

func (postgres) length(text string) int { return utf8.RuneCountInString(text) }

// postgresNameBytes is the longest name (NAMEDATALEN - 1). The server would truncate a
// longer one silently.
const postgresNameBytes = 63

// table parses a plain name, or an address as NServiceBus writes it: "schema"."name",
// each in double quotes.
func (postgres) table(queue string, in location) (table, error) {
	t := table{location: in, name: queue}
	if strings.HasPrefix(queue, `"`) {
		schema, rest, ok := quotedPart(queue)
		if ok && strings.HasPrefix(rest, `."`) {
			t.schema = schema
			schema, rest, ok = quotedPart(rest[1:])
		}
		if !ok || rest != "" {
			return table{}, fmt.Errorf(`queue address %q is not of the form "schema"."table"`, queue)
		}
		t.name = schema
	}
	for _, name := range []string{t.schema, t.name} {
		if err := checkName(name, len(name), postgresNameBytes, "bytes"); err != nil {
			return table{}, fmt.Errorf("queue %q: %w", queue, err)
		}
	}
	t.quoted = quoteWith(t.schema, `"`, `"`) + "." + quoteWith(t.name, `"`, `"`)
	t.address = t.quoted
	return t, nil
}

// quotedPart splits off the name in double quotes at the beginning of text.
func quotedPart(text string) (name, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] != '"' {
			b.WriteByte(text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == '"' {
			b.WriteByte('"')
			i++
			continue
		}
		return b.String(), text[i+1:], true
	}
	return "", "", false
}

// quoteWith quotes a name so that no part of it can end the quotation.
func quoteWith(name, open, end string) string {
	return open + strings.ReplaceAll(name, end, end+end) + end
}

// checkName checks the rules for names of tables that all products share.
func checkName(name string, length, most int, unit string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name is empty")
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not UTF-8", name)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("the name %q contains a NUL", name)
	case length > most:
		return fmt.Errorf("the name %q has %d %s, but the longest name of a table has %d", name, length, unit, most)
	}
	return nil
}

// available selects n messages that can be delivered now. It reads them from the index on
// (due, seq), in which delayed messages come after the range that is read. $1 is the
// lower bound of that range, so that entries of removed messages, which an old snapshot
// keeps, are not read again each time. The sub-select is evaluated once; a join, or IN,
// might be evaluated again and lock more than the limit.
const available = `ctid = any(array(
	select ctid from %s
	where due >= $1 and due <= now() and ` + unleased + `
	order by due, seq limit ` + limitMark + ` for update skip locked))`

// unleased is true for a row that no receiver has leased. A lease that ends later than
// any lease of this package (maxLease) does not count: no receiver would end it.
const unleased = `(leased_until is null or leased_until <= now() or leased_until > now() + interval '48 hours')`

// Every role that may write to the table can store any values in a row, so no value may
// make a statement fail, or keep the row's count from rising. A new lease needs a number
// that differs from the previous lease's: the lower claimBits are a counter, which wraps
// around; the others are the number of the process (4).
const (
	nextDelivery = `least(greatest(deliveries, 0), 2147483646) + 1`
	nextClaim    = `(($4::int << 15) | (((claims & 32767) + 1) & 32767))`
	// dueRead is a time that Go can read; -infinity is not.
	dueRead = `greatest(due, timestamptz '0001-01-01 00:00:00+00')`
)

// dueFrom is the parameter for a time from which to look for messages. The zero time is
// before all messages.
func dueFrom(from time.Time) pgtype.Timestamptz {
	if from.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: from, Valid: true}
}

// limitMark stands for the limit in a statement. No name of a table contains it
// (checkName).
const limitMark = "\x00"

// sized puts the limit into a statement.
func sized(text string, n int) string { return strings.Replace(text, limitMark, strconv.Itoa(n), 1) }

func (postgres) claim(t *queueTexts, n int, lease time.Duration, from time.Time, whole int64, number int32) *sqlexec.Statement {
	return sqlexec.Command(sized(t.claim, n), dueFrom(from), lease.Microseconds(), whole, number)
}

func (postgres) take(t *queueTexts, n int, from time.Time) *sqlexec.Statement {
	if n == 1 {
		return sqlexec.Command(t.takeOne, dueFrom(from))
	}
	return sqlexec.Command(sized(t.take, n), dueFrom(from))
}

func (postgres) takeForeign(t *queueTexts, n int) *sqlexec.Statement {
	if n == 1 {
		return sqlexec.Command(t.takeOneForeign)
	}
	return sqlexec.Command(sized(t.takeForeign, n))
}

// untilNext asks for the time until the next message is due. It ignores infinity, which
// has no such time, and messages that are further away than a day.
const untilNext = `select (extract(epoch from greatest(due, timestamptz '0001-01-01 00:00:00+00') - clock_timestamp()) * 1000000)::bigint
from (select min(due) as due from %s where due <= now() + interval '24 hours'%s) as first where due is not null`

// partial is true for a row whose contents a claim does not return. The sizes are in the
// row, even if the contents are stored outside it.
const partial = `octet_length(body) > $3 or octet_length(headers) > $3 or octet_length(last_error) > $3`

// orphaned is true for a leased row whose process is neither among the known ones (1) nor
// connected now.
const orphaned = `leased_until > now() and claims >> 15 > 0 and (claims >> 15)::bigint <> all($1::bigint[]) and (claims >> 15)::bigint <> all(array(` + heldNumbers + `))`

const microseconds = ` * interval '1 microsecond'`

// queue returns the statements for a queue's table. The columns that a claim changes are
// in no index, and half of each page is left empty (see createQueue): so the new version
// of the row stays in its page and no index has to be written (a HOT update).
func (postgres) queue(t table) *queueTexts {
	ready := fmt.Sprintf(available, t.quoted)
	// A leased row stays in the table, so columns that only GiveBack needs are not read.
	const record = `id::text, seq, headers, coalesce(body, ''), ` + dueRead + `, %s, claims, %s,
	coalesce(expires <= clock_timestamp() at time zone 'utc', false), coalesce(last_error, '')`
	const claimed = `id::text, seq, case when octet_length(headers) > $3 then '' else headers end, case when octet_length(body) > $3 then '' else coalesce(body, '') end,
	` + dueRead + `, deliveries, claims, '', coalesce(expires <= clock_timestamp() at time zone 'utc', false),
	case when octet_length(last_error) > $3 then '' else coalesce(last_error, '') end,
	case when ` + partial + ` then octet_length(headers)::bigint + coalesce(octet_length(body), 0) + coalesce(octet_length(last_error), 0) else 0 end`
	const settled = `m.seq = s.seq and m.claims = s.claims and m.leased_until > now() returning m.seq`
	texts := &queueTexts{
		table: t,
		claim: `update ` + t.quoted + ` set leased_until = clock_timestamp() + $2::bigint` + microseconds + `,
	claims = ` + nextClaim + `, deliveries = ` + nextDelivery + `
where ` + ready + `
returning ` + claimed,
		complete: `delete from ` + t.quoted + ` as m using unnest($1::bigint[], $2::int[]) as s(seq, claims) where ` + settled,
		abandon: `update ` + t.quoted + ` as m set leased_until = null, last_error = s.error
from unnest($1::bigint[], $2::int[], $3::text[]) as s(seq, claims, error) where ` + settled,
		release: `update ` + t.quoted + ` as m set leased_until = null, deliveries = greatest(deliveries, 1) - 1
from unnest($1::bigint[], $2::int[]) as s(seq, claims) where ` + settled,
		renew: `update ` + t.quoted + ` as m set leased_until = clock_timestamp() + $1::bigint` + microseconds + `
from unnest($2::bigint[], $3::int[]) as s(seq, claims) where ` + settled,
		leased: `select seq from ` + t.quoted + ` where seq = $1 and claims = $2 and leased_until > clock_timestamp()`,
		fence: `with removed as (delete from ` + t.quoted + ` where seq = $1 and claims = $2 and leased_until > clock_timestamp() returning seq)
select 1 / (select count(*) from removed)`,
		orphans: `update ` + t.quoted + ` set leased_until = null where ctid = any(array(
	select ctid from (select ctid, claims, leased_until from ` + t.quoted + ` where due <= now() order by due, seq limit ` + strconv.Itoa(headOfQueue) + `) as head
	where ` + orphaned + `)) and ` + orphaned + ` returning ` + dueRead,
		contents: `select m.seq, m.headers, coalesce(m.body, ''), coalesce(m.last_error, '')
from ` + t.quoted + ` as m, unnest($1::bigint[], $2::int[]) as s(seq, claims) where m.seq = s.seq and m.claims = s.claims`,
		begin: `update ` + t.quoted + ` as m set leased_until = clock_timestamp() + $1::bigint` + microseconds + `
from unnest($2::bigint[], $3::int[]) as s(seq, claims)
where m.seq = s.seq and m.claims = s.claims and m.leased_until is not null returning m.seq`,
		take:   `delete from ` + t.quoted + ` where ` + ready + ` returning ` + fmt.Sprintf(record, nextDelivery, "coalesce(expires::text, '')"),
		insert: `insert into ` + t.quoted + ` (id, headers, body) values (` + ownID + `, $1, $2)`,
		insertAll: `insert into ` + t.quoted + ` (id, headers, body)
select ` + ownID + `, h, b from unnest($1::text[], $2::bytea[]) as m(h, b)`,
		takeForeign: `delete from ` + t.quoted + ` where ctid = any(array(
	select ctid from ` + t.quoted + ` order by seq limit ` + limitMark + ` for update skip locked))
returning id::text, seq::bigint, headers, coalesce(body, ''), 'epoch'::timestamptz, 1, 1, coalesce(expires::text, ''),
	coalesce(expires <= clock_timestamp() at time zone 'utc', false), ''`,
		retakeForeign: `delete from ` + t.quoted + ` where ctid = any(array(
	select ctid from ` + t.quoted + ` where id = $1::text::uuid and seq = $2 for update skip locked))
returning seq::bigint`,
		purge: `delete from ` + t.quoted + ` where ctid = any(array(
	select ctid from ` + t.quoted + ` where due <= now() and ` + unleased + `
	order by due, seq limit ` + purgeLimit + ` for update skip locked))`,
		purgeForeign: `delete from ` + t.quoted + ` where ctid = any(array(
	select ctid from ` + t.quoted + ` order by seq limit ` + purgeLimit + ` for update skip locked))`,
		next:        fmt.Sprintf(untilNext, t.quoted, " and "+unleased),
		nextForeign: `select 0::bigint from ` + t.quoted + ` limit 1`,
	}
	texts.takeOne, texts.takeOneForeign = sized(texts.take, 1), sized(texts.takeForeign, 1)
	return texts
}

// Expires is in UTC without a time zone, as NServiceBus writes it. The clock is that of
// the moment, not of the beginning of the transaction, which may have been open for long.
const (
	expiresIn = `(clock_timestamp() + nullif(%s::bigint, 0)` + microseconds + `) at time zone 'utc'`
	dueIn     = `coalesce(clock_timestamp() + nullif(%s::bigint, 0)` + microseconds + `, now())`
)

func (postgres) insert(t *queueTexts, messages []newRow, _ bool) []*sqlexec.Statement {
	plain, delayed := true, false
	for i := range messages {
		delayed = delayed || messages[i].delay != 0
		plain = plain && messages[i].delay == 0 && messages[i].ttl == 0
	}
	into := `insert into ` + t.table.quoted
	m, several := &messages[0], len(messages) > 1
	switch {
	case plain && several:
		headers, bodies := columnsOf(messages)
		return []*sqlexec.Statement{sqlexec.Command(t.insertAll, headers, bodies)}
	case plain:
		return []*sqlexec.Statement{sqlexec.Command(t.insert, m.headers, m.body)}
	case !delayed && several: // NServiceBus may have created the table, whether that is known or not
		headers, bodies := columnsOf(messages)
		ttls, _ := durationsOf(messages)
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires) select `+ownID+`, h, b, `+fmt.Sprintf(expiresIn, "t")+`
from unnest($1::text[], $2::bytea[], $3::bigint[]) as m(h, b, t)`, headers, bodies, ttls)}
	case !delayed:
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires) values (`+ownID+`, $1, $2, `+fmt.Sprintf(expiresIn, "$3")+`)`,
			m.headers, m.body, roundUp(m.ttl).Microseconds())}
	case several:
		headers, bodies := columnsOf(messages)
		ttls, delays := durationsOf(messages)
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires, due) select `+ownID+`, h, b, `+fmt.Sprintf(expiresIn, "t")+`, `+fmt.Sprintf(dueIn, "d")+`
from unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[]) as m(h, b, t, d)`, headers, bodies, ttls, delays)}
	default:
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires, due) values (`+ownID+`, $1, $2, `+
			fmt.Sprintf(expiresIn, "$3")+`, `+fmt.Sprintf(dueIn, "$4")+`)`,
			m.headers, m.body, roundUp(m.ttl).Microseconds(), roundUp(m.delay).Microseconds())}
	}
}

// columnsOf returns the columns that every table has.
func columnsOf(messages []newRow) (headers []string, bodies [][]byte) {
	headers, bodies = make([]string, len(messages)), make([][]byte, len(messages))
	for i := range messages {
		headers[i], bodies[i] = messages[i].headers, messages[i].body
	}
	return headers, bodies
}

// durationsOf returns the times to live and the delays, in microseconds.
func durationsOf(messages []newRow) (ttls, delays []int64) {
	ttls, delays = make([]int64, len(messages)), make([]int64, len(messages))
	for i := range messages {
		ttls[i], delays[i] = roundUp(messages[i].ttl).Microseconds(), roundUp(messages[i].delay).Microseconds()
	}
	return ttls, delays
}

// roundUp rounds a duration up to whole microseconds. (The longest duration, 292 years,
// it rounds down.)
func roundUp(d time.Duration) time.Duration {
	if rest := d % time.Microsecond; rest != 0 {
		d = min(d, math.MaxInt64-time.Microsecond) + time.Microsecond - rest
	}
	return d.Truncate(time.Microsecond)
}

func (postgres) subscriptions(t table) *subscriptionTexts {
	return &subscriptionTexts{
		table:       t,
		subscribers: `select distinct queueaddress from ` + t.quoted + ` where topic = $1`,
		subscribed:  `select topic from ` + t.quoted + ` where endpoint = $1 and queueaddress = $2`,
		subscribe: `insert into ` + t.quoted + ` (queueaddress, endpoint, topic) values ($1, $2, $3)
on conflict (endpoint, topic) do update set queueaddress = excluded.queueaddress`,
		unsubscribe: `delete from ` + t.quoted + ` where endpoint = $1 and topic = $2`,
	}
}

func (postgres) delayed(t table) *delayedTexts {
	return &delayedTexts{
		table: t,
		take: `delete from ` + t.quoted + ` where ctid = any(array(
	select ctid from ` + t.quoted + ` where due <= now() order by due, seq limit $1 for update skip locked))
returning seq, destination, coalesce(expires::text, ''), headers, body, attempts`,
		forward: func(to table) string {
			return `insert into ` + to.quoted + ` (id, expires, headers, body) values (` + ownID + `, nullif($1::text, '')::timestamp, $2, $3)`
		},
		postpone: `update ` + t.quoted + ` set due = clock_timestamp() + $2::bigint` + microseconds + `,
	attempts = $5, last_error = $3 where seq = $1 and attempts = $4 returning seq`,
		remove: `delete from ` + t.quoted + ` where seq = $1 and attempts = $2 returning seq`,
		next:   fmt.Sprintf(untilNext, t.quoted, ""),
	}
}

func (postgres) insertDelayed(t *delayedTexts, messages []newRow) []*sqlexec.Statement {
	headers, bodies := columnsOf(messages)
	ttls, delays := durationsOf(messages)
	destinations := make([]string, len(messages))
	for i := range messages {
		destinations[i] = messages[i].destination
	}
	return []*sqlexec.Statement{sqlexec.Command(`insert into `+t.table.quoted+` (destination, headers, body, expires, due)
select a, h, b, `+fmt.Sprintf(expiresIn, "t")+`, `+fmt.Sprintf(dueIn, "d")+`
from unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[]) as m(a, h, b, t, d)`,
		destinations, headers, bodies, ttls, delays)}
}

// storable returns a text without NUL, which text columns cannot store.
func storable(text string) string { return strings.ReplaceAll(text, "\x00", "\uFFFD") }

// list passes slices as arrays.
func (postgres) list(columns ...any) []any { return columns }

func (postgres) savepoint(name string) *sqlexec.Statement {
	return sqlexec.Command(`savepoint ` + name)
}

func (postgres) rollbackTo(name string) *sqlexec.Statement {
	return sqlexec.Command(`rollback to savepoint ` + name)
}

// intact finds the violation of a deferred constraint while the savepoint can still undo
// it. At the commit the violation would cost the lock on the message.
func (postgres) intact() *sqlexec.Statement { return sqlexec.Command(`set constraints all immediate`) }
