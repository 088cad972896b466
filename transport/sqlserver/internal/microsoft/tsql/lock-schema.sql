declare @got int;
exec @got = sys.sp_getapplock @Resource = N'reprise schema', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 3000;
if @got < 0
	throw 50904, N'the lock of those who create tables could not be had', 1;
