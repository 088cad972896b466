set transaction isolation level read committed;
with waiting as (
	select top (@p1) RowVersion, Destination, Expires, Headers, Body, Attempts
	from [shop].[dbo].[reprise_delayed] with (updlock, readpast, rowlock, forceseek)
	where Due <= sysutcdatetime()
	order by Due, RowVersion
)
delete from waiting
output deleted.RowVersion, deleted.Destination, isnull(convert(varchar(23), deleted.Expires, 126), ''), deleted.Headers, isnull(deleted.Body, cast('' as varbinary(max))), deleted.Attempts;
