package microsoft

import (
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// readCommitted precedes each statement that looks for rows: the isolation level that
// another user of the pool has set is not reset with the connection, and under
// SERIALIZABLE and SNAPSHOT the server refuses READPAST. In a statement with parameters
// it is the level of that statement only.
const readCommitted = `set transaction isolation level read committed;
`

// The server may be configured to answer reads from versions of rows
// (READ_COMMITTED_SNAPSHOT, the default of Azure SQL). UPDLOCK makes it lock them
// nevertheless, and READCOMMITTEDLOCK does so if no lock has to last longer than the
// read.
//
// FORCESEEK prevents a plan, made while the queue was empty, that scans and locks the
// table. It is a hint for FROM, not for the table that UPDATE or DELETE names.
const (
	skipLocked    = ` with (updlock, readpast, rowlock)`
	seekAvailable = ` with (updlock, readpast, rowlock, forceseek)`
	seekRows      = ` with (rowlock, forceseek)`
	peekHint      = ` with (readpast, readcommittedlock)`
)

// timeOf converts a parameter that is a time.Time to datetime2.
func timeOf(parameter string) string {
	return `cast(switchoffset(` + parameter + `, 0) as datetime2(7))`
}

// after is the time after a duration in microseconds, a bigint, from now. dateadd takes
// an int, so the duration has to be split.
func after(duration string) string {
	return `dateadd(microsecond, cast(` + duration + ` % 1000000 as int), dateadd(second, cast(` + duration + ` / 1000000 % 86400 as int), ` +
		`dateadd(day, cast(` + duration + ` / 1000000 / 86400 as int), sysutcdatetime())))`
}

// expiry is the time at which a message with a time to live in microseconds expires; 0 is
// for ever. The column is a datetime, as in NServiceBus, which is rounded to a 300th of a
// second; 2 ms less, it is never late.
func expiry(duration string) string {
	return `case when ` + duration + ` > 0 then cast(dateadd(millisecond, -2, ` + after(duration) + `) as datetime) end`
}

// expiryOf converts the text that the statements return to datetime.
func expiryOf(parameter string) string {
	return `convert(datetime, nullif(` + parameter + `, N''), 126)`
}

// untilExpiry is the number of microseconds until a row expires, or NULL.
func untilExpiry(row string) string {
	return `datediff_big(microsecond, sysutcdatetime(), ` + row + `.Expires)`
}

// recordOf returns the columns of dialect.Row, of the rows that a statement inserted or
// deleted.
func recordOf(row, due, deliveries, claims, lastError string) string {
	return `convert(char(36), ` + row + `.Id), ` + row + `.RowVersion, ` + row + `.Headers, isnull(` + row + `.Body, cast('' as varbinary(max))),
	` + due + `, ` + deliveries + `, ` + claims + `, isnull(convert(varchar(23), ` + row + `.Expires, 126), ''),
	` + untilExpiry(row) + `, ` + lastError
}

// Queue returns the statements for a queue's table. The table is a heap, like
// NServiceBus's: in a clustered index rows would be inserted where others are being
// deleted.
//
// Available messages are found in the index on (Due, RowVersion), in which delayed
// messages come after the range that is read. The index includes LeasedUntil, but not in
// the key: so leased messages are skipped without reading the row, and without a lock on
// it that would last as long as a handler's transaction.
//
// OUTPUT without INTO is refused if the table has a trigger: there must be none.
func (Dialect) Queue(t dialect.Table) *dialect.QueueTexts {
	const unleased = `(LeasedUntil is null or LeasedUntil <= sysutcdatetime() or LeasedUntil > dateadd(hour, 48, sysutcdatetime()))`
	available := func(floor string) string {
		return readCommitted + `with available as (
	select top (@p1) Id, RowVersion, Headers, Body, Due, Deliveries, Claims, Expires, LeasedUntil, LastError
	from ` + t.Quoted + seekAvailable + `
	where Due >= ` + timeOf(floor) + ` and Due <= sysutcdatetime() and ` + unleased + `
	order by Due, RowVersion
)
`
	}
	own := func(row, deliveries string) string {
		return recordOf(row, `todatetimeoffset(`+row+`.Due, 0)`, deliveries, row+`.Claims`, `isnull(`+row+`.LastError, N'')`)
	}
	// As nextDelivery of postgres; least and greatest came with SQL Server 2022.
	nextDelivery := func(row string) string {
		return `case when ` + row + `Deliveries < 0 then 1 when ` + row + `Deliveries = 2147483647 then 2147483647 else ` + row + `Deliveries + 1 end`
	}
	claimed := func(rows string, columns string) string {
		return `
from openjson(` + rows + `) with (seq bigint '$[0]', claims int '$[1]'` + columns + `) as s
	inner join ` + t.Quoted + ` as m` + seekRows + ` on m.RowVersion = s.seq
where m.Claims = s.claims`
	}
	leased := func(rows string, columns string) string {
		return claimed(rows, columns) + ` and m.LeasedUntil > sysutcdatetime();`
	}
	// As partial of postgres.
	const partial = `datalength(inserted.Body) > @p4 or datalength(inserted.Headers) > @p4 or datalength(inserted.LastError) > @p4`
	whole := func(column, standard, value string) string {
		return `case when datalength(inserted.` + column + `) > @p4 then ` + standard + ` else ` + value + ` end`
	}
	return &dialect.QueueTexts{
		Table: t,
		Claim: available("@p3") + `update available
set LeasedUntil = ` + after("@p2") + `, Claims = Claims % 2147483647 + 1, Deliveries = ` + nextDelivery("") + `
output convert(char(36), inserted.Id), inserted.RowVersion, ` + whole("Headers", "N''", "inserted.Headers") + `,
	` + whole("Body", "cast('' as varbinary(max))", "isnull(inserted.Body, cast('' as varbinary(max)))") + `,
	todatetimeoffset(inserted.Due, 0), inserted.Deliveries, inserted.Claims, '',
	` + untilExpiry("inserted") + `, ` + whole("LastError", "N''", "isnull(inserted.LastError, N'')") + `,
	case when ` + partial + ` then datalength(inserted.Headers) + isnull(datalength(inserted.Body), 0) + isnull(datalength(inserted.LastError), 0) else cast(0 as bigint) end;`,
		Contents: readCommitted + `select m.RowVersion, m.Headers, isnull(m.Body, cast('' as varbinary(max))), isnull(m.LastError, N'')` + claimed("@p1", "") + `;`,
		Begin: readCommitted + `update m
set LeasedUntil = ` + after("@p1") + `
output inserted.RowVersion` + claimed("@p2", "") + ` and m.LeasedUntil is not null;`,
		Complete: readCommitted + `delete m
output deleted.RowVersion` + leased("@p1", ""),
		Abandon: readCommitted + `update m
set LeasedUntil = null, LastError = s.error
output inserted.RowVersion` + leased("@p1", `, error nvarchar(max) '$[2]'`),
		Release: readCommitted + `update m
set LeasedUntil = null, Deliveries = case when m.Deliveries > 0 then m.Deliveries - 1 else 0 end
output inserted.RowVersion` + leased("@p1", ""),
		Renew: readCommitted + `update m
set LeasedUntil = ` + after("@p1") + `
output inserted.RowVersion` + leased("@p2", ""),
		Take: available("@p2") + `delete from available
output ` + own("deleted", nextDelivery("deleted.")) + `;`,
		// The row gets a new RowVersion: to give it the old one (@p2) would need the
		// right to alter the table. Its place in the queue is that of Due.
		GiveBack: `insert into ` + t.Quoted + ` (Id, Recoverable, Expires, Headers, Body, Due, Deliveries, Claims, LastError)
values (convert(uniqueidentifier, @p1), 1, ` + expiryOf("@p8") + `, @p3, @p4, ` + timeOf("@p5") + `, @p6, @p7, @p9);`,
		Recount: readCommitted + `update m
set LeasedUntil = null, Deliveries = @p3, Claims = @p4, LastError = @p5
output inserted.RowVersion
from ` + t.Quoted + ` as m` + seekAvailable + `
where m.RowVersion = @p1 and m.Claims = @p2;`,
		TakeForeign: readCommitted + `with available as (
	select top (@p1) Id, RowVersion, Headers, Body, Expires
	from ` + t.Quoted + skipLocked + `
	order by RowVersion
)
delete from available
output ` + recordOf("deleted", `cast('1970-01-01T00:00:00+00:00' as datetimeoffset(7))`, "1", "1", `N''`) + `;`,
		Retake: readCommitted + `delete m
output deleted.RowVersion
from ` + t.Quoted + ` as m` + seekAvailable + `
where m.RowVersion = @p1 and ` + nextDelivery("m.") + ` = @p2 and m.Claims = @p3;`,
		// There is no index on Id. UPDLOCK would lock every row until the end of the
		// transaction, and not only while it is read.
		RetakeForeign: readCommitted + `delete from ` + t.Quoted + ` with (readpast, rowlock)
output deleted.RowVersion
where Id = convert(uniqueidentifier, @p1) and RowVersion = @p2;`,
		Purge: readCommitted + `with available as (
	select top (` + dialect.PurgeLimit + `) RowVersion
	from ` + t.Quoted + seekAvailable + `
	where Due <= sysutcdatetime() and ` + unleased + `
	order by Due, RowVersion
)
delete from available;`,
		PurgeForeign: readCommitted + `with available as (
	select top (` + dialect.PurgeLimit + `) RowVersion
	from ` + t.Quoted + skipLocked + `
	order by RowVersion
)
delete from available;`,
		Next: `select top (1) datediff_big(microsecond, sysutcdatetime(), Due) from ` + t.Quoted + peekHint + `
where ` + unleased + `
order by Due;`,
		NextForeign: `select top (1) cast(0 as bigint) from ` + t.Quoted + peekHint + `;`,
	}
}

// Claim implements dialect.Dialect.
func (Dialect) Claim(t *dialect.QueueTexts, n int, lease time.Duration, from time.Time, whole int64, _ int32) *sqlexec.Statement {
	return sqlexec.Command(t.Claim, n, lease.Microseconds(), from, whole)
}

// Take implements dialect.Dialect.
func (Dialect) Take(t *dialect.QueueTexts, n int, from time.Time) *sqlexec.Statement {
	return sqlexec.Command(t.Take, n, from)
}

// TakeForeign implements dialect.Dialect.
func (Dialect) TakeForeign(t *dialect.QueueTexts, n int) *sqlexec.Statement {
	return sqlexec.Command(t.TakeForeign, n)
}

// Except implements dialect.Dialect.
func (Dialect) Except(*sqlexec.Statement, []int64) {}

// First implements dialect.Dialect: there is no FaultRow.
func (Dialect) First(*dialect.QueueTexts, bool) *sqlexec.Statement { return nil }

// Subscriptions compares topics exactly: NServiceBus's table compares with its database's
// collation, mostly without regard to case, and every comparison ignores spaces at the
// end.
func (Dialect) Subscriptions(t dialect.Table) *dialect.SubscriptionTexts {
	const row = `Endpoint = @p2 and Topic = @p3 collate Latin1_General_BIN2`
	return &dialect.SubscriptionTexts{
		Table: t,
		Subscribers: `select distinct QueueAddress from ` + t.Quoted + `
where Topic = @p1 collate Latin1_General_BIN2 and datalength(Topic) = datalength(@p1);`,
		Subscribed: `select Topic from ` + t.Quoted + ` where Endpoint = @p1 and QueueAddress = @p2;`,
		// Of two concurrent subscriptions, one waits until the other's row exists.
		Subscribe: `insert into ` + t.Quoted + ` (QueueAddress, Endpoint, Topic)
select @p1, @p2, @p3
where not exists (select 1 from ` + t.Quoted + ` with (updlock, holdlock) where ` + row + `);
update ` + t.Quoted + ` set QueueAddress = @p1 where ` + row + ` and QueueAddress <> @p1;`,
		Unsubscribe: `delete from ` + t.Quoted + ` where Endpoint = @p1 and Topic = @p2 collate Latin1_General_BIN2;`,
		RemoveQueue: `delete from ` + t.Quoted + ` output deleted.Topic where QueueAddress = @p1;`,
		RemoveTopic: `delete from ` + t.Quoted + ` where Topic = @p1 collate Latin1_General_BIN2;`,
	}
}

// Delayed implements dialect.Dialect.
func (Dialect) Delayed(t dialect.Table) *dialect.DelayedTexts {
	return &dialect.DelayedTexts{
		Table: t,
		Take: readCommitted + `with waiting as (
	select top (@p1) RowVersion, Destination, Expires, Headers, Body, Attempts
	from ` + t.Quoted + seekAvailable + `
	where Due <= sysutcdatetime()
	order by Due, RowVersion
)
delete from waiting
output deleted.RowVersion, deleted.Destination, isnull(convert(varchar(23), deleted.Expires, 126), ''), deleted.Headers, isnull(deleted.Body, cast('' as varbinary(max))), deleted.Attempts;`,
		Forward: func(to dialect.Table) string {
			return `insert into ` + to.Quoted + ` (Id, Recoverable, Expires, Headers, Body)
values (newid(), 1, ` + expiryOf("@p1") + `, @p2, @p3);`
		},
		Postpone: readCommitted + `update m
set Due = ` + after("@p2") + `, Attempts = @p5, LastError = @p3
output inserted.RowVersion
from ` + t.Quoted + ` as m` + seekRows + `
where m.RowVersion = @p1 and m.Attempts = @p4;`,
		Remove: readCommitted + `delete m
output deleted.RowVersion
from ` + t.Quoted + ` as m` + seekRows + `
where m.RowVersion = @p1 and m.Attempts = @p2;`,
		RemoveQueue: `delete from ` + t.Quoted + ` where Destination = @p1;`,
		Next: `select top (1) datediff_big(microsecond, sysutcdatetime(), Due) from ` + t.Quoted + peekHint + `
order by Due;`,
	}
}
