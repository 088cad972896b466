package main

import (
	"context"
	"time"
)

// rabbitDeepRepetitions is the most samples of a backlog: each takes a minute with a
// million messages.
const rabbitDeepRepetitions = 3

func (s *rabbitSystem) backlog(ctx context.Context, l load) ([]table, error) {
	const own, raw = "Reprise", "raw, one ack each"
	t := table{title: "Messages/s by backlog", head: []string{"backlog", raw, own, "× " + raw},
		growth: &growth{quantity: "backlog", figure: "messages/s"}}
	// A short backlog is handled several times, so that a sample is long enough.
	depths := []backlog{
		{messages: max(l.messages/10, 2), drains: 5},
		{messages: max(l.messages, 2)},
		{messages: 10 * l.messages},
	}
	var trials []trial
	for _, w := range depths {
		for _, k := range []keeper{rawOneByOne.keeper(s, raw), rabbitTuned.keeper(s, own)} {
			k.name = atDepth(k.name, w.messages)
			trials = append(trials, k.at(w))
		}
	}
	c, err := compare(ctx, min(l.repetitions, rabbitDeepRepetitions), trials)
	if err != nil {
		return nil, err
	}
	for _, w := range depths {
		row := []string{thousands(int64(w.messages))}
		for _, line := range []string{raw, own} {
			rate := c.rate(atDepth(line, w.messages))
			row = append(row, number(rate))
			t.growth.add(line, float64(w.messages), rate)
		}
		t.rows = append(t.rows, append(row, number(c.times(atDepth(own, w.messages), atDepth(raw, w.messages)))))
	}
	return []table{t}, nil
}

func (s *rabbitSystem) concurrency(ctx context.Context, l load) ([]table, error) {
	t := table{title: "Messages/s by concurrency; 5 ms is how long each handler waits", head: []string{"concurrency", "ReceiveOnly", "ReceiveOnly, 5 ms"},
		growth: &growth{quantity: "concurrency", figure: "messages/s", factors: true}}
	const wait = 5 * time.Millisecond
	for _, n := range []int{1, 4, 16, 64, 256} {
		setup := rabbit
		setup.concurrency = n
		c, err := compare(ctx, l.repetitions, []trial{
			setup.keeper(s, "idle").at(backlog{messages: l.atMost(10_000 * n).messages}),
			setup.keeper(s, "waiting").delayed(wait).at(backlog{messages: l.atMost(200 * n).messages}),
		})
		if err != nil {
			return nil, err
		}
		c.addRates(&t, float64(n))
	}
	return []table{t}, nil
}

func (s *rabbitSystem) instances(ctx context.Context, l load) ([]table, error) {
	t := table{title: "Messages/s by instances", head: []string{"instances", "ReceiveOnly"}, growth: &growth{quantity: "instances", figure: "messages/s"}}
	for _, n := range []int{1, 2, 4} {
		setup := rabbitTuned
		setup.instances = n
		c, err := compare(ctx, l.repetitions, backlog{messages: l.messages}.at(setup.keeper(s, "Reprise")))
		if err != nil {
			return nil, err
		}
		c.addRates(&t, float64(n))
	}
	return []table{t}, nil
}

func (s *rabbitSystem) body(ctx context.Context, l load) ([]table, error) {
	t := table{title: "Messages/s by body size", head: []string{"KiB", "ReceiveOnly"}, growth: &growth{quantity: "body, KiB", figure: "messages/s", factors: true}}
	for _, b := range []struct{ size, most int }{{256, 50_000}, {4 << 10, 20_000}, {64 << 10, 2_000}} {
		setup := rabbitTuned
		setup.bodySize = b.size
		c, err := compare(ctx, l.repetitions, backlog{messages: l.atMost(b.most).messages}.at(setup.keeper(s, "Reprise")))
		if err != nil {
			return nil, err
		}
		c.addRates(&t, float64(b.size)/1024)
	}
	return []table{t}, nil
}
