set transaction isolation level read committed;
with available as (
	select top (@p1) Id, RowVersion, Headers, Body, Due, Deliveries, Claims, Expires, LeasedUntil, LastError
	from [my catalog].[my schema].[my orders; select] with (updlock, readpast, rowlock, forceseek)
	where Due >= cast(switchoffset(@p3, 0) as datetime2(7)) and Due <= sysutcdatetime() and (LeasedUntil is null or LeasedUntil <= sysutcdatetime() or LeasedUntil > dateadd(hour, 48, sysutcdatetime()))
	order by Due, RowVersion
)
update available
set LeasedUntil = dateadd(microsecond, cast(@p2 % 1000000 as int), dateadd(second, cast(@p2 / 1000000 % 86400 as int), dateadd(day, cast(@p2 / 1000000 / 86400 as int), sysutcdatetime()))), Claims = Claims % 2147483647 + 1, Deliveries = case when Deliveries < 0 then 1 when Deliveries = 2147483647 then 2147483647 else Deliveries + 1 end
output convert(char(36), inserted.Id), inserted.RowVersion, case when datalength(inserted.Headers) > @p4 then N'' else inserted.Headers end,
	case when datalength(inserted.Body) > @p4 then cast('' as varbinary(max)) else isnull(inserted.Body, cast('' as varbinary(max))) end,
	todatetimeoffset(inserted.Due, 0), inserted.Deliveries, inserted.Claims, '',
	datediff_big(microsecond, sysutcdatetime(), inserted.Expires), case when datalength(inserted.LastError) > @p4 then N'' else isnull(inserted.LastError, N'') end,
	case when datalength(inserted.Body) > @p4 or datalength(inserted.Headers) > @p4 or datalength(inserted.LastError) > @p4 then datalength(inserted.Headers) + isnull(datalength(inserted.Body), 0) + isnull(datalength(inserted.LastError), 0) else cast(0 as bigint) end;
