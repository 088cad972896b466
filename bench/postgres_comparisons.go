package main

import (
	"context"
	"fmt"
	"time"
)

func (s *postgresSystem) receiveOnly(ctx context.Context, l load) ([]table, error) {
	const own, raw, tuned = "Reprise", "raw, leases of 256", "River, tuned"
	full := backlog{messages: l.messages}
	c, err := compare(ctx, l.repetitions, []trial{
		rawLease.keeper(s, raw).at(full),
		rawLeaseLarge.keeper(s, "raw, leases of 1,000").at(full),
		riverTuned.keeper(s, tuned).at(full),
		riverDefaults.keeper(s, "River, defaults").at(backlog{messages: l.atMost(riverMessages).messages}),
		watermillSQLSetup{batch: 100}.keeper(s, "Watermill, batch 100").at(full),
		receiveOnlyTuned.keeper(s, own).at(full),
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

func (s *postgresSystem) atomic(ctx context.Context, l load) ([]table, error) {
	const own, nserviceBus, raw, grouped = "Reprise", "Reprise, tables of NServiceBus", "raw, transactions", "raw, leases of 256"
	sends, writes := l.messages, l.atMost(atomicMessages).messages
	c, err := compare(ctx, l.repetitions, []trial{
		rawLeaseSends.keeper(s, grouped).at(backlog{messages: sends}),
		rawTransaction.keeper(s, raw).at(backlog{messages: writes}),
		watermillSQLSetup{batch: 1, sends: true}.keeper(s, "Watermill, batch 1").at(backlog{messages: l.atMost(watermillSingles).messages}),
		atomic16.keeper(s, "Reprise, concurrency 16").at(backlog{messages: sends}),
		atomicLeases.keeper(s, own).at(backlog{messages: sends}),
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
		rawWrites.keeper(s, raw).at(backlog{messages: writes}),
		nserviceBusTable.keeper(s, nserviceBus).at(backlog{messages: writes}),
		atomicWrites.keeper(s, own).at(backlog{messages: writes}),
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

func (s *postgresSystem) send(ctx context.Context, l load) ([]table, error) {
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
		trials := []trial{w.at(rawLease.keeper(s, raw)), w.at(receiveOnly.keeper(s, own)), w.at(watermillSQLSetup{}.keeper(s, "Watermill"))}
		trials = append(trials, sending{l.atMost(w.messages / 2).messages, w.goroutines, w.batch}.at(riverTuned.keeper(s, "River")))
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

func (s *postgresSystem) retry(ctx context.Context, l load) ([]table, error) {
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
			m.keeper(s, own).at(backlog{messages: m.messages}),
			m.keeper(s, own+failing).at(backlog{messages: m.messages, failures: 1}),
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

func (s *postgresSystem) latency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(200)
	apart := func(setup postgresSetup) postgresSetup {
		setup.apart, setup.sends = true, false
		return setup
	}
	here := atomicDefaults
	here.sends = false
	var contenders []contender
	for _, k := range []keeper{
		riverTuned.keeper(s, "River, tuned"),
		apart(receiveOnly).keeper(s, "Reprise, ReceiveOnly, sender elsewhere"),
		apart(atomicDefaults).keeper(s, "Reprise, SendsAtomicWithReceive, sender elsewhere"),
		receiveOnly.keeper(s, "Reprise, ReceiveOnly, the same transport"),
		here.keeper(s, "Reprise, SendsAtomicWithReceive, the same transport"),
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

func (s *postgresSystem) defaults(ctx context.Context, l load) ([]table, error) {
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
		c, err := compare(ctx, l.repetitions, backlog{messages: m.messages}.at(m.tuned.keeper(s, tuned), m.defaults.keeper(s, defaults)))
		if err != nil {
			return nil, err
		}
		t := c.table(fmt.Sprintf("%s, concurrency %d when tuned", m.title, m.tuned.concurrency), tuned)
		t.aims = []aim{{what: "times " + tuned, want: 0.5, got: c.times(defaults, tuned)}}
		tables = append(tables, t)
	}
	return tables, nil
}
