package main

import (
	"context"
	"slices"
	"time"
)

func inMemoryTransport(ctx context.Context, l load) ([]table, error) {
	return besideWatermill(ctx, l, repriseSetup{}, inMemoryAims{times: 4, allocs: 10})
}

func inMemoryEndpoint(ctx context.Context, l load) ([]table, error) {
	return besideWatermill(ctx, l, repriseSetup{endpoint: true}, inMemoryAims{allocs: 16})
}

// besideWatermill compares both modes with both routers, at both paces.
func besideWatermill(ctx context.Context, l load, setup repriseSetup, aims inMemoryAims) ([]table, error) {
	var tables []table
	for _, p := range []struct {
		title string
		pace  pace
	}{
		{"Free-running", freeRunning},
		{"Blocking: the sender waits until each message is handled", blocking},
	} {
		contenders := []contender{
			watermillSetup{blocking: p.pace == blocking}.contender(plainWatermill),
			watermillSetup{blocking: p.pace == blocking, retry: true}.contender(retryWatermill),
		}
		for _, m := range inMemoryModes {
			setup.mode = m.mode
			contenders = append(contenders, repriseContender(setup, m.name))
		}
		c, err := compare(ctx, l.repetitions, work{pace: p.pace, messages: l.messages}.at(contenders...))
		if err != nil {
			return nil, err
		}
		t := c.table(p.title, plainWatermill, retryWatermill)
		own := inMemoryModes[0].name
		if aims.times > 0 {
			t.aims = append(t.aims, aim{what: "times " + retryWatermill, want: aims.times, got: c.times(own, retryWatermill)})
		}
		t.aims = append(t.aims, aim{what: "allocations a message", want: aims.allocs, got: c.allocs(own), ceiling: true})
		tables = append(tables, t)
	}
	return tables, nil
}

func inMemoryRetry(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(50_000)
	succeeds := work{messages: l.messages}
	fails := work{messages: l.messages, failures: 1}
	const failing = ", failing once"
	names := []string{retryWatermill}
	trials := []trial{
		watermillSetup{retry: true}.contender(retryWatermill).at(succeeds),
		watermillSetup{retry: true}.contender(retryWatermill + failing).at(fails),
	}
	for _, m := range inMemoryModes {
		setup := repriseSetup{mode: m.mode}
		names = append(names, m.name)
		trials = append(trials, repriseContender(setup, m.name).at(succeeds), repriseContender(setup, m.name+failing).at(fails))
	}
	c, err := compare(ctx, l.repetitions, trials)
	if err != nil {
		return nil, err
	}
	t := c.table("Free-running, messages of a sample: "+thousands(int64(l.messages)), retryWatermill+failing)
	t.head = append(t.head, "× own success")
	for i := range t.rows {
		t.rows[i] = append(t.rows[i], number(c.times(trials[i].name, names[i/2])))
	}
	own := inMemoryModes[0].name
	t.aims = []aim{{what: "times its own success rate", want: 0.4, got: c.times(own+failing, own)}}
	return []table{t}, nil
}

func inMemoryLatency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(1000)
	contenders := []contender{
		watermillSetup{}.contender(plainWatermill),
		watermillSetup{retry: true}.contender(retryWatermill),
	}
	for _, m := range inMemoryModes {
		contenders = append(contenders, repriseContender(repriseSetup{mode: m.mode}, m.name))
	}
	rounds, err := inTurn(contenders, l.repetitions, func(c contender) ([]time.Duration, error) {
		return c.latency(ctx, l.messages, inMemoryPause)
	})
	if err != nil {
		return nil, err
	}
	t := latencyTable(contenders, rounds)
	first := slices.IndexFunc(contenders, func(c contender) bool { return c.name == inMemoryModes[0].name })
	t.aims = []aim{{what: "p99 in ms", want: 0.2, got: medianPercentile(rounds[first], 99), ceiling: true}}
	return []table{t}, nil
}
