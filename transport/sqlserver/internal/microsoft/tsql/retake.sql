set transaction isolation level read committed;
delete m
output deleted.RowVersion
from [my catalog].[my schema].[my orders; select] as m with (updlock, readpast, rowlock, forceseek)
where m.RowVersion = @p1 and case when m.Deliveries < 0 then 1 when m.Deliveries = 2147483647 then 2147483647 else m.Deliveries + 1 end = @p2 and m.Claims = @p3;
