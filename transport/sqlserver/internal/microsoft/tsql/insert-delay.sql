insert into [my catalog].[my schema].[my orders; select] (Id, Recoverable, Headers, Body, Due)
select newid(), 1, m.h, m.b, dateadd(microsecond, cast(m.d % 1000000 as int), dateadd(second, cast(m.d / 1000000 % 86400 as int), dateadd(day, cast(m.d / 1000000 / 86400 as int), sysutcdatetime())))
from (values
	(0, @h0, @b0, @d0),
	(1, @h1, @b1, @d1)
) as m (i, h, b, d)
where m.h is not null
order by m.i;
