if object_id(N'[shop].[dbo].[billing]') is null
begin
	create table [shop].[dbo].[billing] (
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
	create unique nonclustered index Reprise_RowVersion on [shop].[dbo].[billing] (RowVersion);
	create nonclustered index Reprise_Due on [shop].[dbo].[billing] (Due, RowVersion) include (LeasedUntil);
	alter table [shop].[dbo].[billing] set (lock_escalation = disable);
	exec [shop].sys.sp_addextendedproperty @name = N'Reprise', @value = N'queue, version 1',
		@level0type = N'SCHEMA', @level0name = N'dbo', @level1type = N'TABLE', @level1name = N'billing';
end
