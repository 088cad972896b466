set transaction isolation level read committed;
delete m
output deleted.RowVersion
from [shop].[dbo].[reprise_delayed] as m with (rowlock, forceseek)
where m.RowVersion = @p1 and m.Attempts = @p2;
