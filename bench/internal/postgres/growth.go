package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/stats"
	"github.com/reprise-go/reprise/bench/internal/table"
)

func (s *Server) backlog(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw = "Reprise", "raw, leases of 256"
	// A short backlog is handled several times, so that a sample is long enough.
	depths := []int{l.Messages / 10, l.Messages / 5, l.Messages, 10 * l.Messages}
	var trials []measure.Trial
	for _, depth := range depths {
		w := measure.Backlog{Messages: max(depth, 2), Drains: min(max(1, l.Messages/max(depth, 1)/2), 5)}
		for _, contender := range []measure.StoreContender{rawLease.contender(s, raw), receiveOnlyTuned.contender(s, own)} {
			contender.Name = compare.AtDepth(contender.Name, depth)
			trials = append(trials, contender.Trial(w))
		}
	}
	c, err := compare.Run(ctx, l.Repetitions, trials)
	if err != nil {
		return nil, err
	}
	base := compare.AtDepth(own, depths[1])
	t := table.Table{Title: "Messages/s by backlog", Head: []string{"backlog", raw, own, "× " + raw, "× " + own + " at " + table.Thousands(int64(depths[1]))},
		Growth: &table.Growth{Quantity: "backlog", Figure: "messages/s"}}
	for _, depth := range depths {
		name := compare.AtDepth(own, depth)
		for _, line := range []string{raw, own} {
			t.Growth.Add(line, float64(depth), c.Rate(compare.AtDepth(line, depth)))
		}
		t.Rows = append(t.Rows, []string{
			table.Thousands(int64(depth)), table.Number(c.Rate(compare.AtDepth(raw, depth))), table.Number(c.Rate(name)),
			table.Number(c.RateRatio(name, compare.AtDepth(raw, depth))), table.Number(c.RateRatio(name, base)),
		})
	}
	t.Aims = []table.Aim{{
		Figure: fmt.Sprintf("rate at %s, times that at %s", table.Thousands(int64(depths[3])), table.Thousands(int64(depths[1]))),
		Want:   0.8, Got: c.RateRatio(compare.AtDepth(own, depths[3]), base),
	}}
	return []table.Table{t}, nil
}

func (s *Server) snapshot(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	messages := max(2*l.Messages, measure.StreamParts)
	type subject struct {
		measure.StoreContender
		measure.Stream
	}
	var subjects []subject
	for _, contender := range []measure.StoreContender{rawLease.contender(s, "raw, leases of 256"), receiveOnlyTuned.contender(s, "Reprise")} {
		subjects = append(subjects, subject{contender, measure.Stream{Messages: messages, Snapshot: false}})
		contender.Name += ", old snapshot"
		subjects = append(subjects, subject{contender, measure.Stream{Messages: messages, Snapshot: true}})
	}
	rounds, err := compare.InTurn(subjects, l.Repetitions, func(each subject) ([]float64, error) { return each.Rates(ctx, each.Stream) })
	if err != nil {
		return nil, err
	}
	t := table.Table{Title: fmt.Sprintf("Messages/s of each quarter of %s messages, sent as they are handled", table.Thousands(int64(messages))),
		Head: []string{"", "1st", "2nd", "3rd", "4th", "4th × 1st"}}
	part := func(i int) func([]float64) float64 { return func(rates []float64) float64 { return rates[i] } }
	for i, each := range subjects {
		row := []string{each.Name}
		for p := range measure.StreamParts {
			row = append(row, table.Number(stats.Median(stats.Values(rounds[i], part(p)))))
		}
		t.Rows = append(t.Rows, append(row, table.Number(stats.Ratio(stats.Values(rounds[i], part(measure.StreamParts-1)), stats.Values(rounds[i], part(0))))))
	}
	last := len(subjects) - 1
	t.Aims = []table.Aim{{Figure: "the 4th quarter with an old snapshot, times the one without", Want: 0.8,
		Got: stats.Ratio(stats.Values(rounds[last], part(measure.StreamParts-1)), stats.Values(rounds[last-1], part(measure.StreamParts-1)))}}
	return []table.Table{t}, nil
}

func (s *Server) concurrency(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	t := table.Table{Title: "Messages/s by concurrency; 5 ms is how long each handler waits", Head: []string{
		"concurrency", "ReceiveOnly", "SendsAtomicWithReceive", "ReceiveOnly, 5 ms", "SendsAtomicWithReceive, 5 ms"},
		Growth: &table.Growth{Quantity: "concurrency", Figure: "messages/s", Factors: true}}
	const wait = 5 * time.Millisecond
	for _, n := range []int{1, 4, 16, 64, 256} {
		leases, atomic := receiveOnly, atomicDefaults
		leases.Concurrency, atomic.Concurrency, atomic.Sends = n, n, false
		c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
			leases.contender(s, "leases").Trial(measure.Backlog{Messages: l.AtMost(5_000 * n).Messages}),
			atomic.contender(s, "atomic").Trial(measure.Backlog{Messages: l.AtMost(min(2_000*n, atomicMessages)).Messages}),
			leases.contender(s, "leases, waiting").Delayed(wait).Trial(measure.Backlog{Messages: l.AtMost(200 * n).Messages}),
			atomic.contender(s, "atomic, waiting").Delayed(wait).Trial(measure.Backlog{Messages: l.AtMost(min(200*n, atomicMessages)).Messages}),
		})
		if err != nil {
			return nil, err
		}
		c.AddRates(&t, float64(n))
	}
	return []table.Table{t}, nil
}

func (s *Server) instances(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	t := table.Table{Title: "Messages/s by instances", Head: []string{"instances", "ReceiveOnly", "SendsAtomicWithReceive"},
		Growth: &table.Growth{Quantity: "instances", Figure: "messages/s"}}
	for _, n := range []int{1, 2, 4} {
		leases, atomic := receiveOnlyTuned, atomic16
		leases.instances, atomic.instances, atomic.Sends = n, n, false
		c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
			leases.contender(s, "leases").Trial(measure.Backlog{Messages: l.Messages}),
			atomic.contender(s, "atomic").Trial(measure.Backlog{Messages: l.AtMost(atomicMessages).Messages}),
		})
		if err != nil {
			return nil, err
		}
		c.AddRates(&t, float64(n))
	}
	return []table.Table{t}, nil
}

func (s *Server) body(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	t := table.Table{Title: "Messages/s by body size", Head: []string{"KiB", "ReceiveOnly", "SendsAtomicWithReceive"},
		Growth: &table.Growth{Quantity: "body, KiB", Figure: "messages/s", Factors: true}}
	for _, b := range []struct{ size, max int }{{256, 50_000}, {4 << 10, 20_000}, {64 << 10, 2_000}} {
		leases, atomic := receiveOnlyTuned, atomic16
		leases.BodySize, atomic.BodySize, atomic.Sends = b.size, b.size, false
		c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
			leases.contender(s, "leases").Trial(measure.Backlog{Messages: l.AtMost(b.max).Messages}),
			atomic.contender(s, "atomic").Trial(measure.Backlog{Messages: l.AtMost(min(b.max, atomicMessages)).Messages}),
		})
		if err != nil {
			return nil, err
		}
		c.AddRates(&t, float64(b.size)/1024)
	}
	return []table.Table{t}, nil
}
