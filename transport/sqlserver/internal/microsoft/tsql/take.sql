set transaction isolation level read committed;
with available as (
	select top (@p1) Id, RowVersion, Headers, Body, Due, Deliveries, Claims, Expires, LeasedUntil, LastError
	from [my catalog].[my schema].[my orders; select] with (updlock, readpast, rowlock, forceseek)
	where Due >= cast(switchoffset(@p2, 0) as datetime2(7)) and Due <= sysutcdatetime() and (LeasedUntil is null or LeasedUntil <= sysutcdatetime() or LeasedUntil > dateadd(hour, 48, sysutcdatetime()))
	order by Due, RowVersion
)
delete from available
output convert(char(36), deleted.Id), deleted.RowVersion, deleted.Headers, isnull(deleted.Body, cast('' as varbinary(max))),
	todatetimeoffset(deleted.Due, 0), case when deleted.Deliveries < 0 then 1 when deleted.Deliveries = 2147483647 then 2147483647 else deleted.Deliveries + 1 end, deleted.Claims, isnull(convert(varchar(23), deleted.Expires, 126), ''),
	datediff_big(microsecond, sysutcdatetime(), deleted.Expires), isnull(deleted.LastError, N'');
