set transaction isolation level read committed;
update m
set LeasedUntil = null, Deliveries = case when m.Deliveries > 0 then m.Deliveries - 1 else 0 end
output inserted.RowVersion
from openjson(@p1) with (seq bigint '$[0]', claims int '$[1]') as s
	inner join [my catalog].[my schema].[my orders; select] as m with (rowlock, forceseek) on m.RowVersion = s.seq
where m.Claims = s.claims and m.LeasedUntil > sysutcdatetime();
