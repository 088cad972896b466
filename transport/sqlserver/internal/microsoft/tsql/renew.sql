set transaction isolation level read committed;
update m
set LeasedUntil = dateadd(microsecond, cast(@p1 % 1000000 as int), dateadd(second, cast(@p1 / 1000000 % 86400 as int), dateadd(day, cast(@p1 / 1000000 / 86400 as int), sysutcdatetime())))
output inserted.RowVersion
from openjson(@p2) with (seq bigint '$[0]', claims int '$[1]') as s
	inner join [my catalog].[my schema].[my orders; select] as m with (rowlock, forceseek) on m.RowVersion = s.seq
where m.Claims = s.claims and m.LeasedUntil > sysutcdatetime();
