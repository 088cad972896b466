insert into [shop].[dbo].[reprise_delayed] (Headers, Body, Due, Destination)
select m.h, m.b, dateadd(microsecond, cast(m.d % 1000000 as int), dateadd(second, cast(m.d / 1000000 % 86400 as int), dateadd(day, cast(m.d / 1000000 / 86400 as int), sysutcdatetime()))), m.a
from (values
	(0, @h0, @b0, @d0, @a0),
	(1, @h1, @b1, @d1, @a1)
) as m (i, h, b, d, a)
where m.h is not null
order by m.i;
