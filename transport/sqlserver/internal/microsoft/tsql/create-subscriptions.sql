if object_id(N'[shop].[dbo].[SubscriptionRouting]') is null
begin
	create table [shop].[dbo].[SubscriptionRouting] (
		QueueAddress nvarchar(200) not null,
		Endpoint nvarchar(200) not null,
		Topic nvarchar(200) collate Latin1_General_BIN2 not null,
		primary key clustered (Endpoint, Topic)
	);
end
