package postgres

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Dialect is the dialect of PostgreSQL 13 and later.
type Dialect struct{}

// Product implements dialect.Dialect.
func (Dialect) Product() string { return "PostgreSQL" }

// DefaultSchema implements dialect.Dialect.
func (Dialect) DefaultSchema() string { return "public" }

// Length implements dialect.Dialect.
func (Dialect) Length(text string) int { return utf8.RuneCountInString(text) }

// nameBytes is the longest name (NAMEDATALEN - 1). The server would truncate a
// longer one silently.
const nameBytes = 63

// MaxName implements dialect.Dialect.
func (Dialect) MaxName() int { return nameBytes }

// Table parses a plain name, or an address as NServiceBus writes it: "schema"."name",
// each in double quotes.
func (Dialect) Table(queue string, in dialect.Location) (dialect.Table, error) {
	t := dialect.Table{Location: in, Name: queue}
	if strings.HasPrefix(queue, `"`) {
		schema, rest, ok := quotedPart(queue)
		if ok && strings.HasPrefix(rest, `."`) {
			t.Schema = schema
			schema, rest, ok = quotedPart(rest[1:])
		}
		if !ok || rest != "" {
			return dialect.Table{}, transport.BadName("queue", queue, 0, `queue address %q is not of the form "schema"."table"`, queue)
		}
		t.Name = schema
	}
	for _, name := range []string{t.Schema, t.Name} {
		if err := dialect.CheckName(queue, name, len(name), nameBytes, "bytes"); err != nil {
			return dialect.Table{}, err
		}
	}
	t.Quoted = dialect.QuoteWith(t.Schema, `"`, `"`) + "." + dialect.QuoteWith(t.Name, `"`, `"`)
	t.Address = t.Quoted
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
// that differs from the previous lease's: the lower ClaimBits are a counter, which wraps
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
// (dialect.CheckName).
const limitMark = "\x00"

// sized puts the limit into a statement.
func sized(text string, n int) string { return strings.Replace(text, limitMark, strconv.Itoa(n), 1) }

// Claim implements dialect.Dialect.
func (Dialect) Claim(t *dialect.QueueTexts, n int, lease time.Duration, from time.Time, whole int64, number int32) *sqlexec.Statement {
	return sqlexec.Command(sized(t.Claim, n), dueFrom(from), lease.Microseconds(), whole, number)
}

// Take implements dialect.Dialect.
func (Dialect) Take(t *dialect.QueueTexts, n int, from time.Time) *sqlexec.Statement {
	if n == 1 {
		return sqlexec.Command(t.TakeOne, dueFrom(from))
	}
	return sqlexec.Command(sized(t.Take, n), dueFrom(from))
}

// TakeForeign implements dialect.Dialect.
func (Dialect) TakeForeign(t *dialect.QueueTexts, n int) *sqlexec.Statement {
	if n == 1 {
		return sqlexec.Command(t.TakeOneForeign)
	}
	return sqlexec.Command(sized(t.TakeForeign, n))
}

// untilNext asks for the time until the next message is due. It ignores infinity, which
// has no such time, and messages that are further away than a day.
const untilNext = `select (extract(epoch from greatest(due, timestamptz '0001-01-01 00:00:00+00') - clock_timestamp()) * 1000000)::bigint
from (select min(due) as due from %s where due <= now() + interval '24 hours'%s) as first where due is not null`

// partial is true for a row whose contents a claim does not return. The sizes are in the
// row, even if the contents are stored outside it.
const partial = `octet_length(body) > $3 or octet_length(headers) > $3 or octet_length(last_error) > $3`

// PresenceClass is the first half of the key of the lock that the session of a process
// holds, "Repr" in ASCII. The second half is the number of the process.
const PresenceClass = 1382379634

// ClaimBits are the bits of a row's column claims that count its leases. The others
// are the number of the process that has leased it.
const ClaimBits = 15

// headOfQueue is how many messages from the first are searched for leases of processes
// that have died: leased messages are the oldest.
const headOfQueue = 20_000

// HeldNumbers are the numbers of processes whose session lives.
const HeldNumbers = `select objid::bigint from pg_locks where locktype = 'advisory' and classid = 1382379634 and objsubid = 2
	and granted and database = (select oid from pg_database where datname = current_database())`

// orphaned is true for a leased row whose process is neither among the known ones (1) nor
// connected now.
const orphaned = `leased_until > now() and claims >> 15 > 0 and (claims >> 15)::bigint <> all($1::bigint[]) and (claims >> 15)::bigint <> all(array(` + HeldNumbers + `))`

const microseconds = ` * interval '1 microsecond'`

// Queue returns the statements for a queue's table. The columns that a claim changes are
// in no index, and half of each page is left empty (see CreateQueue): so the new version
// of the row stays in its page and no index has to be written (a HOT update).
func (Dialect) Queue(t dialect.Table) *dialect.QueueTexts {
	ready := fmt.Sprintf(available, t.Quoted)
	// A leased row stays in the table, so columns that only GiveBack needs are not read.
	const record = `id::text, seq, headers, coalesce(body, ''), ` + dueRead + `, %s, claims, %s,
	coalesce(expires <= clock_timestamp() at time zone 'utc', false), coalesce(last_error, '')`
	const claimed = `id::text, seq, case when octet_length(headers) > $3 then '' else headers end, case when octet_length(body) > $3 then '' else coalesce(body, '') end,
	` + dueRead + `, deliveries, claims, '', coalesce(expires <= clock_timestamp() at time zone 'utc', false),
	case when octet_length(last_error) > $3 then '' else coalesce(last_error, '') end,
	case when ` + partial + ` then octet_length(headers)::bigint + coalesce(octet_length(body), 0) + coalesce(octet_length(last_error), 0) else 0 end`
	const settled = `m.seq = s.seq and m.claims = s.claims and m.leased_until > now() returning m.seq`
	texts := &dialect.QueueTexts{
		Table: t,
		Claim: `update ` + t.Quoted + ` set leased_until = clock_timestamp() + $2::bigint` + microseconds + `,
	claims = ` + nextClaim + `, deliveries = ` + nextDelivery + `
where ` + ready + `
returning ` + claimed,
		Complete: `delete from ` + t.Quoted + ` as m using unnest($1::bigint[], $2::int[]) as s(seq, claims) where ` + settled,
		Abandon: `update ` + t.Quoted + ` as m set leased_until = null, last_error = s.error
from unnest($1::bigint[], $2::int[], $3::text[]) as s(seq, claims, error) where ` + settled,
		Release: `update ` + t.Quoted + ` as m set leased_until = null, deliveries = greatest(deliveries, 1) - 1
from unnest($1::bigint[], $2::int[]) as s(seq, claims) where ` + settled,
		Renew: `update ` + t.Quoted + ` as m set leased_until = clock_timestamp() + $1::bigint` + microseconds + `
from unnest($2::bigint[], $3::int[]) as s(seq, claims) where ` + settled,
		Leased: `select seq from ` + t.Quoted + ` where seq = $1 and claims = $2 and leased_until > clock_timestamp()`,
		Fence: `with removed as (delete from ` + t.Quoted + ` where seq = $1 and claims = $2 and leased_until > clock_timestamp() returning seq)
select 1 / (select count(*) from removed)`,
		Orphans: `update ` + t.Quoted + ` set leased_until = null where ctid = any(array(
	select ctid from (select ctid, claims, leased_until from ` + t.Quoted + ` where due <= now() order by due, seq limit ` + strconv.Itoa(headOfQueue) + `) as head
	where ` + orphaned + `)) and ` + orphaned + ` returning ` + dueRead,
		Contents: `select m.seq, m.headers, coalesce(m.body, ''), coalesce(m.last_error, '')
from ` + t.Quoted + ` as m, unnest($1::bigint[], $2::int[]) as s(seq, claims) where m.seq = s.seq and m.claims = s.claims`,
		Begin: `update ` + t.Quoted + ` as m set leased_until = clock_timestamp() + $1::bigint` + microseconds + `
from unnest($2::bigint[], $3::int[]) as s(seq, claims)
where m.seq = s.seq and m.claims = s.claims and m.leased_until is not null returning m.seq`,
		Take:   `delete from ` + t.Quoted + ` where ` + ready + ` returning ` + fmt.Sprintf(record, nextDelivery, "coalesce(expires::text, '')"),
		Insert: `insert into ` + t.Quoted + ` (id, headers, body) values (` + ownID + `, $1, $2)`,
		InsertAll: `insert into ` + t.Quoted + ` (id, headers, body)
select ` + ownID + `, h, b from unnest($1::text[], $2::bytea[]) as m(h, b)`,
		TakeForeign: `delete from ` + t.Quoted + ` where ctid = any(array(
	select ctid from ` + t.Quoted + ` order by seq limit ` + limitMark + ` for update skip locked))
returning id::text, seq::bigint, headers, coalesce(body, ''), 'epoch'::timestamptz, 1, 1, coalesce(expires::text, ''),
	coalesce(expires <= clock_timestamp() at time zone 'utc', false), ''`,
		RetakeForeign: `delete from ` + t.Quoted + ` where ctid = any(array(
	select ctid from ` + t.Quoted + ` where id = $1::text::uuid and seq = $2 for update skip locked))
returning seq::bigint`,
		Purge: `delete from ` + t.Quoted + ` where ctid = any(array(
	select ctid from ` + t.Quoted + ` where due <= now() and ` + unleased + `
	order by due, seq limit ` + dialect.PurgeLimit + ` for update skip locked))`,
		PurgeForeign: `delete from ` + t.Quoted + ` where ctid = any(array(
	select ctid from ` + t.Quoted + ` order by seq limit ` + dialect.PurgeLimit + ` for update skip locked))`,
		Next:        fmt.Sprintf(untilNext, t.Quoted, " and "+unleased),
		NextForeign: `select 0::bigint from ` + t.Quoted + ` limit 1`,
	}
	texts.TakeOne, texts.TakeOneForeign = sized(texts.Take, 1), sized(texts.TakeForeign, 1)
	return texts
}

// Expires is in UTC without a time zone, as NServiceBus writes it. The clock is that of
// the moment, not of the beginning of the transaction, which may have been open for long.
const (
	expiresIn = `(clock_timestamp() + nullif(%s::bigint, 0)` + microseconds + `) at time zone 'utc'`
	dueIn     = `coalesce(clock_timestamp() + nullif(%s::bigint, 0)` + microseconds + `, now())`
)

// Insert implements dialect.Dialect.
func (Dialect) Insert(t *dialect.QueueTexts, messages []dialect.NewRow, _ bool) []*sqlexec.Statement {
	plain, delayed := true, false
	for i := range messages {
		delayed = delayed || messages[i].Delay != 0
		plain = plain && messages[i].Delay == 0 && messages[i].TTL == 0
	}
	into := `insert into ` + t.Table.Quoted
	m, several := &messages[0], len(messages) > 1
	switch {
	case plain && several:
		headers, bodies := columnsOf(messages)
		return []*sqlexec.Statement{sqlexec.Command(t.InsertAll, headers, bodies)}
	case plain:
		return []*sqlexec.Statement{sqlexec.Command(t.Insert, m.Headers, m.Body)}
	case !delayed && several: // NServiceBus may have created the table, whether that is known or not
		headers, bodies := columnsOf(messages)
		ttls, _ := durationsOf(messages)
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires) select `+ownID+`, h, b, `+fmt.Sprintf(expiresIn, "t")+`
from unnest($1::text[], $2::bytea[], $3::bigint[]) as m(h, b, t)`, headers, bodies, ttls)}
	case !delayed:
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires) values (`+ownID+`, $1, $2, `+fmt.Sprintf(expiresIn, "$3")+`)`,
			m.Headers, m.Body, roundUp(m.TTL).Microseconds())}
	case several:
		headers, bodies := columnsOf(messages)
		ttls, delays := durationsOf(messages)
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires, due) select `+ownID+`, h, b, `+fmt.Sprintf(expiresIn, "t")+`, `+fmt.Sprintf(dueIn, "d")+`
from unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[]) as m(h, b, t, d)`, headers, bodies, ttls, delays)}
	default:
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires, due) values (`+ownID+`, $1, $2, `+
			fmt.Sprintf(expiresIn, "$3")+`, `+fmt.Sprintf(dueIn, "$4")+`)`,
			m.Headers, m.Body, roundUp(m.TTL).Microseconds(), roundUp(m.Delay).Microseconds())}
	}
}

