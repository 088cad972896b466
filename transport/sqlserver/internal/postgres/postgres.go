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
const available = `ctid operator(pg_catalog.=) any(array(
	select ctid from %s
	where due operator(pg_catalog.>=) $1 and due operator(pg_catalog.<=) pg_catalog.now() and ` + unleased + `
	order by due, seq limit ` + limitMark + ` for update skip locked))`

// unleased is true for a row that no receiver has leased. A lease that ends later than
// any lease of this package (maxLease) does not count: no receiver would end it.
const unleased = `(leased_until is null or leased_until operator(pg_catalog.<=) pg_catalog.now()
		or leased_until operator(pg_catalog.>) (pg_catalog.now() operator(pg_catalog.+) interval '48 hours'))`

// Every role that may write to the table can store any values in a row, so no value may
// make a statement fail, or keep the row's count from rising. A new lease needs a number
// that differs from the previous lease's: the lower claimBits are a counter, which wraps
// around; the others are the number of the process (4).
const (
	nextDelivery = `least(greatest(deliveries, 0), 2147483646) operator(pg_catalog.+) 1`
	nextClaim    = `(($4::int operator(pg_catalog.<<) 15) operator(pg_catalog.|)
		(((claims operator(pg_catalog.&) 32767) operator(pg_catalog.+) 1) operator(pg_catalog.&) 32767))`
	// dueRead is a time that Go can read; -infinity is not.
	dueRead = `greatest(due, timestamp with time zone '0001-01-01 00:00:00+00')`
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

// Except implements dialect.Dialect. No name follows the order of the rows.
func (Dialect) Except(s *sqlexec.Statement, seqs []int64) {
	if len(seqs) == 0 {
		return
	}
	list := make([]string, len(seqs))
	for i, seq := range seqs {
		list[i] = strconv.FormatInt(seq, 10)
	}
	at := strings.LastIndex(s.SQL, "order by")
	s.SQL = s.SQL[:at] + `and seq operator(pg_catalog.<>) all('{` + strings.Join(list, ",") + `}'::bigint[]) ` + s.SQL[at:]
}

// First implements dialect.Dialect.
func (Dialect) First(t *dialect.QueueTexts, foreign bool) *sqlexec.Statement {
	if foreign {
		return sqlexec.Command(t.FirstForeign)
	}
	return sqlexec.Command(t.First, dueFrom(time.Time{}))
}

// untilNext asks for the time until the next message is due. It ignores infinity, which
// has no such time, and messages that are further away than a day.
const untilNext = `select (extract(epoch from ` + dueRead + ` operator(pg_catalog.-) pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint
from (select pg_catalog.min(due) as due from %s where due operator(pg_catalog.<=) (pg_catalog.now() operator(pg_catalog.+) interval '24 hours')%s) as first where due is not null`

// partial is true for a row whose contents a claim does not return. The sizes are in the
// row, even if the contents are stored outside it.
const partial = `pg_catalog.octet_length(body) operator(pg_catalog.>) $3 or pg_catalog.octet_length(headers) operator(pg_catalog.>) $3
		or pg_catalog.octet_length(last_error) operator(pg_catalog.>) $3`

// PresenceClass is the first half of the key of the lock that the session of a process
// holds, "Repr" in ASCII. The second half is the number of the process.
const PresenceClass = 1382379634

// claimBits are the bits of a row's column claims that count its leases. The others
// are the number of the process that has leased it.
const claimBits = 15

// Leases returns how many leases a row had, by its column claims, which wraps around.
func Leases(claims int) int { return claims & (1<<claimBits - 1) }

// headOfQueue is how many messages from the first are searched for leases of processes
// that have died: leased messages are the oldest.
const headOfQueue = 20_000

// HeldNumbers are the numbers of processes whose session lives.
const HeldNumbers = `select objid::bigint from pg_catalog.pg_locks where locktype operator(pg_catalog.=) 'advisory'
	and classid operator(pg_catalog.=) 1382379634 and objsubid operator(pg_catalog.=) 2 and granted
	and database operator(pg_catalog.=) (select oid from pg_catalog.pg_database where datname operator(pg_catalog.=) pg_catalog.current_database())`

// orphaned is true for a leased row whose process is neither among the known ones (1) nor
// connected now.
const orphaned = `leased_until operator(pg_catalog.>) pg_catalog.now() and (claims operator(pg_catalog.>>) 15) operator(pg_catalog.>) 0
	and (claims operator(pg_catalog.>>) 15)::bigint operator(pg_catalog.<>) all($1::bigint[])
	and (claims operator(pg_catalog.>>) 15)::bigint operator(pg_catalog.<>) all(array(` + HeldNumbers + `))`

// after is the time after a number of microseconds. The clock is that of the moment, not of
// the beginning of the transaction, which may have been open for long.
func after(microseconds string) string {
	return `pg_catalog.clock_timestamp() operator(pg_catalog.+) (` + microseconds + ` operator(pg_catalog.*) interval '1 microsecond')`
}

// Queue returns the statements for a queue's table. The columns that a claim changes are
// in no index, and half of each page is left empty (see CreateQueue): so the new version
// of the row stays in its page and no index has to be written (a HOT update).
func (Dialect) Queue(t dialect.Table) *dialect.QueueTexts {
	ready := fmt.Sprintf(available, t.Quoted)
	readyForeign := `ctid operator(pg_catalog.=) any(array(
	select ctid from ` + t.Quoted + ` where true order by seq limit ` + limitMark + ` for update skip locked))`
	// A leased row stays in the table, so columns that only GiveBack needs are not read.
	const record = `id::pg_catalog.text, seq, headers, coalesce(body, ''), ` + dueRead + `, %s, claims, %s,
	` + untilExpiry + `, coalesce(last_error, '')`
	const claimed = `id::pg_catalog.text, seq, case when pg_catalog.octet_length(headers) operator(pg_catalog.>) $3 then '' else headers end,
	case when pg_catalog.octet_length(body) operator(pg_catalog.>) $3 then '' else coalesce(body, '') end,
	` + dueRead + `, deliveries, claims, '', ` + untilExpiry + `,
	case when pg_catalog.octet_length(last_error) operator(pg_catalog.>) $3 then '' else coalesce(last_error, '') end,
	case when ` + partial + ` then pg_catalog.octet_length(headers)::bigint operator(pg_catalog.+) coalesce(pg_catalog.octet_length(body), 0)
		operator(pg_catalog.+) coalesce(pg_catalog.octet_length(last_error), 0) else 0 end`
	const same = `m.seq operator(pg_catalog.=) s.seq and m.claims operator(pg_catalog.=) s.claims`
	const settled = same + ` and m.leased_until operator(pg_catalog.>) pg_catalog.now() returning m.seq`
	const leased = `seq operator(pg_catalog.=) $1 and claims operator(pg_catalog.=) $2 and leased_until operator(pg_catalog.>) pg_catalog.clock_timestamp()`
	const list = `unnest($1::bigint[], $2::int[]) as s(seq, claims)`
	texts := &dialect.QueueTexts{
		Table: t,
		Claim: `update ` + t.Quoted + ` set leased_until = ` + after("$2::bigint") + `,
	claims = ` + nextClaim + `, deliveries = ` + nextDelivery + `
where ` + ready + `
returning ` + claimed,
		Complete: `delete from ` + t.Quoted + ` as m using ` + list + ` where ` + settled,
		Abandon: `update ` + t.Quoted + ` as m set leased_until = null, last_error = s.error
from unnest($1::bigint[], $2::int[], $3::pg_catalog.text[]) as s(seq, claims, error) where ` + settled,
		Release: `update ` + t.Quoted + ` as m set leased_until = null, deliveries = greatest(deliveries, 1) operator(pg_catalog.-) 1
from ` + list + ` where ` + settled,
		Renew: `update ` + t.Quoted + ` as m set leased_until = ` + after("$1::bigint") + `
from unnest($2::bigint[], $3::int[]) as s(seq, claims) where ` + settled,
		Leased: `select seq from ` + t.Quoted + ` where ` + leased,
		Fence: `with removed as (delete from ` + t.Quoted + ` where ` + leased + ` returning seq)
select 1 operator(pg_catalog./) (select pg_catalog.count(*) from removed)`,
		Orphans: `update ` + t.Quoted + ` set leased_until = null where ctid operator(pg_catalog.=) any(array(
	select ctid from (select ctid, claims, leased_until from ` + t.Quoted + ` where due operator(pg_catalog.<=) pg_catalog.now() order by due, seq limit ` + strconv.Itoa(headOfQueue) + `) as head
	where ` + orphaned + `)) and ` + orphaned + ` returning ` + dueRead,
		Contents: `select m.seq, m.headers, coalesce(m.body, ''), coalesce(m.last_error, '')
from ` + t.Quoted + ` as m, ` + list + ` where ` + same,
		Begin: `update ` + t.Quoted + ` as m set leased_until = ` + after("$1::bigint") + `
from unnest($2::bigint[], $3::int[]) as s(seq, claims)
where ` + same + ` and m.leased_until is not null returning m.seq`,
		Take:   `delete from ` + t.Quoted + ` where ` + ready + ` returning ` + fmt.Sprintf(record, nextDelivery, "coalesce(expires::pg_catalog.text, '')"),
		Insert: `insert into ` + t.Quoted + ` (id, headers, body) values (` + ownID + `, $1, $2)`,
		InsertAll: `insert into ` + t.Quoted + ` (id, headers, body)
select ` + ownID + `, h, b from unnest($1::pg_catalog.text[], $2::pg_catalog.bytea[]) as m(h, b)`,
		TakeForeign: `delete from ` + t.Quoted + ` where ` + readyForeign + `
returning id::pg_catalog.text, seq::bigint, headers, coalesce(body, ''), timestamp with time zone 'epoch', 1, 1, coalesce(expires::pg_catalog.text, ''),
	` + untilExpiry + `, ''`,
		RetakeForeign: `delete from ` + t.Quoted + ` where ctid operator(pg_catalog.=) any(array(
	select ctid from ` + t.Quoted + ` where id operator(pg_catalog.=) $1::pg_catalog.text::pg_catalog.uuid and seq operator(pg_catalog.=) $2 for update skip locked))
returning seq::bigint`,
		Purge: `delete from ` + t.Quoted + ` where ctid operator(pg_catalog.=) any(array(
	select ctid from ` + t.Quoted + ` where due operator(pg_catalog.<=) pg_catalog.now() and ` + unleased + `
	order by due, seq limit ` + dialect.PurgeLimit + ` for update skip locked))`,
		PurgeForeign: `delete from ` + t.Quoted + ` where ctid operator(pg_catalog.=) any(array(
	select ctid from ` + t.Quoted + ` order by seq limit ` + dialect.PurgeLimit + ` for update skip locked))`,
		Next:        fmt.Sprintf(untilNext, t.Quoted, " and "+unleased),
		NextForeign: `select 0::bigint from ` + t.Quoted + ` limit 1`,
	}
	texts.First = sized(`select seq from `+t.Quoted+` where `+ready, 1)
	texts.FirstForeign = sized(`select seq::bigint from `+t.Quoted+` where `+readyForeign, 1)
	texts.TakeOne, texts.TakeOneForeign = sized(texts.Take, 1), sized(texts.TakeForeign, 1)
	return texts
}

// untilExpiry is the number of microseconds until a row expires, 0 if it has expired, and null if
// it never does. Expires is in UTC without a time zone, as NServiceBus writes it.
const untilExpiry = `case when expires operator(pg_catalog.<) timestamp without time zone 'infinity' then (pg_catalog.date_part('epoch',
		greatest(expires, ` + utcNow + `) operator(pg_catalog.-) ` + utcNow + `) operator(pg_catalog.*) 1000000)::bigint end`

const utcNow = `(pg_catalog.clock_timestamp() at time zone 'utc')`

// expiresIn and dueIn are the columns of a new row with a number of microseconds, which may
// be 0: it does not expire, or is due now.
func expiresIn(microseconds string) string {
	return `(` + after(notZero(microseconds)) + `) at time zone 'utc'`
}

func dueIn(microseconds string) string {
	return `coalesce(` + after(notZero(microseconds)) + `, pg_catalog.now())`
}

// notZero is null for 0.
func notZero(n string) string {
	return `case when ` + n + `::bigint operator(pg_catalog.<>) 0 then ` + n + `::bigint end`
}

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
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires) select `+ownID+`, h, b, `+expiresIn("t")+`
from unnest($1::pg_catalog.text[], $2::pg_catalog.bytea[], $3::bigint[]) as m(h, b, t)`, headers, bodies, ttls)}
	case !delayed:
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires) values (`+ownID+`, $1, $2, `+expiresIn("$3")+`)`,
			m.Headers, m.Body, roundUp(m.TTL).Microseconds())}
	case several:
		headers, bodies := columnsOf(messages)
		ttls, delays := durationsOf(messages)
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires, due) select `+ownID+`, h, b, `+expiresIn("t")+`, `+dueIn("d")+`
from unnest($1::pg_catalog.text[], $2::pg_catalog.bytea[], $3::bigint[], $4::bigint[]) as m(h, b, t, d)`, headers, bodies, ttls, delays)}
	default:
		return []*sqlexec.Statement{sqlexec.Command(into+` (id, headers, body, expires, due) values (`+ownID+`, $1, $2, `+
			expiresIn("$3")+`, `+dueIn("$4")+`)`,
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
		Subscribers: `select distinct queueaddress from ` + t.Quoted + ` where topic operator(pg_catalog.=) $1`,
		IsCurrent:   `select (pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) any(array['read committed', 'read uncommitted']))::int::bigint`,
		Subscribed:  `select topic from ` + t.Quoted + ` where endpoint operator(pg_catalog.=) $1 and queueaddress operator(pg_catalog.=) $2`,
		Subscribe: `insert into ` + t.Quoted + ` (queueaddress, endpoint, topic) values ($1, $2, $3)
