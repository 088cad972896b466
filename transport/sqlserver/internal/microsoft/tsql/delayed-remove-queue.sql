delete from [shop].[dbo].[reprise_delayed] where Destination = @p1;
