if object_id(N'[my catalog].[my schema].[my orders; select]') is null
begin
	create table [my catalog].[my schema].[my orders; select] (
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
	create unique nonclustered index Reprise_RowVersion on [my catalog].[my schema].[my orders; select] (RowVersion);
	create nonclustered index Reprise_Due on [my catalog].[my schema].[my orders; select] (Due, RowVersion) include (LeasedUntil);
	alter table [my catalog].[my schema].[my orders; select] set (lock_escalation = disable);
	exec [my catalog].sys.sp_addextendedproperty @name = N'Reprise', @value = N'queue, version 1',
		@level0type = N'SCHEMA', @level0name = N'my schema', @level1type = N'TABLE', @level1name = N'my orders; select';
end
