select distinct QueueAddress from [shop].[dbo].[SubscriptionRouting]
where Topic = @p1 collate Latin1_General_BIN2 and datalength(Topic) = datalength(@p1);
