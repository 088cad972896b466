package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
)

func (s *Server) receiveOnly(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw, tuned = "Reprise", "raw, leases of 256", "River, tuned"
	full := measure.Backlog{Messages: l.Messages}
	c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
		rawLease.contender(s, raw).Trial(full),
		rawLeaseLarge.contender(s, "raw, leases of 1,000").Trial(full),
		riverTuned.contender(s, tuned).Trial(full),
		riverDefaults.contender(s, "River, defaults").Trial(measure.Backlog{Messages: l.AtMost(riverMessages).Messages}),
		watermillSetup{batch: 100}.contender(s, "Watermill, batch 100").Trial(full),
		receiveOnlyTuned.contender(s, own).Trial(full),
	})
	if err != nil {
		return nil, err
	}
	t := c.Table(fmt.Sprintf("A backlog of %s, concurrency %d", table.Thousands(int64(l.Messages)), tunedReceiveOnly), raw, tuned)
	t.Aims = []table.Aim{
		{Figure: "times " + raw, Want: 0.8, Got: c.RateRatio(own, raw)},
		{Figure: "times " + tuned, Want: 2.5, Got: c.RateRatio(own, tuned)},
	}
	return []table.Table{t}, nil
}

func (s *Server) atomic(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, nserviceBus, raw, grouped = "Reprise", "Reprise, tables of NServiceBus", "raw, transactions", "raw, leases of 256"
	sends, writes := l.Messages, l.AtMost(atomicMessages).Messages
	c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
		rawLeaseSends.contender(s, grouped).Trial(measure.Backlog{Messages: sends}),
		rawTransaction.contender(s, raw).Trial(measure.Backlog{Messages: writes}),
		watermillSetup{batch: 1, sends: true}.contender(s, "Watermill, batch 1").Trial(measure.Backlog{Messages: l.AtMost(watermillSingles).Messages}),
		atomic16.contender(s, "Reprise, concurrency 16").Trial(measure.Backlog{Messages: sends}),
		atomicLeases.contender(s, own).Trial(measure.Backlog{Messages: sends}),
	})
	if err != nil {
		return nil, err
	}
	sending := c.Table(fmt.Sprintf("Handlers that send, a backlog of %s, concurrency %d", table.Thousands(int64(sends)), tunedReceiveOnly), grouped, raw)
	sending.Aims = []table.Aim{
		{Figure: "times " + grouped, Want: 0.7, Got: c.RateRatio(own, grouped)},
		{Figure: "times " + raw, Want: 4, Got: c.RateRatio(own, raw)},
	}
	c, err = compare.Run(ctx, l.Repetitions, []measure.Trial{
		rawWrites.contender(s, raw).Trial(measure.Backlog{Messages: writes}),
		nserviceBusTable.contender(s, nserviceBus).Trial(measure.Backlog{Messages: writes}),
		atomicWrites.contender(s, own).Trial(measure.Backlog{Messages: writes}),
	})
	if err != nil {
		return nil, err
	}
	writing := c.Table(fmt.Sprintf("Handlers that write one row, a backlog of %s, concurrency %d", table.Thousands(int64(writes)), tunedAtomic), raw)
	writing.Aims = []table.Aim{
		{Figure: "times " + raw, Want: 0.9, Got: c.RateRatio(own, raw)},
		{Figure: "times " + nserviceBus, Want: 1.1, Got: c.RateRatio(own, nserviceBus)},
	}
	return []table.Table{sending, writing}, nil
}

