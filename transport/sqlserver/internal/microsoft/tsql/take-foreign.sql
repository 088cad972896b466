set transaction isolation level read committed;
with available as (
	select top (@p1) Id, RowVersion, Headers, Body, Expires
	from [my catalog].[my schema].[my orders; select] with (updlock, readpast, rowlock)
	order by RowVersion
)
delete from available
output convert(char(36), deleted.Id), deleted.RowVersion, deleted.Headers, isnull(deleted.Body, cast('' as varbinary(max))),
	cast('1970-01-01T00:00:00+00:00' as datetimeoffset(7)), 1, 1, isnull(convert(varchar(23), deleted.Expires, 126), ''),
	datediff_big(microsecond, sysutcdatetime(), deleted.Expires), N'';
