set transaction isolation level read committed;
update m
set Due = dateadd(microsecond, cast(@p2 % 1000000 as int), dateadd(second, cast(@p2 / 1000000 % 86400 as int), dateadd(day, cast(@p2 / 1000000 / 86400 as int), sysutcdatetime()))), Attempts = @p5, LastError = @p3
output inserted.RowVersion
from [shop].[dbo].[reprise_delayed] as m with (rowlock, forceseek)
where m.RowVersion = @p1 and m.Attempts = @p4;
