package main

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

func (s *asbSystem) receive(ctx context.Context, l load) ([]table, error) {
	const own, raw = "Reprise", "raw"
	var tables []table
	for _, place := range asbPlaces {
		l := l.atMost(cmp.Or(place.most, l.messages))
		plain, tuned, loop := asbPlain, asbTuned, rawASB
		plain.away, tuned.away, loop.away = place.away, place.away, place.away
		full := backlog{messages: l.messages}
		c, err := compare(ctx, l.repetitions, []trial{
			loop.keeper(s, raw).at(full),
			tuned.keeper(s, own).at(full),
			plain.keeper(s, own+", defaults").at(backlog{messages: l.atMost(asbFewSlots).messages}),
		})
		if err != nil {
			return nil, err
		}
		t := c.table(fmt.Sprintf("A backlog of %s, %d links, concurrency %d, %s", thousands(int64(l.messages)), asbLinks, tunedASB, place.title), raw)
		t.aims = asbAims(c, own, raw)
		tables = append(tables, t)
	}
	return tables, nil
}

func (s *asbSystem) send(ctx context.Context, l load) ([]table, error) {
	const own, raw = "Reprise", "raw"
	var tables []table
	for _, place := range asbPlaces {
		l := l.atMost(cmp.Or(place.most, l.messages))
		plain, loop := asbPlain, rawASB
		plain.away, loop.away = place.away, place.away
		for _, w := range []struct {
			title string
			sending
		}{
			{"One message a call, 16 goroutines", sending{l.atMost(asbSingles).messages, 16, 1}},
			{"100 messages a call, 4 goroutines", sending{l.messages, asbLinks, 100}},
		} {
			c, err := compare(ctx, l.repetitions, []trial{w.at(loop.keeper(s, raw)), w.at(plain.keeper(s, own))})
			if err != nil {
				return nil, err
			}
			t := c.table(w.title+", "+place.title, raw)
			t.aims = asbAims(c, own, raw)
			tables = append(tables, t)
		}
	}
	return tables, nil
}

func (s *asbSystem) retry(ctx context.Context, l load) ([]table, error) {
	const own, raw, failing = "Reprise", "raw", ", failing once"
	c, err := compare(ctx, l.repetitions, []trial{
		rawASB.keeper(s, raw).at(backlog{messages: l.messages}),
		rawASB.keeper(s, raw+failing).at(backlog{messages: l.messages, failures: 1}),
		asbTuned.keeper(s, own).at(backlog{messages: l.messages}),
		asbTuned.keeper(s, own+failing).at(backlog{messages: l.messages, failures: 1}),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, %d links, concurrency %d", thousands(int64(l.messages)), asbLinks, tunedASB), own, raw+failing)
	t.aims = []aim{{what: "times its own success rate", want: 0.4, got: c.times(own+failing, own)}}
	return []table{t}, nil
}

func (s *asbSystem) latency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(200)
	one := rawASB
	one.links, one.batch = 1, 1
	contenders := []contender{
		one.keeper(s, "raw").contender(),
		asbPlain.keeper(s, "Reprise").contender(),
	}
	rounds, err := inTurn(contenders, l.repetitions, func(c contender) ([]time.Duration, error) {
		return c.latency(ctx, l.messages, serverPause)
	})
	if err != nil {
		return nil, err
	}
	return []table{latencyTable(contenders, rounds)}, nil
}
