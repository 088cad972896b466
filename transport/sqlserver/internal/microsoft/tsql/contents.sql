set transaction isolation level read committed;
select m.RowVersion, m.Headers, isnull(m.Body, cast('' as varbinary(max))), isnull(m.LastError, N'')
from openjson(@p1) with (seq bigint '$[0]', claims int '$[1]') as s
	inner join [my catalog].[my schema].[my orders; select] as m with (rowlock, forceseek) on m.RowVersion = s.seq
where m.Claims = s.claims;
