// Package postgres has the scenarios of queues in PostgreSQL, their contenders, and the server.
package postgres

import "github.com/reprise-go/reprise/bench/internal/scenario"

// Scenarios returns the scenarios of queues in PostgreSQL, compared with loops over pgx alone, River and Watermill.
func (s *Server) Scenarios() []scenario.Scenario {
	return []scenario.Scenario{
		{
			Name:  "postgres-receive-only",
			Title: "PostgreSQL, ReceiveOnly",
			About: "A backlog is handled by handlers that do nothing. The raw loop leases a batch, handles it and deletes it. River commits no job by itself either, " +
				"but keeps completed ones. Watermill handles a batch serially in one transaction, and repeats, or loses, all of it when a handler takes too long.",
			Run: s.receiveOnly,
		},
		{
			Name:  "postgres-atomic",
			Title: "PostgreSQL, SendsAtomicWithReceive",
			About: "A backlog is handled by handlers that each send one message, as one with the removal of the one received, or write one row in the transaction that removes it. " +
				"The raw loops send the same bytes, headers included. One leases messages, and removes and sends them in one statement; the other holds a transaction from the receipt of each message on, as Reprise does on tables of NServiceBus, which have no leases.",
			Run: s.atomic,
		},
		{
			Name:  "postgres-send",
			Title: "PostgreSQL, sending",
			About: "16 goroutines send one message a call, and 8 send 100 a call, while nobody receives.",
			Run:   s.send,
		},
		{
			Name:  "postgres-retry",
			Title: "PostgreSQL, every message fails once",
			About: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once.",
			Run:   s.retry,
		},
		{
			Name:  "postgres-latency",
			Title: "PostgreSQL, latency of an idle queue",
			About: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
			Run:   s.latency,
		},
		{
			Name:  "postgres-defaults",
			Title: "PostgreSQL, defaults",
			About: "What a user gets who sets nothing but the transaction mode, beside the best of the concurrencies tried.",
			Run:   s.defaults,
		},
		{
			Name:    "postgres-backlog",
			Title:   "PostgreSQL, depth of the backlog",
			About:   "How the rate at which a backlog is handled, from its first message to its last, depends on how many wait at the beginning. ReceiveOnly.",
			Run:     s.backlog,
			Plotted: true,
		},
		{
			Name:  "postgres-snapshot",
			Title: "PostgreSQL, an old snapshot",
			About: "Messages flow while a transaction is open that began before them, as a report or a backup has one: the server keeps every version of every row. ReceiveOnly.",
			Run:   s.snapshot,
		},
		{
			Name:    "postgres-concurrency",
			Title:   "PostgreSQL, concurrency",
			About:   "How the rate grows with Config.Concurrency.",
			Run:     s.concurrency,
			Plotted: true,
		},
		{
			Name:    "postgres-instances",
			Title:   "PostgreSQL, instances",
			About:   "How the rate changes with the number of instances of an endpoint, each with connections of its own, in one process.",
			Run:     s.instances,
			Plotted: true,
		},
		{
			Name:    "postgres-body",
			Title:   "PostgreSQL, body size",
			About:   "How the rate falls with the size of the body.",
			Run:     s.body,
			Plotted: true,
		},
	}
}
