insert into [my catalog].[my schema].[my orders; select] (Id, Recoverable, Expires, Headers, Body, Due, Deliveries, Claims, LastError)
values (convert(uniqueidentifier, @p1), 1, convert(datetime, nullif(@p8, N''), 126), @p3, @p4, cast(switchoffset(@p5, 0) as datetime2(7)), @p6, @p7, @p9);
