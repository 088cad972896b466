package main

import (
	"context"
	"fmt"
	"slices"
)

// comparison has the samples of several trials, taken in turn.
type comparison struct {
	trials  []trial
	samples [][]sample // a row for each trial
}

func compare(ctx context.Context, rounds int, trials []trial) (comparison, error) {
	samples, err := inTurn(trials, rounds, func(t trial) (sample, error) { return t.measure(ctx) })
	return comparison{trials, samples}, err
}

// of returns the samples of a trial by its name. A name that does not exist is a
// mistake in the scenario.
func (c comparison) of(name string) []sample {
	i := slices.IndexFunc(c.trials, func(t trial) bool { return t.name == name })
	if i < 0 {
		panic(fmt.Sprintf("there is no trial %q", name))
	}
	return c.samples[i]
}

func (c comparison) rate(name string) float64 { return median(of(c.of(name), sample.rate)) }

// addRates adds the results for one value of the growing quantity to t: a row with the rates
// of all trials, and a point for each.
func (c comparison) addRates(t *table, quantity float64) {
	row := []string{number(quantity)}
	for i, trial := range c.trials {
		rate := c.rate(trial.name)
		row = append(row, number(rate))
		t.growth.add(t.head[i+1], quantity, rate)
	}
	t.rows = append(t.rows, row)
}

func (c comparison) allocs(name string) float64 { return median(of(c.of(name), sample.allocsEach)) }

// times returns the rate of a trial as a multiple of base's.
func (c comparison) times(name, base string) float64 {
	return ratio(of(c.of(name), sample.rate), of(c.of(base), sample.rate))
}

// timesRequests returns the requests per message of a trial as a multiple of base's.
func (c comparison) timesRequests(name, base string) float64 {
	return ratio(of(c.of(name), sample.requestsEach), of(c.of(base), sample.requestsEach))
}

// countsRequests reports whether requests were counted.
func (c comparison) countsRequests() bool {
	return slices.ContainsFunc(c.samples[0], func(s sample) bool { return s.requests > 0 })
}

// table lists all trials, with their ratio to each of the bases.
func (c comparison) table(title string, bases ...string) table {
	t := table{title: title, head: []string{"", "messages/s", "spread", "µs each", "allocs", "bytes"}}
	counted := c.countsRequests()
	if counted {
		t.head = append(t.head, "requests")
	}
	for _, base := range bases {
		t.head = append(t.head, "× "+base)
	}
	for i, trial := range c.trials {
		samples := c.samples[i]
		row := []string{
			trial.name,
			number(c.rate(trial.name)),
			span(spread(of(samples, sample.rate))),
			number(median(of(samples, sample.micros))),
			number(c.allocs(trial.name)),
			number(median(of(samples, sample.bytesEach))),
		}
		if counted {
			row = append(row, number(median(of(samples, sample.requestsEach))))
		}
		for _, base := range bases {
			row = append(row, number(c.times(trial.name, base)))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// atDepth is the name of a trial with a backlog.
func atDepth(name string, depth int) string { return fmt.Sprintf("%s, %d", name, depth) }
