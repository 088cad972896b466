package rabbitmq

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
)

// deepRepetitions is the most samples of a backlog: each takes a minute with a
// million messages.
const deepRepetitions = 3

func (s *Server) backlog(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw = "Reprise", "raw, one ack each"
	t := table.Table{Title: "Messages/s by backlog", Head: []string{"backlog", raw, own, "× " + raw},
		Growth: &table.Growth{Quantity: "backlog", Figure: "messages/s"}}
	// A short backlog is handled several times, so that a sample is long enough.
	depths := []measure.Backlog{
		{Messages: max(l.Messages/10, 2), Drains: 5},
		{Messages: max(l.Messages, 2)},
		{Messages: 10 * l.Messages},
	}
	var trials []measure.Trial
	for _, w := range depths {
		for _, contender := range []measure.StoreContender{rawOneByOne.contender(s, raw), repriseTuned.contender(s, own)} {
			contender.Name = compare.AtDepth(contender.Name, w.Messages)
			trials = append(trials, contender.Trial(w))
		}
	}
	c, err := compare.Run(ctx, min(l.Repetitions, deepRepetitions), trials)
	if err != nil {
		return nil, err
	}
	for _, w := range depths {
		row := []string{table.Thousands(int64(w.Messages))}
		for _, line := range []string{raw, own} {
			rate := c.Rate(compare.AtDepth(line, w.Messages))
			row = append(row, table.Number(rate))
			t.Growth.Add(line, float64(w.Messages), rate)
		}
		t.Rows = append(t.Rows, append(row, table.Number(c.RateRatio(compare.AtDepth(own, w.Messages), compare.AtDepth(raw, w.Messages)))))
	}
	return []table.Table{t}, nil
}

func (s *Server) concurrency(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	t := table.Table{Title: "Messages/s by concurrency; 5 ms is how long each handler waits", Head: []string{"concurrency", "ReceiveOnly", "ReceiveOnly, 5 ms"},
		Growth: &table.Growth{Quantity: "concurrency", Figure: "messages/s", Factors: true}}
	const wait = 5 * time.Millisecond
	for _, n := range []int{1, 4, 16, 64, 256} {
		setup := reprisePlain
		setup.Concurrency = n
		c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
			setup.contender(s, "idle").Trial(measure.Backlog{Messages: l.AtMost(10_000 * n).Messages}),
			setup.contender(s, "waiting").Delayed(wait).Trial(measure.Backlog{Messages: l.AtMost(200 * n).Messages}),
		})
		if err != nil {
			return nil, err
		}
		c.AddRates(&t, float64(n))
	}
	return []table.Table{t}, nil
}

func (s *Server) instances(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	t := table.Table{Title: "Messages/s by instances", Head: []string{"instances", "ReceiveOnly"}, Growth: &table.Growth{Quantity: "instances", Figure: "messages/s"}}
	for _, n := range []int{1, 2, 4} {
		setup := repriseTuned
		setup.instances = n
		c, err := compare.Run(ctx, l.Repetitions, measure.Backlog{Messages: l.Messages}.Trials(setup.contender(s, "Reprise")))
		if err != nil {
			return nil, err
		}
		c.AddRates(&t, float64(n))
	}
	return []table.Table{t}, nil
}

func (s *Server) body(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	t := table.Table{Title: "Messages/s by body size", Head: []string{"KiB", "ReceiveOnly"}, Growth: &table.Growth{Quantity: "body, KiB", Figure: "messages/s", Factors: true}}
	for _, b := range []struct{ size, max int }{{256, 50_000}, {4 << 10, 20_000}, {64 << 10, 2_000}} {
		setup := repriseTuned
		setup.BodySize = b.size
		c, err := compare.Run(ctx, l.Repetitions, measure.Backlog{Messages: l.AtMost(b.max).Messages}.Trials(setup.contender(s, "Reprise")))
		if err != nil {
			return nil, err
		}
		c.AddRates(&t, float64(b.size)/1024)
	}
	return []table.Table{t}, nil
}
