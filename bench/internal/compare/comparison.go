// Package compare takes samples of several contenders in turn, and makes tables with their ratios.
package compare

import (
	"context"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/stats"
	"github.com/reprise-go/reprise/bench/internal/table"
)

// Comparison has the samples of several trials, taken in turn.
type Comparison struct {
	Trials  []measure.Trial
	Samples [][]measure.Sample // a row for each trial
}

// Run takes samples of all trials, in turn, in a number of rounds.
func Run(ctx context.Context, rounds int, trials []measure.Trial) (Comparison, error) {
	samples, err := InTurn(trials, rounds, func(t measure.Trial) (measure.Sample, error) { return t.Measure(ctx) })
	return Comparison{trials, samples}, err
}

// find returns the samples of a trial by its name. A name that does not exist is a
// mistake in the scenario.
func (c Comparison) find(name string) []measure.Sample {
	i := slices.IndexFunc(c.Trials, func(t measure.Trial) bool { return t.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("there is no trial %q", name))
	}
	return c.Samples[i]
}

// Rate returns the messages per second of a trial: the median of its samples.
func (c Comparison) Rate(name string) float64 {
	return stats.Median(stats.Values(c.find(name), measure.Sample.Rate))
}

// AddRates adds the results for one value of the growing quantity to t: a row with the rates
// of all trials, and a point for each.
func (c Comparison) AddRates(t *table.Table, quantity float64) {
	row := []string{table.Number(quantity)}
	for i, trial := range c.Trials {
		rate := c.Rate(trial.Name)
		row = append(row, table.Number(rate))
		t.Growth.Add(t.Head[i+1], quantity, rate)
	}
	t.Rows = append(t.Rows, row)
}

// Allocs returns the allocations per message of a trial: the median of its samples.
func (c Comparison) Allocs(name string) float64 {
	return stats.Median(stats.Values(c.find(name), measure.Sample.AllocsEach))
}

// RateRatio returns the rate of a trial as a multiple of base's.
func (c Comparison) RateRatio(name, base string) float64 {
	return stats.Ratio(stats.Values(c.find(name), measure.Sample.Rate), stats.Values(c.find(base), measure.Sample.Rate))
}

// RequestRatio returns the requests per message of a trial as a multiple of base's.
func (c Comparison) RequestRatio(name, base string) float64 {
	return stats.Ratio(stats.Values(c.find(name), measure.Sample.RequestsEach), stats.Values(c.find(base), measure.Sample.RequestsEach))
}

// countsRequests reports whether requests were counted.
func (c Comparison) countsRequests() bool {
	return slices.ContainsFunc(c.Samples[0], func(s measure.Sample) bool { return s.RequestsEach() > 0 })
}

// Table lists all trials, with their ratio to each of the bases.
func (c Comparison) Table(title string, bases ...string) table.Table {
	t := table.Table{Title: title, Head: []string{"", "messages/s", "spread", "µs each", "allocs", "bytes"}}
	counted := c.countsRequests()
	if counted {
		t.Head = append(t.Head, "requests")
	}
	for _, base := range bases {
		t.Head = append(t.Head, "× "+base)
	}
	for i, trial := range c.Trials {
		samples := c.Samples[i]
		row := []string{
			trial.Name,
			table.Number(c.Rate(trial.Name)),
			table.Span(stats.Spread(stats.Values(samples, measure.Sample.Rate))),
			table.Number(stats.Median(stats.Values(samples, measure.Sample.Micros))),
			table.Number(c.Allocs(trial.Name)),
			table.Number(stats.Median(stats.Values(samples, measure.Sample.BytesEach))),
		}
		if counted {
			row = append(row, table.Number(stats.Median(stats.Values(samples, measure.Sample.RequestsEach))))
		}
		for _, base := range bases {
			row = append(row, table.Number(c.RateRatio(trial.Name, base)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// AtDepth returns the name of a trial of a contender with a backlog, so that trials of one contender with several backlogs have
// different names.
func AtDepth(name string, depth int) string { return fmt.Sprintf("%s, %d", name, depth) }
