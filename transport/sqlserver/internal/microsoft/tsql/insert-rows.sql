insert into [my catalog].[my schema].[my orders; select] (Id, Recoverable, Headers, Body)
select newid(), 1, m.h, m.b
from (values
	(0, @h0, @b0)
) as m (i, h, b)
where m.h is not null
order by m.i;
