set transaction isolation level read committed;
update m
set LeasedUntil = null, Deliveries = @p3, Claims = @p4, LastError = @p5
output inserted.RowVersion
from [my catalog].[my schema].[my orders; select] as m with (updlock, readpast, rowlock, forceseek)
where m.RowVersion = @p1 and m.Claims = @p2;
