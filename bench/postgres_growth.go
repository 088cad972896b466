package main

import (
	"context"
	"fmt"
	"time"
)

func (s *postgresSystem) backlog(ctx context.Context, l load) ([]table, error) {
	const own, raw = "Reprise", "raw, leases of 256"
	// A short backlog is handled several times, so that a sample is long enough.
	depths := []int{l.messages / 10, l.messages / 5, l.messages, 10 * l.messages}
	var trials []trial
	for _, depth := range depths {
		w := backlog{messages: max(depth, 2), drains: min(max(1, l.messages/max(depth, 1)/2), 5)}
		for _, k := range []keeper{rawLease.keeper(s, raw), receiveOnlyTuned.keeper(s, own)} {
			k.name = atDepth(k.name, depth)
			trials = append(trials, k.at(w))
		}
	}
	c, err := compare(ctx, l.repetitions, trials)
	if err != nil {
		return nil, err
	}
	base := atDepth(own, depths[1])
	t := table{title: "Messages/s by backlog", head: []string{"backlog", raw, own, "× " + raw, "× " + own + " at " + thousands(int64(depths[1]))},
		growth: &growth{quantity: "backlog", figure: "messages/s"}}
	for _, depth := range depths {
		name := atDepth(own, depth)
		for _, line := range []string{raw, own} {
			t.growth.add(line, float64(depth), c.rate(atDepth(line, depth)))
		}
		t.rows = append(t.rows, []string{
			thousands(int64(depth)), number(c.rate(atDepth(raw, depth))), number(c.rate(name)),
			number(c.times(name, atDepth(raw, depth))), number(c.times(name, base)),
		})
	}
	t.aims = []aim{{
		what: fmt.Sprintf("rate at %s, times that at %s", thousands(int64(depths[3])), thousands(int64(depths[1]))),
		want: 0.8, got: c.times(atDepth(own, depths[3]), base),
	}}
	return []table{t}, nil
}

func (s *postgresSystem) snapshot(ctx context.Context, l load) ([]table, error) {
	messages := max(2*l.messages, parts)
	type subject struct {
		keeper
		stream
	}
	var subjects []subject
	for _, k := range []keeper{rawLease.keeper(s, "raw, leases of 256"), receiveOnlyTuned.keeper(s, "Reprise")} {
		subjects = append(subjects, subject{k, stream{messages, false}})
		k.name += ", old snapshot"
		subjects = append(subjects, subject{k, stream{messages, true}})
	}
	rounds, err := inTurn(subjects, l.repetitions, func(each subject) ([]float64, error) { return each.rates(ctx, each.stream) })
	if err != nil {
		return nil, err
	}
	t := table{title: fmt.Sprintf("Messages/s of each quarter of %s messages, sent as they are handled", thousands(int64(messages))),
		head: []string{"", "1st", "2nd", "3rd", "4th", "4th × 1st"}}
	part := func(i int) func([]float64) float64 { return func(rates []float64) float64 { return rates[i] } }
	for i, each := range subjects {
		row := []string{each.name}
		for p := range parts {
			row = append(row, number(median(of(rounds[i], part(p)))))
		}
		t.rows = append(t.rows, append(row, number(ratio(of(rounds[i], part(parts-1)), of(rounds[i], part(0))))))
	}
	last := len(subjects) - 1
	t.aims = []aim{{what: "the 4th quarter with an old snapshot, times the one without", want: 0.8,
		got: ratio(of(rounds[last], part(parts-1)), of(rounds[last-1], part(parts-1)))}}
	return []table{t}, nil
}

func (s *postgresSystem) concurrency(ctx context.Context, l load) ([]table, error) {
	t := table{title: "Messages/s by concurrency; 5 ms is how long each handler waits", head: []string{
		"concurrency", "ReceiveOnly", "SendsAtomicWithReceive", "ReceiveOnly, 5 ms", "SendsAtomicWithReceive, 5 ms"},
		growth: &growth{quantity: "concurrency", figure: "messages/s", factors: true}}
	const wait = 5 * time.Millisecond
	for _, n := range []int{1, 4, 16, 64, 256} {
		leases, atomic := receiveOnly, atomicDefaults
		leases.concurrency, atomic.concurrency, atomic.sends = n, n, false
		c, err := compare(ctx, l.repetitions, []trial{
			leases.keeper(s, "leases").at(backlog{messages: l.atMost(5_000 * n).messages}),
			atomic.keeper(s, "atomic").at(backlog{messages: l.atMost(min(2_000*n, atomicMessages)).messages}),
			leases.keeper(s, "leases, waiting").delayed(wait).at(backlog{messages: l.atMost(200 * n).messages}),
			atomic.keeper(s, "atomic, waiting").delayed(wait).at(backlog{messages: l.atMost(min(200*n, atomicMessages)).messages}),
		})
		if err != nil {
			return nil, err
		}
		c.addRates(&t, float64(n))
	}
	return []table{t}, nil
}

func (s *postgresSystem) instances(ctx context.Context, l load) ([]table, error) {
	t := table{title: "Messages/s by instances", head: []string{"instances", "ReceiveOnly", "SendsAtomicWithReceive"},
		growth: &growth{quantity: "instances", figure: "messages/s"}}
	for _, n := range []int{1, 2, 4} {
		leases, atomic := receiveOnlyTuned, atomic16
		leases.instances, atomic.instances, atomic.sends = n, n, false
		c, err := compare(ctx, l.repetitions, []trial{
			leases.keeper(s, "leases").at(backlog{messages: l.messages}),
			atomic.keeper(s, "atomic").at(backlog{messages: l.atMost(atomicMessages).messages}),
		})
		if err != nil {
			return nil, err
		}
		c.addRates(&t, float64(n))
	}
	return []table{t}, nil
}

func (s *postgresSystem) body(ctx context.Context, l load) ([]table, error) {
	t := table{title: "Messages/s by body size", head: []string{"KiB", "ReceiveOnly", "SendsAtomicWithReceive"},
		growth: &growth{quantity: "body, KiB", figure: "messages/s", factors: true}}
	for _, b := range []struct{ size, most int }{{256, 50_000}, {4 << 10, 20_000}, {64 << 10, 2_000}} {
		leases, atomic := receiveOnlyTuned, atomic16
		leases.bodySize, atomic.bodySize, atomic.sends = b.size, b.size, false
		c, err := compare(ctx, l.repetitions, []trial{
			leases.keeper(s, "leases").at(backlog{messages: l.atMost(b.most).messages}),
			atomic.keeper(s, "atomic").at(backlog{messages: l.atMost(min(b.most, atomicMessages)).messages}),
		})
		if err != nil {
			return nil, err
		}
		c.addRates(&t, float64(b.size)/1024)
	}
	return []table{t}, nil
}
