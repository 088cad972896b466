select top (1) datediff_big(microsecond, sysutcdatetime(), Due) from [my catalog].[my schema].[my orders; select] with (readpast, readcommittedlock)
where LeasedUntil is null or LeasedUntil <= sysutcdatetime()
order by Due;
