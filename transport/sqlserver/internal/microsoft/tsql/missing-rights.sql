select quotename(user_name()), 0, N'' where has_perms_by_name(@p1, N'OBJECT', @p2) = 0
	and not exists (select 1 from [my catalog].sys.all_columns as c
		where c.object_id = object_id(@p1) and has_perms_by_name(@p1, N'OBJECT', @p2, c.name, N'COLUMN') = 1)
union all
select quotename(user_name()), 1, N'' where has_perms_by_name(@p3, N'OBJECT', @p4) = 0
	and not exists (select 1 from [my catalog].sys.all_columns as c
		where c.object_id = object_id(@p3) and has_perms_by_name(@p3, N'OBJECT', @p4, c.name, N'COLUMN') = 1)
union all
select quotename(user_name()), 2, N'' where has_perms_by_name(@p5, N'OBJECT', @p6) = 0
	and not exists (select 1 from [shop].sys.all_columns as c
		where c.object_id = object_id(@p5) and has_perms_by_name(@p5, N'OBJECT', @p6, c.name, N'COLUMN') = 1);
