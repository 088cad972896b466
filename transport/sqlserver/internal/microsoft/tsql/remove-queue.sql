delete from [shop].[dbo].[SubscriptionRouting] output deleted.Topic where QueueAddress = @p1;
