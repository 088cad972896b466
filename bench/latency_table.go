package main

import (
	"slices"
	"time"
)

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
