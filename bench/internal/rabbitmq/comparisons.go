package rabbitmq

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
)

func (s *Server) receive(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw, peer, slowSuffix = "Reprise", "raw, one ack each", "Watermill, tuned", ", one in 500 slow"
	full := measure.Backlog{Messages: l.Messages}
	c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
		rawOneByOne.contender(s, raw).Trial(full),
		rawFifty.contender(s, "raw, one ack for 50").Trial(full),
		repriseTuned.contender(s, own).Trial(full),
		repriseTuned.contender(s, own+slowSuffix).Pausing(slow).Trial(full),
		watermillTuned.contender(s, peer).Trial(full),
		watermillTuned.contender(s, peer+slowSuffix).Pausing(slow).Trial(full),
		watermillDefaults.contender(s, "Watermill, defaults").Trial(measure.Backlog{Messages: l.AtMost(watermillSerial).Messages}),
	})
	if err != nil {
		return nil, err
	}
	t := c.Table(fmt.Sprintf("A backlog of %s, concurrency %d", table.Thousands(int64(l.Messages)), tunedConcurrency), raw, peer)
	t.Aims = []table.Aim{
		{Figure: "times " + raw, Want: 1.2, Got: c.RateRatio(own, raw)},
		{Figure: "one handler in 500 taking 20 ms, times " + raw + ", without slow ones", Want: 0.6, Got: c.RateRatio(own+slowSuffix, raw)},
	}
	return []table.Table{t}, nil
}

func (s *Server) send(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw, peer = "Reprise", "raw", "Watermill"
	single := measure.Sending{Messages: l.AtMost(singles).Messages, Goroutines: 16, Batch: 1}
	c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
		single.Trial(rawOneByOne.contender(s, raw)),
		single.Trial(reprisePlain.contender(s, own)),
		single.Trial(watermillConfirms.contender(s, peer)),
	})
	if err != nil {
		return nil, err
	}
	tables := []table.Table{c.Table("One message a call, 16 goroutines", raw)}

	const window = raw + ", a window of 1,000"
	batches := []struct {
		name string
		measure.Sending
	}{
		{own + ", 100 a call by 8 goroutines", measure.Sending{Messages: l.Messages, Goroutines: 8, Batch: 100}},
		{own + ", 1,000 a call by 2 goroutines", measure.Sending{Messages: l.Messages, Goroutines: 2, Batch: 1000}},
	}
	// One call of the raw sender has all messages, with no more than the window
	// unconfirmed.
	trials := []measure.Trial{measure.Sending{Messages: l.Messages, Goroutines: 1, Batch: l.Messages}.Trial(rawOneByOne.contender(s, window))}
	for _, b := range batches {
		trials = append(trials, b.Trial(reprisePlain.contender(s, b.name)))
	}
	trials = append(trials, measure.Sending{Messages: l.AtMost(watermillConfirm).Messages, Goroutines: 8, Batch: 100}.Trial(watermillConfirms.contender(s, peer+", 100 a call by 8 goroutines")))
	if c, err = compare.Run(ctx, l.Repetitions, trials); err != nil {
		return nil, err
	}
	t := c.Table("Many messages a call", window)
	for _, b := range batches {
		t.Aims = append(t.Aims, table.Aim{Figure: b.name + ", times " + window, Want: 0.9, Got: c.RateRatio(b.name, window)})
	}
	return append(tables, t), nil
}

func (s *Server) retry(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw, failing = "Reprise", "raw, one ack each", ", failing once"
	c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
		rawOneByOne.contender(s, raw).Trial(measure.Backlog{Messages: l.Messages}),
		rawOneByOne.contender(s, raw+failing).Trial(measure.Backlog{Messages: l.Messages, Failures: 1}),
		repriseTuned.contender(s, own).Trial(measure.Backlog{Messages: l.Messages}),
		repriseTuned.contender(s, own+failing).Trial(measure.Backlog{Messages: l.Messages, Failures: 1}),
	})
	if err != nil {
		return nil, err
	}
	t := c.Table(fmt.Sprintf("A backlog of %s, concurrency %d", table.Thousands(int64(l.Messages)), tunedConcurrency), own, raw+failing)
	t.Aims = []table.Aim{{Figure: "times its own success rate", Want: 0.4, Got: c.RateRatio(own+failing, own)}}
	return []table.Table{t}, nil
}

func (s *Server) latency(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	l = l.AtMost(200)
	contenders := []measure.Contender{
		rawOneByOne.contender(s, "raw").Contender(),
		watermillConfirms.contender(s, "Watermill").Contender(),
		reprisePlain.contender(s, "Reprise").Contender(),
	}
	rounds, err := compare.InTurn(contenders, l.Repetitions, func(c measure.Contender) ([]time.Duration, error) {
		return c.Latencies(ctx, l.Messages, measure.ServerPause)
	})
	if err != nil {
		return nil, err
	}
	t := compare.LatencyTable(contenders, rounds)
	t.Aims = []table.Aim{{Figure: "p99 in ms", Want: 3, Got: compare.MedianPercentile(rounds[len(rounds)-1], 99), Ceiling: true}}
	return []table.Table{t}, nil
}

func (s *Server) defaults(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const tuned, defaults = "tuned", "defaults"
	c, err := compare.Run(ctx, l.Repetitions, measure.Backlog{Messages: l.Messages}.Trials(repriseTuned.contender(s, tuned), reprisePlain.contender(s, defaults)))
	if err != nil {
		return nil, err
	}
	t := c.Table(fmt.Sprintf("A backlog of %s, concurrency %d when tuned", table.Thousands(int64(l.Messages)), tunedConcurrency), tuned)
	t.Aims = []table.Aim{{Figure: "times " + tuned, Want: 0.5, Got: c.RateRatio(defaults, tuned)}}
	return []table.Table{t}, nil
}
