if exists (select 1 from sys.databases where name = db_name() and compatibility_level < 130)
	throw 50903, N'the compatibility level of the database is below 130: raise it with ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL', 1;
select c.name, t.name + case
	when t.name in ('nvarchar', 'nchar') then '(' + case c.max_length when -1 then 'max' else cast(c.max_length / 2 as varchar(5)) end + ')'
	when t.name in ('varchar', 'char', 'varbinary', 'binary') then '(' + case c.max_length when -1 then 'max' else cast(c.max_length as varchar(5)) end + ')'
	when t.name in ('datetime2', 'datetimeoffset', 'time') then '(' + cast(c.scale as varchar(5)) + ')'
	else '' end
from [my catalog].sys.columns as c inner join [my catalog].sys.types as t on t.user_type_id = c.user_type_id
where c.object_id = object_id(@p1)
order by c.column_id;
