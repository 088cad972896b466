package asb

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
)

func (s *Servers) receive(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw = "Reprise", "raw"
	var tables []table.Table
	for _, place := range places {
		l := l.AtMost(cmp.Or(place.max, l.Messages))
		plain, tuned, loop := reprisePlain, repriseTuned, rawLoop
		plain.latency, tuned.latency, loop.latency = place.latency, place.latency, place.latency
		full := measure.Backlog{Messages: l.Messages}
		c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
			loop.contender(s, raw).Trial(full),
			tuned.contender(s, own).Trial(full),
			plain.contender(s, own+", defaults").Trial(measure.Backlog{Messages: l.AtMost(fewSlots).Messages}),
		})
		if err != nil {
			return nil, err
		}
		t := c.Table(fmt.Sprintf("A backlog of %s, %d links, concurrency %d, %s", table.Thousands(int64(l.Messages)), linkCount, tunedConcurrency, place.title), raw)
		t.Aims = aims(c, own, raw)
		tables = append(tables, t)
	}
	return tables, nil
}

func (s *Servers) send(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw = "Reprise", "raw"
	var tables []table.Table
	for _, place := range places {
		l := l.AtMost(cmp.Or(place.max, l.Messages))
		plain, loop := reprisePlain, rawLoop
		plain.latency, loop.latency = place.latency, place.latency
		for _, w := range []struct {
			title string
			measure.Sending
		}{
			{"One message a call, 16 goroutines", measure.Sending{Messages: l.AtMost(singles).Messages, Goroutines: 16, Batch: 1}},
			{"100 messages a call, 4 goroutines", measure.Sending{Messages: l.Messages, Goroutines: linkCount, Batch: 100}},
		} {
			c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{w.Trial(loop.contender(s, raw)), w.Trial(plain.contender(s, own))})
			if err != nil {
				return nil, err
			}
			t := c.Table(w.title+", "+place.title, raw)
			t.Aims = aims(c, own, raw)
			tables = append(tables, t)
		}
	}
	return tables, nil
}

func (s *Servers) retry(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw, failing = "Reprise", "raw", ", failing once"
	c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
		rawLoop.contender(s, raw).Trial(measure.Backlog{Messages: l.Messages}),
		rawLoop.contender(s, raw+failing).Trial(measure.Backlog{Messages: l.Messages, Failures: 1}),
		repriseTuned.contender(s, own).Trial(measure.Backlog{Messages: l.Messages}),
		repriseTuned.contender(s, own+failing).Trial(measure.Backlog{Messages: l.Messages, Failures: 1}),
	})
	if err != nil {
		return nil, err
	}
	t := c.Table(fmt.Sprintf("A backlog of %s, %d links, concurrency %d", table.Thousands(int64(l.Messages)), linkCount, tunedConcurrency), own, raw+failing)
	t.Aims = []table.Aim{{Figure: "times its own success rate", Want: 0.4, Got: c.RateRatio(own+failing, own)}}
	return []table.Table{t}, nil
}

func (s *Servers) latency(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	l = l.AtMost(200)
	one := rawLoop
	one.links, one.batch = 1, 1
	contenders := []measure.Contender{
		one.contender(s, "raw").Contender(),
		reprisePlain.contender(s, "Reprise").Contender(),
	}
	rounds, err := compare.InTurn(contenders, l.Repetitions, func(c measure.Contender) ([]time.Duration, error) {
		return c.Latencies(ctx, l.Messages, measure.ServerPause)
	})
	if err != nil {
		return nil, err
	}
	return []table.Table{compare.LatencyTable(contenders, rounds)}, nil
}
