package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Queues in PostgreSQL, compared with loops over pgx alone, River and Watermill.
var postgresScenarios = []scenario{
	{
		name:  "postgres-receive-only",
		title: "PostgreSQL, ReceiveOnly",
		about: "A backlog is handled by handlers that do nothing. The raw loop leases a batch, handles it and deletes it. River commits no job by itself either, " +
			"but keeps completed ones. Watermill handles a batch serially in one transaction, and repeats, or loses, all of it when a handler takes too long.",
		run: postgresReceiveOnly,
	},
	{
		name:  "postgres-atomic",
		title: "PostgreSQL, SendsAtomicWithReceive",
		about: "A backlog is handled by handlers that each send one message, as one with the removal of the one received, or write one row in the transaction that removes it. " +
			"The raw loops send the same bytes, headers included. One leases messages, and removes and sends them in one statement; the other holds a transaction from the receipt of each message on, as Reprise does on tables of NServiceBus, which have no leases.",
		run: postgresAtomic,
	},
	{
		name:  "postgres-send",
		title: "PostgreSQL, sending",
		about: "16 goroutines send one message a call, and 8 send 100 a call, while nobody receives.",
		run:   postgresSend,
	},
	{
		name:  "postgres-retry",
		title: "PostgreSQL, every message fails once",
		about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once.",
		run:   postgresRetry,
	},
	{
		name:  "postgres-latency",
		title: "PostgreSQL, latency of an idle queue",
		about: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
		run:   postgresLatency,
	},
	{
		name:  "postgres-defaults",
		title: "PostgreSQL, defaults",
		about: "What a user gets who sets nothing but the transaction mode, beside the best of the concurrencies tried.",
		run:   postgresDefaults,
	},
	{
		name:    "postgres-backlog",
		title:   "PostgreSQL, depth of the backlog",
		about:   "How the rate at which a backlog is handled, from its first message to its last, depends on how many wait at the beginning. ReceiveOnly.",
		run:     postgresBacklog,
		plotted: true,
	},
	{
		name:  "postgres-snapshot",
		title: "PostgreSQL, an old snapshot",
		about: "Messages flow while a transaction is open that began before them, as a report or a backup has one: the server keeps every version of every row. ReceiveOnly.",
		run:   postgresSnapshot,
	},
	{
		name:    "postgres-concurrency",
		title:   "PostgreSQL, concurrency",
		about:   "How the rate grows with Config.Concurrency.",
		run:     postgresConcurrency,
		plotted: true,
	},
	{
		name:    "postgres-instances",
		title:   "PostgreSQL, instances",
		about:   "How the rate changes with the number of instances of an endpoint, each with connections of its own, in one process.",
		run:     postgresInstances,
		plotted: true,
	},
	{
		name:    "postgres-body",
		title:   "PostgreSQL, body size",
		about:   "How the rate falls with the size of the body.",
		run:     postgresBody,
		plotted: true,
	},
}

// The concurrencies that are fastest with handlers that do nothing.
const (
	tunedReceiveOnly = 64
	tunedAtomic      = 16
)

var (
	receiveOnly      = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly}}
	receiveOnlyTuned = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly, concurrency: tunedReceiveOnly}}
	atomic16         = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionSendsAtomicWithReceive, concurrency: tunedAtomic, sends: true}}
	atomicLeases     = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionSendsAtomicWithReceive, concurrency: tunedReceiveOnly, sends: true}}
	atomicWrites     = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionSendsAtomicWithReceive, concurrency: tunedAtomic, work: writeRow}}
	nserviceBusTable = postgresSetup{repriseSetup: atomicWrites.repriseSetup, nserviceBus: true}
	atomicDefaults   = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionSendsAtomicWithReceive, sends: true}}

	rawLease       = rawSetup{batch: 256, workers: 1}
	rawLeaseLarge  = rawSetup{batch: 1000, workers: 1}
	rawLeaseSends  = rawSetup{batch: 256, workers: 1, sends: true}
	rawTransaction = rawSetup{workers: 16, sends: true}
	rawWrites      = rawSetup{workers: 16, writes: true}
)

