package compare

import (
	"slices"
	"time"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/stats"
	"github.com/reprise-go/reprise/bench/internal/table"
)

// LatencyTable lists percentiles of the latencies of each contender: the medians of the
// rounds' percentiles.
func LatencyTable(contenders []measure.Contender, rounds [][][]time.Duration) table.Table {
	t := table.Table{Title: "Milliseconds", Head: []string{"", "p50", "p99", "p99 of the best and the worst round"}}
	for i, c := range contenders {
		p99 := stats.Values(rounds[i], func(took []time.Duration) float64 { return stats.Millis(stats.Percentile(took, 99)) })
		t.Rows = append(t.Rows, []string{
			c.Name,
			table.Number(MedianPercentile(rounds[i], 50)),
			table.Number(MedianPercentile(rounds[i], 99)),
			table.Number(slices.Min(p99)) + " .. " + table.Number(slices.Max(p99)),
		})
	}
	return t
}

// MedianPercentile is the median of a percentile of each round, in
// milliseconds.
func MedianPercentile(rounds [][]time.Duration, p float64) float64 {
	return stats.Median(stats.Values(rounds, func(took []time.Duration) float64 { return stats.Millis(stats.Percentile(took, p)) }))
}
