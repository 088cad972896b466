package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// handlerWait is the time of a handler that calls another service.
const handlerWait = time.Millisecond

func inMemoryConcurrency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(50_000)
	t := table{title: "Messages/s by concurrency, free-running", head: []string{"concurrency"},
		growth: &growth{quantity: "concurrency", figure: "messages/s", factors: true}}
	for _, m := range inMemoryModes {
		t.head = append(t.head, m.name)
	}
	for _, m := range inMemoryModes {
		t.head = append(t.head, m.name+", 1 ms")
	}
	levels := []int{1, 4, 16, 64, 256}
	var trials []trial
	for _, n := range levels {
		var idle, waiting []trial
		for _, m := range inMemoryModes {
			c := repriseContender(repriseSetup{mode: m.mode, concurrency: n}, m.name)
			idle = append(idle, c.at(work{messages: l.messages}))
			// A fifth of a second's work at every concurrency.
			waiting = append(waiting, c.delayed(handlerWait).at(work{messages: l.atMost(200 * n).messages}))
		}
		trials = append(append(trials, idle...), waiting...)
	}
	c, err := compare(ctx, l.repetitions, trials)
	if err != nil {
		return nil, err
	}
	columns := 2 * len(inMemoryModes)
	for i, samples := range slices.Collect(slices.Chunk(c.samples, columns)) {
		row := []string{fmt.Sprint(levels[i])}
		for column, s := range samples {
			rate := median(of(s, sample.rate))
			row = append(row, number(rate))
			t.growth.add(t.head[column+1], float64(levels[i]), rate)
		}
		t.rows = append(t.rows, row)
	}
	return []table{t}, nil
}

func inMemoryBody(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(20_000)
	t := table{title: "Messages/s by body size; Reprise gives every handler a body of its own, Watermill shares the sender's",
		head:   []string{"KiB", retryWatermill},
		growth: &growth{quantity: "body, KiB", figure: "messages/s", factors: true}}
	for _, m := range inMemoryModes {
		t.head = append(t.head, m.name, "× "+retryWatermill)
	}
	for _, size := range []int{256, 4 << 10, 64 << 10} {
		contenders := []contender{watermillSetup{retry: true, bodySize: size}.contender(retryWatermill)}
		for _, m := range inMemoryModes {
			contenders = append(contenders, repriseContender(repriseSetup{mode: m.mode, bodySize: size}, m.name))
		}
		c, err := compare(ctx, l.repetitions, work{messages: l.messages}.at(contenders...))
		if err != nil {
			return nil, err
		}
		kib := float64(size) / 1024
		row := []string{number(kib), number(c.rate(retryWatermill))}
		for _, trial := range c.trials {
			t.growth.add(trial.name, kib, c.rate(trial.name))
		}
		for _, m := range inMemoryModes {
			row = append(row, number(c.rate(m.name)), number(c.times(m.name, retryWatermill)))
		}
		t.rows = append(t.rows, row)
	}
	return []table{t}, nil
}