// The most messages of a sample of slower work.
const (
	atomicMessages   = 20_000
	singleMessages   = 50_000
	riverMessages    = 3_000 // with its defaults
	watermillSingles = 5_000
)

func postgresReceiveOnly(ctx context.Context, l load) ([]table, error) {
	const own, raw, tuned = "Reprise", "raw, leases of 256", "River, tuned"
	full := backlog{messages: l.messages}
	c, err := compare(ctx, l.repetitions, []trial{
		rawLease.keeper(l, raw).at(full),
		rawLeaseLarge.keeper(l, "raw, leases of 1,000").at(full),
		riverTuned.keeper(l, tuned).at(full),
		riverDefaults.keeper(l, "River, defaults").at(backlog{messages: l.atMost(riverMessages).messages}),
		watermillSQLSetup{batch: 100}.keeper(l, "Watermill, batch 100").at(full),
		receiveOnlyTuned.keeper(l, own).at(full),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, concurrency %d", thousands(int64(l.messages)), tunedReceiveOnly), raw, tuned)
	t.aims = []aim{
		{what: "times " + raw, want: 0.8, got: c.times(own, raw)},
		{what: "times " + tuned, want: 2.5, got: c.times(own, tuned)},
	}
	return []table{t}, nil
}

func postgresAtomic(ctx context.Context, l load) ([]table, error) {
	const own, nserviceBus, raw, grouped = "Reprise", "Reprise, tables of NServiceBus", "raw, transactions", "raw, leases of 256"
	sends, writes := l.messages, l.atMost(atomicMessages).messages
	c, err := compare(ctx, l.repetitions, []trial{
		rawLeaseSends.keeper(l, grouped).at(backlog{messages: sends}),
		rawTransaction.keeper(l, raw).at(backlog{messages: writes}),
		watermillSQLSetup{batch: 1, sends: true}.keeper(l, "Watermill, batch 1").at(backlog{messages: l.atMost(watermillSingles).messages}),
		atomic16.keeper(l, "Reprise, concurrency 16").at(backlog{messages: sends}),
		atomicLeases.keeper(l, own).at(backlog{messages: sends}),
	})
	if err != nil {
		return nil, err
	}
	sending := c.table(fmt.Sprintf("Handlers that send, a backlog of %s, concurrency %d", thousands(int64(sends)), tunedReceiveOnly), grouped, raw)
	sending.aims = []aim{
		{what: "times " + grouped, want: 0.7, got: c.times(own, grouped)},
		{what: "times " + raw, want: 4, got: c.times(own, raw)},
	}
	c, err = compare(ctx, l.repetitions, []trial{
		rawWrites.keeper(l, raw).at(backlog{messages: writes}),
		nserviceBusTable.keeper(l, nserviceBus).at(backlog{messages: writes}),
		atomicWrites.keeper(l, own).at(backlog{messages: writes}),
	})
	if err != nil {
		return nil, err
	}
	writing := c.table(fmt.Sprintf("Handlers that write one row, a backlog of %s, concurrency %d", thousands(int64(writes)), tunedAtomic), raw)
	writing.aims = []aim{
		{what: "times " + raw, want: 0.9, got: c.times(own, raw)},
		{what: "times " + nserviceBus, want: 1.1, got: c.times(own, nserviceBus)},
	}
	return []table{sending, writing}, nil
}

func postgresSend(ctx context.Context, l load) ([]table, error) {
	const own, raw = "Reprise", "raw"
	var tables []table
	for _, w := range []struct {
		title string
		sending
		want float64
	}{
		{"One message a call", sending{l.atMost(singleMessages).messages, 16, 1}, 0},
		{"100 messages a call", sending{l.messages, 8, 100}, 0.9},
	} {
		trials := []trial{w.at(rawLease.keeper(l, raw)), w.at(receiveOnly.keeper(l, own)), w.at(watermillSQLSetup{}.keeper(l, "Watermill"))}
		trials = append(trials, sending{l.atMost(w.messages / 2).messages, w.goroutines, w.batch}.at(riverTuned.keeper(l, "River")))
		c, err := compare(ctx, l.repetitions, trials)
		if err != nil {
			return nil, err
		}
		t := c.table(w.title, raw)
		if w.want > 0 {
			t.aims = []aim{{what: "times " + raw, want: w.want, got: c.times(own, raw)}}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func postgresRetry(ctx context.Context, l load) ([]table, error) {
	const failing = ", failing once"
	var tables []table
	for _, m := range []struct {
		title string
		postgresSetup
		messages int
	}{
		{"ReceiveOnly", receiveOnlyTuned, l.messages},
		{"SendsAtomicWithReceive, the handler sends one message", atomic16, l.atMost(atomicMessages).messages},
	} {
		const own = "Reprise"
		c, err := compare(ctx, l.repetitions, []trial{
			m.keeper(l, own).at(backlog{messages: m.messages}),
			m.keeper(l, own+failing).at(backlog{messages: m.messages, failures: 1}),
		})
		if err != nil {
			return nil, err
		}
		t := c.table(fmt.Sprintf("%s, a backlog of %s", m.title, thousands(int64(m.messages))), own)
		t.aims = []aim{{what: "times its own success rate", want: 0.4, got: c.times(own+failing, own)}}
		tables = append(tables, t)
	}
	return tables, nil
}

func postgresLatency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(200)
	apart := func(s postgresSetup) postgresSetup {
		s.apart, s.sends = true, false
		return s
	}
	here := atomicDefaults
	here.sends = false
	var contenders []contender
	for _, k := range []keeper{
		riverTuned.keeper(l, "River, tuned"),
		apart(receiveOnly).keeper(l, "Reprise, ReceiveOnly, sender elsewhere"),
		apart(atomicDefaults).keeper(l, "Reprise, SendsAtomicWithReceive, sender elsewhere"),
		receiveOnly.keeper(l, "Reprise, ReceiveOnly, the same transport"),
		here.keeper(l, "Reprise, SendsAtomicWithReceive, the same transport"),
	} {
		contenders = append(contenders, k.contender())
	}
	rounds, err := inTurn(contenders, l.repetitions, func(c contender) ([]time.Duration, error) {
		return c.latency(ctx, l.messages, serverPause)
	})
	if err != nil {
		return nil, err
	}
	t := latencyTable(contenders, rounds)
	for i, c := range contenders[1:] {
		t.aims = append(t.aims, aim{what: c.name + ", p99 in ms", want: 10, got: medianPercentile(rounds[i+1], 99), ceiling: true})
	}
	return []table{t}, nil
}

func postgresDefaults(ctx context.Context, l load) ([]table, error) {
	var tables []table
	for _, m := range []struct {
		title           string
		defaults, tuned postgresSetup
		messages        int
	}{
		{"ReceiveOnly", receiveOnly, receiveOnlyTuned, l.messages},
		{"SendsAtomicWithReceive, the handler sends one message", atomicDefaults, atomic16, l.atMost(atomicMessages).messages},
	} {
		const tuned, defaults = "tuned", "defaults"
		c, err := compare(ctx, l.repetitions, backlog{messages: m.messages}.at(m.tuned.keeper(l, tuned), m.defaults.keeper(l, defaults)))
		if err != nil {
			return nil, err
		}
		t := c.table(fmt.Sprintf("%s, concurrency %d when tuned", m.title, m.tuned.concurrency), tuned)
		t.aims = []aim{{what: "times " + tuned, want: 0.5, got: c.times(defaults, tuned)}}
		tables = append(tables, t)
	}
	return tables, nil
}