on conflict (endpoint, topic) do update set queueaddress = excluded.queueaddress`,
		Unsubscribe: `delete from ` + t.Quoted + ` where endpoint operator(pg_catalog.=) $1 and topic operator(pg_catalog.=) $2`,
		RemoveQueue: `delete from ` + t.Quoted + ` where queueaddress operator(pg_catalog.=) $1 returning topic`,
		RemoveTopic: `delete from ` + t.Quoted + ` where topic operator(pg_catalog.=) $1`,
	}
}

// Delayed implements dialect.Dialect.
func (Dialect) Delayed(t dialect.Table) *dialect.DelayedTexts {
	return &dialect.DelayedTexts{
		Table: t,
		Take: `delete from ` + t.Quoted + ` where ctid operator(pg_catalog.=) any(array(
	select ctid from ` + t.Quoted + ` where due operator(pg_catalog.<=) pg_catalog.now() order by due, seq limit $1 for update skip locked))
returning seq, destination, coalesce(expires::pg_catalog.text, ''), headers, body, attempts`,
		Forward: func(to dialect.Table) string {
			return `insert into ` + to.Quoted + ` (id, expires, headers, body) values (` + ownID + `, case when $1::pg_catalog.text operator(pg_catalog.<>) '' then $1::pg_catalog.text end::timestamp, $2, $3)`
		},
		Postpone: `update ` + t.Quoted + ` set due = ` + after("$2::bigint") + `,
	attempts = $5, last_error = $3 where seq operator(pg_catalog.=) $1 and attempts operator(pg_catalog.=) $4 returning seq`,
		Remove:      `delete from ` + t.Quoted + ` where seq operator(pg_catalog.=) $1 and attempts operator(pg_catalog.=) $2 returning seq`,
		RemoveQueue: `delete from ` + t.Quoted + ` where destination operator(pg_catalog.=) $1`,
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
select a, h, b, `+expiresIn("t")+`, `+dueIn("d")+`
from unnest($1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.bytea[], $4::bigint[], $5::bigint[]) as m(a, h, b, t, d)`,
		destinations, headers, bodies, ttls, delays)}
}

// List passes slices as arrays.
func (Dialect) List(columns ...any) []any { return columns }

// Savepoint implements dialect.Dialect.
func (Dialect) Savepoint(name string) *sqlexec.Statement {
	return &sqlexec.Statement{SQL: `savepoint ` + name, Savepoint: true}
}

// RollbackTo implements dialect.Dialect.
func (Dialect) RollbackTo(name string) *sqlexec.Statement {
	return sqlexec.Command(`rollback to savepoint ` + name)
}

// Intact finds the violation of a deferred constraint while the savepoint can still undo
// it. At the commit the violation would cost the lock on the message.
func (Dialect) Intact() *sqlexec.Statement { return sqlexec.Command(`set constraints all immediate`) }
