package main

import (
	"context"
	"fmt"
	"time"
)

func (s *rabbitSystem) receive(ctx context.Context, l load) ([]table, error) {
	const own, raw, peer, slowly = "Reprise", "raw, one ack each", "Watermill, tuned", ", one in 500 slow"
	full := backlog{messages: l.messages}
	c, err := compare(ctx, l.repetitions, []trial{
		rawOneByOne.keeper(s, raw).at(full),
		rawFifty.keeper(s, "raw, one ack for 50").at(full),
		rabbitTuned.keeper(s, own).at(full),
		rabbitTuned.keeper(s, own+slowly).pausing(slow).at(full),
		watermillTuned.keeper(s, peer).at(full),
		watermillTuned.keeper(s, peer+slowly).pausing(slow).at(full),
		watermillDefaults.keeper(s, "Watermill, defaults").at(backlog{messages: l.atMost(watermillSerial).messages}),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, concurrency %d", thousands(int64(l.messages)), tunedRabbit), raw, peer)
	t.aims = []aim{
		{what: "times " + raw, want: 1.2, got: c.times(own, raw)},
		{what: "one handler in 500 taking 20 ms, times " + raw + ", without slow ones", want: 0.6, got: c.times(own+slowly, raw)},
	}
	return []table{t}, nil
}

func (s *rabbitSystem) send(ctx context.Context, l load) ([]table, error) {
	const own, raw, peer = "Reprise", "raw", "Watermill"
	single := sending{l.atMost(rabbitSingles).messages, 16, 1}
	c, err := compare(ctx, l.repetitions, []trial{
		single.at(rawOneByOne.keeper(s, raw)),
		single.at(rabbit.keeper(s, own)),
		single.at(watermillConfirms.keeper(s, peer)),
	})
	if err != nil {
		return nil, err
	}
	tables := []table{c.table("One message a call, 16 goroutines", raw)}

	const window = raw + ", a window of 1,000"
	batches := []struct {
		name string
		sending
	}{
		{own + ", 100 a call by 8 goroutines", sending{l.messages, 8, 100}},
		{own + ", 1,000 a call by 2 goroutines", sending{l.messages, 2, 1000}},
	}
	// One call of the raw sender has all messages, with no more than the window
	// unconfirmed.
	trials := []trial{sending{l.messages, 1, l.messages}.at(rawOneByOne.keeper(s, window))}
	for _, b := range batches {
		trials = append(trials, b.at(rabbit.keeper(s, b.name)))
	}
	trials = append(trials, sending{l.atMost(watermillConfirm).messages, 8, 100}.at(watermillConfirms.keeper(s, peer+", 100 a call by 8 goroutines")))
	if c, err = compare(ctx, l.repetitions, trials); err != nil {
		return nil, err
	}
	t := c.table("Many messages a call", window)
	for _, b := range batches {
		t.aims = append(t.aims, aim{what: b.name + ", times " + window, want: 0.9, got: c.times(b.name, window)})
	}
	return append(tables, t), nil
}

func (s *rabbitSystem) retry(ctx context.Context, l load) ([]table, error) {
	const own, raw, failing = "Reprise", "raw, one ack each", ", failing once"
	c, err := compare(ctx, l.repetitions, []trial{
		rawOneByOne.keeper(s, raw).at(backlog{messages: l.messages}),
		rawOneByOne.keeper(s, raw+failing).at(backlog{messages: l.messages, failures: 1}),
		rabbitTuned.keeper(s, own).at(backlog{messages: l.messages}),
		rabbitTuned.keeper(s, own+failing).at(backlog{messages: l.messages, failures: 1}),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, concurrency %d", thousands(int64(l.messages)), tunedRabbit), own, raw+failing)
	t.aims = []aim{{what: "times its own success rate", want: 0.4, got: c.times(own+failing, own)}}
	return []table{t}, nil
}

func (s *rabbitSystem) latency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(200)
	contenders := []contender{
		rawOneByOne.keeper(s, "raw").contender(),
		watermillConfirms.keeper(s, "Watermill").contender(),
		rabbit.keeper(s, "Reprise").contender(),
	}
	rounds, err := inTurn(contenders, l.repetitions, func(c contender) ([]time.Duration, error) {
		return c.latency(ctx, l.messages, serverPause)
	})
	if err != nil {
		return nil, err
	}
	t := latencyTable(contenders, rounds)
	t.aims = []aim{{what: "p99 in ms", want: 3, got: medianPercentile(rounds[len(rounds)-1], 99), ceiling: true}}
	return []table{t}, nil
}

func (s *rabbitSystem) defaults(ctx context.Context, l load) ([]table, error) {
	const tuned, defaults = "tuned", "defaults"
	c, err := compare(ctx, l.repetitions, backlog{messages: l.messages}.at(rabbitTuned.keeper(s, tuned), rabbit.keeper(s, defaults)))
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, concurrency %d when tuned", thousands(int64(l.messages)), tunedRabbit), tuned)
	t.aims = []aim{{what: "times " + tuned, want: 0.5, got: c.times(defaults, tuned)}}
	return []table{t}, nil
}
