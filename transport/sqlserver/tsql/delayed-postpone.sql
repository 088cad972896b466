set transaction isolation level read committed;
update [shop].[dbo].[reprise_delayed] with (rowlock, forceseek)
set Due = dateadd(microsecond, cast(@p2 % 1000000 as int), dateadd(second, cast(@p2 / 1000000 % 86400 as int), dateadd(day, cast(@p2 / 86400000000 as int), sysutcdatetime()))), Attempts = Attempts + 1, LastError = @p3
where RowVersion = @p1;
