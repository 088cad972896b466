insert into [shop].[dbo].[SubscriptionRouting] (QueueAddress, Endpoint, Topic)
select @p1, @p2, @p3
where not exists (select 1 from [shop].[dbo].[SubscriptionRouting] with (updlock, holdlock) where Endpoint = @p2 and Topic = @p3 collate Latin1_General_BIN2);
update [shop].[dbo].[SubscriptionRouting] set QueueAddress = @p1 where Endpoint = @p2 and Topic = @p3 collate Latin1_General_BIN2 and QueueAddress <> @p1;
