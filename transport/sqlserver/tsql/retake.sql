set transaction isolation level read committed;
delete m
output deleted.RowVersion
from [my catalog].[my schema].[my orders; select] as m with (updlock, readpast, rowlock, forceseek)
where m.RowVersion = @p1 and m.Deliveries = @p2 and m.Claims = @p3;
