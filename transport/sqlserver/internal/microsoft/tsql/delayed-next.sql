select top (1) datediff_big(microsecond, sysutcdatetime(), Due) from [shop].[dbo].[reprise_delayed] with (readpast, readcommittedlock)
order by Due;