// columnsOf returns the columns that every table has.
func columnsOf(messages []dialect.NewRow) (headers []string, bodies [][]byte) {
	headers, bodies = make([]string, len(messages)), make([][]byte, len(messages))
	for i := range messages {
		headers[i], bodies[i] = messages[i].Headers, messages[i].Body
	}
	return headers, bodies
}

// durationsOf returns the times to live and the delays, in microseconds.
func durationsOf(messages []dialect.NewRow) (ttls, delays []int64) {
	ttls, delays = make([]int64, len(messages)), make([]int64, len(messages))
	for i := range messages {
		ttls[i], delays[i] = roundUp(messages[i].TTL).Microseconds(), roundUp(messages[i].Delay).Microseconds()
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

// Subscriptions implements dialect.Dialect.
func (Dialect) Subscriptions(t dialect.Table) *dialect.SubscriptionTexts {
	return &dialect.SubscriptionTexts{
		Table:       t,
		Subscribers: `select distinct queueaddress from ` + t.Quoted + ` where topic = $1`,
		IsCurrent:   `select (current_setting('transaction_isolation') in ('read committed', 'read uncommitted'))::int::bigint`,
		Subscribed:  `select topic from ` + t.Quoted + ` where endpoint = $1 and queueaddress = $2`,
		Subscribe: `insert into ` + t.Quoted + ` (queueaddress, endpoint, topic) values ($1, $2, $3)
on conflict (endpoint, topic) do update set queueaddress = excluded.queueaddress`,
		Unsubscribe: `delete from ` + t.Quoted + ` where endpoint = $1 and topic = $2`,
		RemoveQueue: `delete from ` + t.Quoted + ` where queueaddress = $1 returning topic`,
		RemoveTopic: `delete from ` + t.Quoted + ` where topic = $1`,
	}
}

// Delayed implements dialect.Dialect.
func (Dialect) Delayed(t dialect.Table) *dialect.DelayedTexts {
	return &dialect.DelayedTexts{
		Table: t,
		Take: `delete from ` + t.Quoted + ` where ctid = any(array(
	select ctid from ` + t.Quoted + ` where due <= now() order by due, seq limit $1 for update skip locked))
returning seq, destination, coalesce(expires::text, ''), headers, body, attempts`,
		Forward: func(to dialect.Table) string {
			return `insert into ` + to.Quoted + ` (id, expires, headers, body) values (` + ownID + `, nullif($1::text, '')::timestamp, $2, $3)`
		},
		Postpone: `update ` + t.Quoted + ` set due = clock_timestamp() + $2::bigint` + microseconds + `,
	attempts = $5, last_error = $3 where seq = $1 and attempts = $4 returning seq`,
		Remove:      `delete from ` + t.Quoted + ` where seq = $1 and attempts = $2 returning seq`,
		RemoveQueue: `delete from ` + t.Quoted + ` where destination = $1`,
		Next:        fmt.Sprintf(untilNext, t.Quoted, ""),
	}
}

// InsertDelayed implements dialect.Dialect.
func (Dialect) InsertDelayed(t *dialect.DelayedTexts, messages []dialect.NewRow) []*sqlexec.Statement {
	headers, bodies := columnsOf(messages)
	ttls, delays := durationsOf(messages)
	destinations := make([]string, len(messages))
	for i := range messages {
		destinations[i] = messages[i].Destination
	}
	return []*sqlexec.Statement{sqlexec.Command(`insert into `+t.Table.Quoted+` (destination, headers, body, expires, due)
select a, h, b, `+fmt.Sprintf(expiresIn, "t")+`, `+fmt.Sprintf(dueIn, "d")+`
from unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[]) as m(a, h, b, t, d)`,
		destinations, headers, bodies, ttls, delays)}
}

// List passes slices as arrays.
func (Dialect) List(columns ...any) []any { return columns }

// Savepoint implements dialect.Dialect.
func (Dialect) Savepoint(name string) *sqlexec.Statement {
	return sqlexec.Command(`savepoint ` + name)
}

// RollbackTo implements dialect.Dialect.
func (Dialect) RollbackTo(name string) *sqlexec.Statement {
	return sqlexec.Command(`rollback to savepoint ` + name)
}

// Intact finds the violation of a deferred constraint while the savepoint can still undo
// it. At the commit the violation would cost the lock on the message.
func (Dialect) Intact() *sqlexec.Statement { return sqlexec.Command(`set constraints all immediate`) }
