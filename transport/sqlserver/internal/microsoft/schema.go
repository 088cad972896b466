package microsoft

import (
	"fmt"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// This file has the tables in Microsoft SQL Server.

// catalogViews returns the schema of the catalog views of a table's database.
func catalogViews(t dialect.Table) string {
	if t.Catalog == "" {
		return "sys"
	}
	return bracketed(t.Catalog) + ".sys"
}

// Columns also checks that openjson exists: without it, the first settlement would fail
// because of an object of that name.
func (Dialect) Columns(t dialect.Table) *sqlexec.Statement {
	views := catalogViews(t)
	return sqlexec.Command(fmt.Sprintf(`if exists (select 1 from sys.databases where name = db_name() and compatibility_level < 130)
	throw %d, N'the compatibility level of the database is below 130: raise it with ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL', 1;
select c.name, t.name + case
	when t.name in ('nvarchar', 'nchar') then '(' + case c.max_length when -1 then 'max' else cast(c.max_length / 2 as varchar(5)) end + ')'
	when t.name in ('varchar', 'char', 'varbinary', 'binary') then '(' + case c.max_length when -1 then 'max' else cast(c.max_length as varchar(5)) end + ')'
	when t.name in ('datetime2', 'datetimeoffset', 'time') then '(' + cast(c.scale as varchar(5)) + ')'
	else '' end
from `+views+`.columns as c inner join `+views+`.types as t on t.user_type_id = c.user_type_id
where c.object_id = object_id(@p1)
order by c.column_id;`, NumberLevel), t.Quoted)
}

// Unless implements dialect.Dialect: a user without any right on a table does not see it.
func (Dialect) Unless() string { return ", or no right on it" }

// Wanted implements dialect.Dialect.
func (Dialect) Wanted(_ dialect.Table, foreign bool) []dialect.Column {
	columns := []dialect.Column{
		{Name: "Id", Kind: "uniqueidentifier"},
		{Name: "Recoverable", Kind: "bit"},
		{Name: "Expires", Kind: "datetime"},
		{Name: "Headers", Kind: "nvarchar(max)"},
		{Name: "Body", Kind: "varbinary(max)"},
		{Name: "RowVersion", Kind: "bigint"},
	}
	if foreign {
		return columns
	}
	return append(columns,
		dialect.Column{Name: "Due", Kind: "datetime2(7)"},
		dialect.Column{Name: "Deliveries", Kind: "int"},
		dialect.Column{Name: "Claims", Kind: "int"},
		dialect.Column{Name: "LeasedUntil", Kind: "datetime2(7)"},
		dialect.Column{Name: "LastError", Kind: "nvarchar(max)"},
	)
}

// CreateQueue creates first the columns that NServiceBus's endpoints write, with the same
// names and types; the others have defaults. Row locks are never escalated to a table
// lock, however many messages a transaction sends.
func (Dialect) CreateQueue(t dialect.Table, foreign bool) []string {
	if foreign {
		return []string{create(t, `create table `+t.Quoted+` (
		Id uniqueidentifier not null,
		CorrelationId varchar(255) null,
		ReplyToAddress varchar(255) null,
		Recoverable bit not null,
		Expires datetime null,
		Headers nvarchar(max) not null,
		Body varbinary(max) null,
		RowVersion bigint identity(1, 1) not null
	);
	create nonclustered index Index_RowVersion on `+t.Quoted+` (RowVersion);
	create nonclustered index Index_Expires on `+t.Quoted+` (Expires) include (Id, RowVersion) where Expires is not null;`)}
	}
	return []string{create(t, `create table `+t.Quoted+` (
		Id uniqueidentifier not null default newid(),
		CorrelationId varchar(255) null,
		ReplyToAddress varchar(255) null,
		Recoverable bit not null default 1,
		Expires datetime null,
		Headers nvarchar(max) not null,
		Body varbinary(max) null,
		RowVersion bigint identity(1, 1) not null,
		Due datetime2(7) not null default sysutcdatetime(),
		Deliveries int not null default 0,
		Claims int not null default 0,
		LeasedUntil datetime2(7) null,
		LastError nvarchar(max) null
	);
	create unique nonclustered index Reprise_RowVersion on `+t.Quoted+` (RowVersion);
	create nonclustered index Reprise_Due on `+t.Quoted+` (Due, RowVersion) include (LeasedUntil);
	alter table `+t.Quoted+` set (lock_escalation = disable);
	`+version(t, "queue, version 1"))}
}

// CreateSubscriptions creates NServiceBus's table, except that topics which differ in
// case are different.
func (Dialect) CreateSubscriptions(t dialect.Table) []string {
	return []string{create(t, `create table `+t.Quoted+` (
		QueueAddress nvarchar(200) not null,
		Endpoint nvarchar(200) not null,
		Topic nvarchar(200) collate Latin1_General_BIN2 not null,
		primary key clustered (Endpoint, Topic)
	);`)}
}

// CreateDelayed implements dialect.Dialect.
func (Dialect) CreateDelayed(t dialect.Table) []string {
	return []string{create(t, `create table `+t.Quoted+` (
		RowVersion bigint identity(1, 1) not null,
		Destination nvarchar(700) not null,
		Expires datetime null,
		Headers nvarchar(max) not null,
		Body varbinary(max) null,
		Due datetime2(7) not null,
		Attempts int not null default 0,
		LastError nvarchar(max) null
	);
	create unique nonclustered index Reprise_RowVersion on `+t.Quoted+` (RowVersion);
	create nonclustered index Reprise_Due on `+t.Quoted+` (Due, RowVersion);
	alter table `+t.Quoted+` set (lock_escalation = disable);
	`+version(t, "delayed messages, version 1"))}
}

// create does nothing if an object of the name exists.
func create(t dialect.Table, statements string) string {
	return `if object_id(` + literal(t.Quoted) + `) is null
begin
	` + statements + `
end`
}

// version records the kind and the version of a table in an extended property.
func version(t dialect.Table, text string) string {
	return `exec ` + catalogViews(t) + `.sp_addextendedproperty @name = N'Reprise', @value = ` + literal(text) + `,
		@level0type = N'SCHEMA', @level0name = ` + literal(t.Schema) + `, @level1type = N'TABLE', @level1name = ` + literal(t.Name) + `;`
}

// LockSchema implements dialect.Dialect.
func (Dialect) LockSchema() *sqlexec.Statement {
	return sqlexec.Command(fmt.Sprintf(`declare @got int;
exec @got = sys.sp_getapplock @Resource = N'reprise schema', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = %d;
if @got < 0
	throw %d, N'the lock of those who create tables could not be had', 1;`, dialect.SchemaLockTimeout.Milliseconds(), NumberLock))
}

// NotifyTrigger implements dialect.Dialect.
func (Dialect) NotifyTrigger(dialect.Table) *sqlexec.Statement { return nil }

// HasNotifyTrigger implements dialect.Dialect.
func (Dialect) HasNotifyTrigger(dialect.Table) *sqlexec.Statement { return nil }

// ForeignOwner implements dialect.Dialect: to create a table in a schema, a user needs the right
// to alter the schema, which no user has by default.
func (Dialect) ForeignOwner(dialect.Table) *sqlexec.Statement { return nil }
