insert into [my catalog].[my schema].[my orders; select] (Id, Recoverable, Expires, Headers, Body)
values (newid(), 1, convert(datetime, nullif(@p1, N''), 126), @p2, @p3);
