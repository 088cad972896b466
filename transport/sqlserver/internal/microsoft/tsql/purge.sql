set transaction isolation level read committed;
with available as (
	select top (1000) RowVersion
	from [my catalog].[my schema].[my orders; select] with (updlock, readpast, rowlock, forceseek)
	where Due <= sysutcdatetime() and (LeasedUntil is null or LeasedUntil <= sysutcdatetime() or LeasedUntil > dateadd(hour, 48, sysutcdatetime()))
	order by Due, RowVersion
)
delete from available;
