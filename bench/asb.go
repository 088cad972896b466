package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Queues of Azure Service Bus, compared with loops over azservicebus alone.
var asbScenarios = []scenario{
	{
		name:  "asb-receive",
		title: "Azure Service Bus, receiving",
		about: "A backlog is handled by handlers that do nothing. Each link of the raw loop receives up to 50 messages, handles them one after the other and completes them all at once; " +
			"Reprise has as many messages in flight, on as many links.",
		run: asbReceive,
	},
	{
		name:  "asb-send",
		title: "Azure Service Bus, sending",
		about: "The raw sender puts the messages of a call into as few batches as they fit in. Both send on one link.",
		run:   asbSend,
	},
	{
		name:  "asb-retry",
		title: "Azure Service Bus, every message fails once",
		about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop abandons failed messages, and knows of no attempts.",
		run:   asbRetry,
	},
	{
		name:  "asb-latency",
		title: "Azure Service Bus, latency of an idle queue",
		about: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each. The raw loop receives one message at a time on one link.",
		run:   asbLatency,
	},
}

// asbLinks is the number of links in the aims, asbBatch the number of messages that the raw loop receives at a time on
// each, and tunedASB the concurrency with the same number in flight.
const (
	asbLinks = 4
	asbBatch = 50
	tunedASB = asbLinks * asbBatch
)

var (
	asbPlain = asbSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly}}
	asbTuned = asbSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly, concurrency: tunedASB}}
	rawASB   = rawASBSetup{links: asbLinks, batch: asbBatch}
)

// The most messages of a sample of slower work.
const (
	asbSingles  = 20_000 // one per call
	asbAwaited  = 40_000 // with delayed answers
	asbFewSlots = 10_000 // with Reprise's defaults
)

// asbRateAim is the aim of Reprise as a ratio to the raw loop.
const asbRateAim = 0.9

func (c comparison) asbAims(own, raw string) []aim {
	return []aim{{what: "times " + raw, want: asbRateAim, got: c.times(own, raw)}}
}

// asbPlaces are the distances of the server.
var asbPlaces = []struct {
	title string
	away  time.Duration
	most  int // messages of a sample; 0 is the number of the load
}{
	{fmt.Sprintf("each answer %v later, in place of a network", asbAway), asbAway, asbAwaited},
	{"the server on the same cores, and no time between", 0, 0},
}

func asbReceive(ctx context.Context, l load) ([]table, error) {
	const own, raw = "Reprise", "raw"
	var tables []table
	for _, place := range asbPlaces {
		l := l.atMost(cmp.Or(place.most, l.messages))
		plain, tuned, loop := asbPlain, asbTuned, rawASB
		plain.away, tuned.away, loop.away = place.away, place.away, place.away
		full := backlog{messages: l.messages}
		c, err := compare(ctx, l.repetitions, []trial{
			loop.keeper(l, raw).at(full),
			tuned.keeper(l, own).at(full),
			plain.keeper(l, own+", defaults").at(backlog{messages: l.atMost(asbFewSlots).messages}),
		})
		if err != nil {
			return nil, err
		}
		t := c.table(fmt.Sprintf("A backlog of %s, %d links, concurrency %d, %s", thousands(int64(l.messages)), asbLinks, tunedASB, place.title), raw)
		t.aims = c.asbAims(own, raw)
		tables = append(tables, t)
	}
	return tables, nil
}

func asbSend(ctx context.Context, l load) ([]table, error) {
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
			c, err := compare(ctx, l.repetitions, []trial{w.at(loop.keeper(l, raw)), w.at(plain.keeper(l, own))})
			if err != nil {
				return nil, err
			}
			t := c.table(w.title+", "+place.title, raw)
			t.aims = c.asbAims(own, raw)
			tables = append(tables, t)
		}
	}
	return tables, nil
}

func asbRetry(ctx context.Context, l load) ([]table, error) {
	const own, raw, failing = "Reprise", "raw", ", failing once"
	c, err := compare(ctx, l.repetitions, []trial{
		rawASB.keeper(l, raw).at(backlog{messages: l.messages}),
		rawASB.keeper(l, raw+failing).at(backlog{messages: l.messages, failures: 1}),
		asbTuned.keeper(l, own).at(backlog{messages: l.messages}),
		asbTuned.keeper(l, own+failing).at(backlog{messages: l.messages, failures: 1}),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, %d links, concurrency %d", thousands(int64(l.messages)), asbLinks, tunedASB), own, raw+failing)
	t.aims = []aim{{what: "times its own success rate", want: 0.4, got: c.times(own+failing, own)}}
	return []table{t}, nil
}

func asbLatency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(200)
	one := rawASB
	one.links, one.batch = 1, 1
	contenders := []contender{
		one.keeper(l, "raw").contender(),
		asbPlain.keeper(l, "Reprise").contender(),
	}
	rounds, err := inTurn(contenders, l.repetitions, func(c contender) ([]time.Duration, error) {
		return c.latency(ctx, l.messages, serverPause)
	})
	if err != nil {
		return nil, err
	}
	return []table{latencyTable(contenders, rounds)}, nil
}
