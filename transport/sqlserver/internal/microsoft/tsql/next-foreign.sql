select top (1) cast(0 as bigint) from [my catalog].[my schema].[my orders; select] with (readpast, readcommittedlock);
