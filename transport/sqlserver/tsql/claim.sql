set transaction isolation level read committed;
with available as (
	select top (@p1) Id, RowVersion, Headers, Body, Due, Deliveries, Claims, Expires, LeasedUntil, LastError
	from [my catalog].[my schema].[my orders; select] with (updlock, readpast, rowlock, forceseek)
	where Due >= cast(switchoffset(@p3, 0) as datetime2(7)) and Due <= sysutcdatetime() and (LeasedUntil is null or LeasedUntil <= sysutcdatetime() or LeasedUntil > dateadd(hour, 48, sysutcdatetime()))
	order by Due, RowVersion
)
update available
set LeasedUntil = dateadd(microsecond, cast(@p2 % 1000000 as int), dateadd(second, cast(@p2 / 1000000 % 86400 as int), dateadd(day, cast(@p2 / 1000000 / 86400 as int), sysutcdatetime()))), Claims = Claims % 2147483647 + 1, Deliveries = case when Deliveries < 0 then 1 when Deliveries = 2147483647 then 2147483647 else Deliveries + 1 end
output convert(char(36), inserted.Id), inserted.RowVersion, inserted.Headers, isnull(inserted.Body, cast('' as varbinary(max))),
	todatetimeoffset(inserted.Due, 0), inserted.Deliveries, inserted.Claims, isnull(convert(varchar(23), inserted.Expires, 126), ''),
	cast(case when inserted.Expires <= sysutcdatetime() then 1 else 0 end as bit), isnull(inserted.LastError, N'');
