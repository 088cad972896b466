select top (1) datediff_big(microsecond, sysutcdatetime(), Due) from [my catalog].[my schema].[my orders; select] with (readpast, readcommittedlock)
where (LeasedUntil is null or LeasedUntil <= sysutcdatetime() or LeasedUntil > dateadd(hour, 48, sysutcdatetime()))
order by Due;
