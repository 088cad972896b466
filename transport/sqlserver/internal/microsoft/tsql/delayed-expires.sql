insert into [shop].[dbo].[reprise_delayed] (Headers, Body, Expires, Due, Destination)
select m.h, m.b, case when m.t > 0 then cast(dateadd(millisecond, -2, dateadd(microsecond, cast(m.t % 1000000 as int), dateadd(second, cast(m.t / 1000000 % 86400 as int), dateadd(day, cast(m.t / 1000000 / 86400 as int), sysutcdatetime())))) as datetime) end, dateadd(microsecond, cast(m.d % 1000000 as int), dateadd(second, cast(m.d / 1000000 % 86400 as int), dateadd(day, cast(m.d / 1000000 / 86400 as int), sysutcdatetime()))), m.a
from (values
	(0, @h0, @b0, @t0, @d0, @a0),
	(1, @h1, @b1, @t1, @d1, @a1),
	(2, @h2, @b2, @t2, @d2, @a2),
	(3, @h3, @b3, @t3, @d3, @a3)
) as m (i, h, b, t, d, a)
where m.h is not null
order by m.i;
