package main

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

func (s *sqsSystem) receive(ctx context.Context, l load) ([]table, error) {
	const own, raw, peer = "Reprise", "raw", "Watermill, tuned"
	var tables []table
	for _, place := range sqsPlaces {
		l := l.atMost(cmp.Or(place.most, l.messages))
		plain, tuned, loop, mill, millDefaults := sqsPlain, sqsTuned, rawSQS, watermillSQSTuned, watermillSQSDefaults
		for _, away := range []*time.Duration{&plain.away, &tuned.away, &loop.away, &mill.away, &millDefaults.away} {
			*away = place.away
		}
		full := backlog{messages: l.messages}
		c, err := compare(ctx, l.repetitions, []trial{
			loop.keeper(s, raw).at(full),
			tuned.keeper(s, own).at(full),
			plain.keeper(s, own+", defaults").at(backlog{messages: l.atMost(sqsFewSlots).messages}),
			mill.keeper(s, peer).at(backlog{messages: l.atMost(watermillSQS).messages}),
			millDefaults.keeper(s, "Watermill, defaults").at(backlog{messages: l.atMost(watermillOneByOne).messages}),
		})
		if err != nil {
			return nil, err
		}
		t := c.table(fmt.Sprintf("A backlog of %s, %d pollers of the raw loop, concurrency %d, %s", thousands(int64(l.messages)), sqsPollers, tunedSQS, place.title), raw, peer)
		t.aims = sqsAims(c, own, raw)
		tables = append(tables, t)
	}
	return tables, nil
}

func (s *sqsSystem) send(ctx context.Context, l load) ([]table, error) {
	const own, raw, peer = "Reprise", "raw", "Watermill"
	single := sending{l.atMost(sqsSingles).messages, 16, 1}
	c, err := compare(ctx, l.repetitions, []trial{
		single.at(rawSQS.keeper(s, raw)),
		single.at(sqsPlain.keeper(s, own)),
		single.at(watermillSQSTuned.keeper(s, peer)),
	})
	if err != nil {
		return nil, err
	}
	tables := []table{c.table("One message a call, 16 goroutines", raw)}

	many := sending{l.messages, sqsPollers, 100}
	fewer := many
	fewer.messages = l.atMost(watermillSQS).messages
	c, err = compare(ctx, l.repetitions, []trial{
		many.at(rawSQS.keeper(s, raw)),
		many.at(sqsPlain.keeper(s, own)),
		fewer.at(watermillSQSTuned.keeper(s, peer)),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("100 messages a call, %d goroutines", sqsPollers), raw)
	t.aims = sqsAims(c, own, raw)
	return append(tables, t), nil
}

func (s *sqsSystem) retry(ctx context.Context, l load) ([]table, error) {
	const own, raw, failing = "Reprise", "raw", ", failing once"
	c, err := compare(ctx, l.repetitions, []trial{
		rawSQS.keeper(s, raw).at(backlog{messages: l.messages}),
		rawSQS.keeper(s, raw+failing).at(backlog{messages: l.messages, failures: 1}),
		sqsTuned.keeper(s, own).at(backlog{messages: l.messages}),
		sqsTuned.keeper(s, own+failing).at(backlog{messages: l.messages, failures: 1}),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, %d pollers of the raw loop, concurrency %d", thousands(int64(l.messages)), sqsPollers, tunedSQS), own, raw+failing)
	t.aims = []aim{
		{what: "times its own success rate", want: 0.4, got: c.times(own+failing, own)},
		{what: "requests a message, times " + raw + failing, want: sqsRequestsAim, got: c.timesRequests(own+failing, raw+failing), ceiling: true},
	}
	return []table{t}, nil
}

func (s *sqsSystem) latency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(200)
	contenders := []contender{
		rawSQS.keeper(s, "raw").contender(),
		watermillSQSTuned.keeper(s, "Watermill").contender(),
		sqsPlain.keeper(s, "Reprise").contender(),
	}
	rounds, err := inTurn(contenders, l.repetitions, func(c contender) ([]time.Duration, error) {
		return c.latency(ctx, l.messages, serverPause)
	})
	if err != nil {
		return nil, err
	}
	return []table{latencyTable(contenders, rounds)}, nil
}
