if object_id(N'[shop].[dbo].[reprise_delayed]') is null
begin
	create table [shop].[dbo].[reprise_delayed] (
		RowVersion bigint identity(1, 1) not null,
		Destination nvarchar(700) not null,
		Expires datetime null,
		Headers nvarchar(max) not null,
		Body varbinary(max) null,
		Due datetime2(7) not null,
		Attempts int not null default 0,
		LastError nvarchar(max) null
	);
	create unique nonclustered index Reprise_RowVersion on [shop].[dbo].[reprise_delayed] (RowVersion);
	create nonclustered index Reprise_Due on [shop].[dbo].[reprise_delayed] (Due, RowVersion);
	alter table [shop].[dbo].[reprise_delayed] set (lock_escalation = disable);
	exec [shop].sys.sp_addextendedproperty @name = N'Reprise', @value = N'delayed messages, version 1',
		@level0type = N'SCHEMA', @level0name = N'dbo', @level1type = N'TABLE', @level1name = N'reprise_delayed';
end
