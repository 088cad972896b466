package inmemory

import (
	"context"
	"slices"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
)

func transportSend(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	return besideWatermill(ctx, l, reprise.Setup{}, modeAims{times: 4, allocs: 10})
}

func endpointSend(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	return besideWatermill(ctx, l, reprise.Setup{EndpointSend: true}, modeAims{allocs: 16})
}

// besideWatermill compares both modes with both routers, at both paces.
func besideWatermill(ctx context.Context, l scenario.Load, setup reprise.Setup, aims modeAims) ([]table.Table, error) {
	var tables []table.Table
	for _, p := range []struct {
		title string
		pace  measure.Pace
	}{
		{"Free-running", measure.FreeRunning},
		{"Blocking: the sender waits until each message is handled", measure.Blocking},
	} {
		contenders := []measure.Contender{
			watermillSetup{blocking: p.pace == measure.Blocking}.contender(plainWatermill),
			watermillSetup{blocking: p.pace == measure.Blocking, retry: true}.contender(retryWatermill),
		}
		for _, m := range modes {
			setup.Mode = m.mode
			contenders = append(contenders, repriseContender(setup, m.name))
		}
		c, err := compare.Run(ctx, l.Repetitions, measure.Work{Pace: p.pace, Messages: l.Messages}.Trials(contenders...))
		if err != nil {
			return nil, err
		}
		t := c.Table(p.title, plainWatermill, retryWatermill)
		own := modes[0].name
		if aims.times > 0 {
			t.Aims = append(t.Aims, table.Aim{Figure: "times " + retryWatermill, Want: aims.times, Got: c.RateRatio(own, retryWatermill)})
		}
		t.Aims = append(t.Aims, table.Aim{Figure: "allocations a message", Want: aims.allocs, Got: c.Allocs(own), Ceiling: true})
		tables = append(tables, t)
	}
	return tables, nil
}

func retry(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	l = l.AtMost(50_000)
	succeeds := measure.Work{Messages: l.Messages}
	fails := measure.Work{Messages: l.Messages, Failures: 1}
	const failing = ", failing once"
	names := []string{retryWatermill}
	trials := []measure.Trial{
		watermillSetup{retry: true}.contender(retryWatermill).Trial(succeeds),
		watermillSetup{retry: true}.contender(retryWatermill + failing).Trial(fails),
	}
	for _, m := range modes {
		setup := reprise.Setup{Mode: m.mode}
		names = append(names, m.name)
		trials = append(trials, repriseContender(setup, m.name).Trial(succeeds), repriseContender(setup, m.name+failing).Trial(fails))
	}
	c, err := compare.Run(ctx, l.Repetitions, trials)
	if err != nil {
		return nil, err
	}
	t := c.Table("Free-running, messages of a sample: "+table.Thousands(int64(l.Messages)), retryWatermill+failing)
	t.Head = append(t.Head, "× own success")
	for i := range t.Rows {
		t.Rows[i] = append(t.Rows[i], table.Number(c.RateRatio(trials[i].Name, names[i/2])))
	}
	own := modes[0].name
	t.Aims = []table.Aim{{Figure: "times its own success rate", Want: 0.4, Got: c.RateRatio(own+failing, own)}}
	return []table.Table{t}, nil
}

func latency(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	l = l.AtMost(1000)
	contenders := []measure.Contender{
		watermillSetup{}.contender(plainWatermill),
		watermillSetup{retry: true}.contender(retryWatermill),
	}
	for _, m := range modes {
		contenders = append(contenders, repriseContender(reprise.Setup{Mode: m.mode}, m.name))
	}
	rounds, err := compare.InTurn(contenders, l.Repetitions, func(c measure.Contender) ([]time.Duration, error) {
		return c.Latencies(ctx, l.Messages, measure.InMemoryPause)
	})
	if err != nil {
		return nil, err
	}
	t := compare.LatencyTable(contenders, rounds)
	first := slices.IndexFunc(contenders, func(c measure.Contender) bool { return c.Name == modes[0].name })
	t.Aims = []table.Aim{{Figure: "p99 in ms", Want: 0.2, Got: compare.MedianPercentile(rounds[first], 99), Ceiling: true}}
	return []table.Table{t}, nil
}
