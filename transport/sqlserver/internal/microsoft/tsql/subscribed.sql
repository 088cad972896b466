select Topic from [shop].[dbo].[SubscriptionRouting] where Endpoint = @p1 and QueueAddress = @p2;
