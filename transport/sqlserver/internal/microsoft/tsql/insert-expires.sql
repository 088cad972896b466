insert into [my catalog].[my schema].[my orders; select] (Id, Recoverable, Headers, Body, Expires)
select newid(), 1, m.h, m.b, case when m.t > 0 then cast(dateadd(millisecond, -2, dateadd(microsecond, cast(m.t % 1000000 as int), dateadd(second, cast(m.t / 1000000 % 86400 as int), dateadd(day, cast(m.t / 1000000 / 86400 as int), sysutcdatetime())))) as datetime) end
from (values
	(0, @h0, @b0, @t0)
) as m (i, h, b, t)
where m.h is not null
order by m.i;
