package inmemory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/stats"
	"github.com/reprise-go/reprise/bench/internal/table"
)

// handlerWait is the time of a handler that calls another service.
const handlerWait = time.Millisecond

func concurrency(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	l = l.AtMost(50_000)
	t := table.Table{Title: "Messages/s by concurrency, free-running", Head: []string{"concurrency"},
		Growth: &table.Growth{Quantity: "concurrency", Figure: "messages/s", Factors: true}}
	for _, m := range modes {
		t.Head = append(t.Head, m.name)
	}
	for _, m := range modes {
		t.Head = append(t.Head, m.name+", 1 ms")
	}
	levels := []int{1, 4, 16, 64, 256}
	var trials []measure.Trial
	for _, n := range levels {
		var idle, waiting []measure.Trial
		for _, m := range modes {
			c := repriseContender(reprise.Setup{Mode: m.mode, Concurrency: n}, m.name)
			idle = append(idle, c.Trial(measure.Work{Messages: l.Messages}))
			// A fifth of a second's work at every concurrency.
			waiting = append(waiting, c.Delayed(handlerWait).Trial(measure.Work{Messages: l.AtMost(200 * n).Messages}))
		}
		trials = append(append(trials, idle...), waiting...)
	}
	c, err := compare.Run(ctx, l.Repetitions, trials)
	if err != nil {
		return nil, err
	}
	columns := 2 * len(modes)
	for i, samples := range slices.Collect(slices.Chunk(c.Samples, columns)) {
		row := []string{fmt.Sprint(levels[i])}
		for column, s := range samples {
			rate := stats.Median(stats.Values(s, measure.Sample.Rate))
			row = append(row, table.Number(rate))
			t.Growth.Add(t.Head[column+1], float64(levels[i]), rate)
		}
		t.Rows = append(t.Rows, row)
	}
	return []table.Table{t}, nil
}

func bodySizes(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	l = l.AtMost(20_000)
	t := table.Table{Title: "Messages/s by body size; Reprise gives every handler a body of its own, Watermill shares the sender's",
		Head:   []string{"KiB", retryWatermill},
		Growth: &table.Growth{Quantity: "body, KiB", Figure: "messages/s", Factors: true}}
	for _, m := range modes {
		t.Head = append(t.Head, m.name, "× "+retryWatermill)
	}
	for _, size := range []int{256, 4 << 10, 64 << 10} {
		contenders := []measure.Contender{watermillSetup{retry: true, bodySize: size}.contender(retryWatermill)}
		for _, m := range modes {
			contenders = append(contenders, repriseContender(reprise.Setup{Mode: m.mode, BodySize: size}, m.name))
		}
		c, err := compare.Run(ctx, l.Repetitions, measure.Work{Messages: l.Messages}.Trials(contenders...))
		if err != nil {
			return nil, err
		}
		kib := float64(size) / 1024
		row := []string{table.Number(kib), table.Number(c.Rate(retryWatermill))}
		for _, trial := range c.Trials {
			t.Growth.Add(trial.Name, kib, c.Rate(trial.Name))
		}
		for _, m := range modes {
			row = append(row, table.Number(c.Rate(m.name)), table.Number(c.RateRatio(m.name, retryWatermill)))
		}
		t.Rows = append(t.Rows, row)
	}
	return []table.Table{t}, nil
}