func (s *Server) send(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const own, raw = "Reprise", "raw"
	var tables []table.Table
	for _, w := range []struct {
		title string
		measure.Sending
		want float64
	}{
		{"One message a call", measure.Sending{Messages: l.AtMost(singleMessages).Messages, Goroutines: 16, Batch: 1}, 0},
		{"100 messages a call", measure.Sending{Messages: l.Messages, Goroutines: 8, Batch: 100}, 0.9},
	} {
		trials := []measure.Trial{w.Trial(rawLease.contender(s, raw)), w.Trial(receiveOnly.contender(s, own)), w.Trial(watermillSetup{}.contender(s, "Watermill"))}
		trials = append(trials, measure.Sending{Messages: l.AtMost(w.Messages / 2).Messages, Goroutines: w.Goroutines, Batch: w.Batch}.Trial(riverTuned.contender(s, "River")))
		c, err := compare.Run(ctx, l.Repetitions, trials)
		if err != nil {
			return nil, err
		}
		t := c.Table(w.title, raw)
		if w.want > 0 {
			t.Aims = []table.Aim{{Figure: "times " + raw, Want: w.want, Got: c.RateRatio(own, raw)}}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (s *Server) retry(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	const failing = ", failing once"
	var tables []table.Table
	for _, m := range []struct {
		title string
		repriseSetup
		messages int
	}{
		{"ReceiveOnly", receiveOnlyTuned, l.Messages},
		{"SendsAtomicWithReceive, the handler sends one message", atomic16, l.AtMost(atomicMessages).Messages},
	} {
		const own = "Reprise"
		c, err := compare.Run(ctx, l.Repetitions, []measure.Trial{
			m.contender(s, own).Trial(measure.Backlog{Messages: m.messages}),
			m.contender(s, own+failing).Trial(measure.Backlog{Messages: m.messages, Failures: 1}),
		})
		if err != nil {
			return nil, err
		}
		t := c.Table(fmt.Sprintf("%s, a backlog of %s", m.title, table.Thousands(int64(m.messages))), own)
		t.Aims = []table.Aim{{Figure: "times its own success rate", Want: 0.4, Got: c.RateRatio(own+failing, own)}}
		tables = append(tables, t)
	}
	return tables, nil
}

func (s *Server) latency(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	l = l.AtMost(200)
	separated := func(setup repriseSetup) repriseSetup {
		setup.separateSender, setup.Sends = true, false
		return setup
	}
	here := atomicDefaults
	here.Sends = false
	var contenders []measure.Contender
	for _, contender := range []measure.StoreContender{
		riverTuned.contender(s, "River, tuned"),
		separated(receiveOnly).contender(s, "Reprise, ReceiveOnly, sender elsewhere"),
		separated(atomicDefaults).contender(s, "Reprise, SendsAtomicWithReceive, sender elsewhere"),
		receiveOnly.contender(s, "Reprise, ReceiveOnly, the same transport"),
		here.contender(s, "Reprise, SendsAtomicWithReceive, the same transport"),
	} {
		contenders = append(contenders, contender.Contender())
	}
	rounds, err := compare.InTurn(contenders, l.Repetitions, func(c measure.Contender) ([]time.Duration, error) {
		return c.Latencies(ctx, l.Messages, measure.ServerPause)
	})
	if err != nil {
		return nil, err
	}
	t := compare.LatencyTable(contenders, rounds)
	for i, c := range contenders[1:] {
		t.Aims = append(t.Aims, table.Aim{Figure: c.Name + ", p99 in ms", Want: 10, Got: compare.MedianPercentile(rounds[i+1], 99), Ceiling: true})
	}
	return []table.Table{t}, nil
}

func (s *Server) defaults(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	var tables []table.Table
	for _, m := range []struct {
		title           string
		defaults, tuned repriseSetup
		messages        int
	}{
		{"ReceiveOnly", receiveOnly, receiveOnlyTuned, l.Messages},
		{"SendsAtomicWithReceive, the handler sends one message", atomicDefaults, atomic16, l.AtMost(atomicMessages).Messages},
	} {
		const tuned, defaults = "tuned", "defaults"
		c, err := compare.Run(ctx, l.Repetitions, measure.Backlog{Messages: m.messages}.Trials(m.tuned.contender(s, tuned), m.defaults.contender(s, defaults)))
		if err != nil {
			return nil, err
		}
		t := c.Table(fmt.Sprintf("%s, concurrency %d when tuned", m.title, m.tuned.Concurrency), tuned)
		t.Aims = []table.Aim{{Figure: "times " + tuned, Want: 0.5, Got: c.RateRatio(defaults, tuned)}}
		tables = append(tables, t)
	}
	return tables, nil
}
