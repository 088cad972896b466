set transaction isolation level read committed;
with available as (
	select top (1000) RowVersion
	from [my catalog].[my schema].[my orders; select] with (updlock, readpast, rowlock)
	order by RowVersion
)
delete from available;
