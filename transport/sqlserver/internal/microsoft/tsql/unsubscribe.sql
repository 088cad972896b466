delete from [shop].[dbo].[SubscriptionRouting] where Endpoint = @p1 and Topic = @p2 collate Latin1_General_BIN2;
