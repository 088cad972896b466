if object_id(N'[my catalog].[my schema].[my orders; select]') is null
begin
	create table [my catalog].[my schema].[my orders; select] (
		Id uniqueidentifier not null,
		CorrelationId varchar(255) null,
		ReplyToAddress varchar(255) null,
		Recoverable bit not null,
		Expires datetime null,
		Headers nvarchar(max) not null,
		Body varbinary(max) null,
		RowVersion bigint identity(1, 1) not null
	);
	create nonclustered index Index_RowVersion on [my catalog].[my schema].[my orders; select] (RowVersion);
	create nonclustered index Index_Expires on [my catalog].[my schema].[my orders; select] (Expires) include (Id, RowVersion) where Expires is not null;
end
