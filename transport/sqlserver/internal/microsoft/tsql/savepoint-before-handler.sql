save transaction reprise_handler;
declare @transaction bigint = current_transaction_id();
exec sys.sp_set_session_context @key = N'reprise transaction', @value = @transaction;
