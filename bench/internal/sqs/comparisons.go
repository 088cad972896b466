package sqs

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
	const own, raw, peer = "Reprise", "raw", "Watermill, tuned"
	var tables []table.Table
	for _, place := range places {
		l := l.AtMost(cmp.Or(place.max, l.Messages))
		plain, tuned, loop, mill, millDefaults := reprisePlain, repriseTuned, rawLoop, watermillTuned, watermillDefaults
		for _, latency := range []*time.Duration{&plain.latency, &tuned.latency, &loop.latency, &mill.latency, &millDefaults.latency} {
			*latency = place.latency
		}
		full := measure.Backlog{Messages: l.Messages}
		c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
			loop.contender(s, raw).Trial(full),
			tuned.contender(s, own).Trial(full),
			plain.contender(s, own+", defaults").Trial(measure.Backlog{Messages: l.AtMost(fewSlots).Messages}),
			mill.contender(s, peer).Trial(measure.Backlog{Messages: l.AtMost(watermillMessages).Messages}),
			millDefaults.contender(s, "Watermill, defaults").Trial(measure.Backlog{Messages: l.AtMost(watermillOneByOne).Messages}),
		})
		if err != nil {
			return nil, err
		}
		t := c.Table(fmt.Sprintf("A backlog of %s, %d pollers of the raw loop, concurrency %d, %s", table.Thousands(int64(l.Messages)), pollers, tunedConcurrency, place.title), raw, peer)
		t.Aims = aims(c, own, raw)
		tables = append(tables, t)
	}
	return tables, nil
}

func (s *Servers) send(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw, peer = "Reprise", "raw", "Watermill"
	single := measure.Sending{Messages: l.AtMost(singles).Messages, Goroutines: 16, Batch: 1}
	c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
		single.Trial(rawLoop.contender(s, raw)),
		single.Trial(reprisePlain.contender(s, own)),
		single.Trial(watermillTuned.contender(s, peer)),
	})
	if err != nil {
		return nil, err
	}
	tables := []table.Table{c.Table("One message a call, 16 goroutines", raw)}

	many := measure.Sending{Messages: l.Messages, Goroutines: pollers, Batch: 100}
	fewer := many
	fewer.Messages = l.AtMost(watermillMessages).Messages
	c, err = compare.Run(ctx, l.Repetitions, []measure.Trial{
		many.Trial(rawLoop.contender(s, raw)),
		many.Trial(reprisePlain.contender(s, own)),
		fewer.Trial(watermillTuned.contender(s, peer)),
	})
	if err != nil {
		return nil, err
	}
	t := c.Table(fmt.Sprintf("100 messages a call, %d goroutines", pollers), raw)
	t.Aims = aims(c, own, raw)
	return append(tables, t), nil
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
	t := c.Table(fmt.Sprintf("A backlog of %s, %d pollers of the raw loop, concurrency %d", table.Thousands(int64(l.Messages)), pollers, tunedConcurrency), own, raw+failing)
	t.Aims = []table.Aim{
		{Figure: "times its own success rate", Want: 0.4, Got: c.RateRatio(own+failing, own)},
		{Figure: "requests a message, times " + raw + failing, Want: requestsAim, Got: c.RequestRatio(own+failing, raw+failing), Ceiling: true},
	}
	return []table.Table{t}, nil
}

func (s *Servers) latency(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	l = l.AtMost(200)
	contenders := []measure.Contender{
		rawLoop.contender(s, "raw").Contender(),
		watermillTuned.contender(s, "Watermill").Contender(),
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
