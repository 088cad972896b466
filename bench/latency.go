package main

import (
	"context"
	"slices"
	"time"
)

// Pauses that are long enough for every goroutine to park, and for a receiver to find the
// queue empty.
const (
	inMemoryPause = 300 * time.Microsecond
	serverPause   = 20 * time.Millisecond
)

// latency sends one message at a time to an idle system, and returns the time of each
// from before the send to the handler's first line.
func (c contender) latency(ctx context.Context, messages int, pause time.Duration) ([]time.Duration, error) {
	warm := max(messages/warmUp, 1)
	l := newLedger(warm+messages, 0)
	sent := make([]time.Time, warm+messages)
	took := make([]time.Duration, warm+messages)
	handle := func(sequence string) error {
		if n := sequenceNumber(sequence); n >= 0 && n < len(sent) {
			took[n] = time.Since(sent[n])
		}
		return l.handle(sequence)
	}
	list := newSequences(warm + messages)
	err := c.opened(ctx, l, handle, func(ctx context.Context, sys system) error {
		for i := range warm + messages {
			time.Sleep(pause)
			l.expect(i + 1)
			sent[i] = time.Now()
			if err := sys.send(ctx, list.at(i)); err != nil {
				return err
			}
			if err := l.wait(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return took[warm:], nil
}

func inMemoryLatency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(1000)
	contenders := []contender{
		watermillSetup{}.contender(plainWatermill),
		watermillSetup{retry: true}.contender(retryWatermill),
	}
	for _, m := range inMemoryModes {
		contenders = append(contenders, repriseSetup{mode: m.mode}.inMemory(m.name))
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

// latencyTable lists percentiles of the latencies of each contender: the medians of the
// rounds' percentiles.
func latencyTable(contenders []contender, rounds [][][]time.Duration) table {
	t := table{title: "Milliseconds", head: []string{"", "p50", "p99", "p99 of the best and the worst round"}}
	for i, c := range contenders {
		p99 := of(rounds[i], func(took []time.Duration) float64 { return millis(percentile(took, 99)) })
		t.rows = append(t.rows, []string{
			c.name,
			number(medianPercentile(rounds[i], 50)),
			number(medianPercentile(rounds[i], 99)),
			number(slices.Min(p99)) + " .. " + number(slices.Max(p99)),
		})
	}
	return t
}

// medianPercentile is the median of a percentile of each round, in
// milliseconds.
func medianPercentile(rounds [][]time.Duration, p float64) float64 {
	return median(of(rounds, func(took []time.Duration) float64 { return millis(percentile(took, p)) }))
}
