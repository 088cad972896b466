package main

// scenarios returns the scenarios of queues in PostgreSQL, compared with loops over pgx alone, River and Watermill.
func (s *postgresSystem) scenarios() []scenario {
	return []scenario{
		{
			name:  "postgres-receive-only",
			title: "PostgreSQL, ReceiveOnly",
			about: "A backlog is handled by handlers that do nothing. The raw loop leases a batch, handles it and deletes it. River commits no job by itself either, " +
				"but keeps completed ones. Watermill handles a batch serially in one transaction, and repeats, or loses, all of it when a handler takes too long.",
			run: s.receiveOnly,
		},
		{
			name:  "postgres-atomic",
			title: "PostgreSQL, SendsAtomicWithReceive",
			about: "A backlog is handled by handlers that each send one message, as one with the removal of the one received, or write one row in the transaction that removes it. " +
				"The raw loops send the same bytes, headers included. One leases messages, and removes and sends them in one statement; the other holds a transaction from the receipt of each message on, as Reprise does on tables of NServiceBus, which have no leases.",
			run: s.atomic,
		},
		{
			name:  "postgres-send",
			title: "PostgreSQL, sending",
			about: "16 goroutines send one message a call, and 8 send 100 a call, while nobody receives.",
			run:   s.send,
		},
		{
			name:  "postgres-retry",
			title: "PostgreSQL, every message fails once",
			about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once.",
			run:   s.retry,
		},
		{
			name:  "postgres-latency",
			title: "PostgreSQL, latency of an idle queue",
			about: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
			run:   s.latency,
		},
		{
			name:  "postgres-defaults",
			title: "PostgreSQL, defaults",
			about: "What a user gets who sets nothing but the transaction mode, beside the best of the concurrencies tried.",
			run:   s.defaults,
		},
		{
			name:    "postgres-backlog",
			title:   "PostgreSQL, depth of the backlog",
			about:   "How the rate at which a backlog is handled, from its first message to its last, depends on how many wait at the beginning. ReceiveOnly.",
			run:     s.backlog,
			plotted: true,
		},
		{
			name:  "postgres-snapshot",
			title: "PostgreSQL, an old snapshot",
			about: "Messages flow while a transaction is open that began before them, as a report or a backup has one: the server keeps every version of every row. ReceiveOnly.",
			run:   s.snapshot,
		},
		{
			name:    "postgres-concurrency",
			title:   "PostgreSQL, concurrency",
			about:   "How the rate grows with Config.Concurrency.",
			run:     s.concurrency,
			plotted: true,
		},
		{
			name:    "postgres-instances",
			title:   "PostgreSQL, instances",
			about:   "How the rate changes with the number of instances of an endpoint, each with connections of its own, in one process.",
			run:     s.instances,
			plotted: true,
		},
		{
			name:    "postgres-body",
			title:   "PostgreSQL, body size",
			about:   "How the rate falls with the size of the body.",
			run:     s.body,
			plotted: true,
		},
	}
}
