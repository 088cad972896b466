delete from [shop].[dbo].[SubscriptionRouting] where Topic = @p1 collate Latin1_General_BIN2;
