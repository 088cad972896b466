insert into [my catalog].[my schema].[my orders; select] (Id, Recoverable, Headers, Body, Expires, Due)
select newid(), 1, m.h, m.b, case when m.t > 0 then cast(dateadd(millisecond, -2, dateadd(microsecond, cast(m.t % 1000000 as int), dateadd(second, cast(m.t / 1000000 % 86400 as int), dateadd(day, cast(m.t / 1000000 / 86400 as int), sysutcdatetime())))) as datetime) end, dateadd(microsecond, cast(m.d % 1000000 as int), dateadd(second, cast(m.d / 1000000 % 86400 as int), dateadd(day, cast(m.d / 1000000 / 86400 as int), sysutcdatetime())))
from (values
	(0, @h0, @b0, @t0, @d0),
	(1, @h1, @b1, @t1, @d1),
	(2, @h2, @b2, @t2, @d2),
	(3, @h3, @b3, @t3, @d3)
) as m (i, h, b, t, d)
where m.h is not null
order by m.i;
