set transaction isolation level read committed;
delete from [my catalog].[my schema].[my orders; select] with (readpast, rowlock)
output deleted.RowVersion
where Id = convert(uniqueidentifier, @p1) and RowVersion = @p2;
