if xact_state() <> 1 or isnull(cast(session_context(N'reprise transaction') as bigint), 0) <> current_transaction_id()
	throw 50901, N'the transaction of the message has ended: the server has rolled it back, or the handler has ended it', 1;
if @@trancount <> 1
	throw 50902, N'the handler has left a transaction open that it began inside that of the message', 1;
