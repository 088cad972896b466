package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Standard queues of Amazon SQS, compared with loops over the AWS SDK alone and Watermill.
var sqsScenarios = []scenario{
	{
		name:  "sqs-receive",
		title: "Amazon SQS, receiving",
		about: "A backlog is handled by handlers that do nothing. Each poller of the raw loop receives ten messages, handles them one after the other and deletes them with one request; " +
			"Reprise has as many messages in flight, so that it needs as many pollers. Watermill tuned has 16 subscriptions, each of which receives ten messages, and handles and deletes one at a time.",
		run: sqsReceive,
	},
	{
		name:  "sqs-send",
		title: "Amazon SQS, sending",
		about: "The raw sender puts the messages of a call into requests of ten, one after the other. Watermill sends each message with a separate request.",
		run:   sqsSend,
	},
	{
		name:  "sqs-retry",
		title: "Amazon SQS, every message fails once",
		about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop unlocks what failed of ten with one request, and knows of no attempts.",
		run:   sqsRetry,
	},
	{
		name:  "sqs-latency",
		title: "Amazon SQS, latency of an idle queue",
		about: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
		run:   sqsLatency,
	},
}

// sqsPollers is the number of concurrent requests for messages in the aims, and tunedSQS the concurrency that
// needs them.
const (
	sqsPollers = 8
	tunedSQS   = sqsPollers * sqsBatch
)

var (
	sqsPlain = sqsSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly}}
	sqsTuned = sqsSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly, concurrency: tunedSQS}}
	rawSQS   = rawSQSSetup{pollers: sqsPollers}
)

// The most messages of a sample of slower work.
const (
	sqsSingles        = 20_000 // one per call
	sqsAwaited        = 40_000 // with delayed answers
	watermillSQS      = 10_000 // each with a separate request
	sqsFewSlots       = 10_000 // with Reprise's defaults
	watermillOneByOne = 500    // with Watermill's
)

// The aims of Reprise as ratios to the raw loop. Each request costs the same.
const (
	sqsRateAim     = 0.9
	sqsRequestsAim = 1.05
)

// sqsAims are the aims of a contender compared with the raw one.
func (c comparison) sqsAims(own, raw string) []aim {
	return []aim{
		{what: "times " + raw, want: sqsRateAim, got: c.times(own, raw)},
		{what: "requests a message, times " + raw, want: sqsRequestsAim, got: c.timesRequests(own, raw), ceiling: true},
	}
}

// sqsPlaces are the distances of the server.
var sqsPlaces = []struct {
	title string
	away  time.Duration
	most  int // messages of a sample; 0 is the number of the load
}{
	{fmt.Sprintf("each answer %v later, in place of a network", sqsAway), sqsAway, sqsAwaited},
	{"the server on the same cores, and no time between", 0, 0},
}

func sqsReceive(ctx context.Context, l load) ([]table, error) {
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
			loop.keeper(l, raw).at(full),
			tuned.keeper(l, own).at(full),
			plain.keeper(l, own+", defaults").at(backlog{messages: l.atMost(sqsFewSlots).messages}),
			mill.keeper(l, peer).at(backlog{messages: l.atMost(watermillSQS).messages}),
			millDefaults.keeper(l, "Watermill, defaults").at(backlog{messages: l.atMost(watermillOneByOne).messages}),
		})
		if err != nil {
			return nil, err
		}
		t := c.table(fmt.Sprintf("A backlog of %s, %d pollers of the raw loop, concurrency %d, %s", thousands(int64(l.messages)), sqsPollers, tunedSQS, place.title), raw, peer)
		t.aims = c.sqsAims(own, raw)
		tables = append(tables, t)
	}
	return tables, nil
}

func sqsSend(ctx context.Context, l load) ([]table, error) {
	const own, raw, peer = "Reprise", "raw", "Watermill"
	single := sending{l.atMost(sqsSingles).messages, 16, 1}
	c, err := compare(ctx, l.repetitions, []trial{
		single.at(rawSQS.keeper(l, raw)),
		single.at(sqsPlain.keeper(l, own)),
		single.at(watermillSQSTuned.keeper(l, peer)),
	})
	if err != nil {
		return nil, err
	}
	tables := []table{c.table("One message a call, 16 goroutines", raw)}

	many := sending{l.messages, sqsPollers, 100}
	fewer := many
	fewer.messages = l.atMost(watermillSQS).messages
	c, err = compare(ctx, l.repetitions, []trial{
		many.at(rawSQS.keeper(l, raw)),
		many.at(sqsPlain.keeper(l, own)),
		fewer.at(watermillSQSTuned.keeper(l, peer)),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("100 messages a call, %d goroutines", sqsPollers), raw)
	t.aims = c.sqsAims(own, raw)
	return append(tables, t), nil
}

func sqsRetry(ctx context.Context, l load) ([]table, error) {
	const own, raw, failing = "Reprise", "raw", ", failing once"
	c, err := compare(ctx, l.repetitions, []trial{
		rawSQS.keeper(l, raw).at(backlog{messages: l.messages}),
		rawSQS.keeper(l, raw+failing).at(backlog{messages: l.messages, failures: 1}),
		sqsTuned.keeper(l, own).at(backlog{messages: l.messages}),
		sqsTuned.keeper(l, own+failing).at(backlog{messages: l.messages, failures: 1}),
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

func sqsLatency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(200)
	contenders := []contender{
		rawSQS.keeper(l, "raw").contender(),
		watermillSQSTuned.keeper(l, "Watermill").contender(),
		sqsPlain.keeper(l, "Reprise").contender(),
	}
	rounds, err := inTurn(contenders, l.repetitions, func(c contender) ([]time.Duration, error) {
		return c.latency(ctx, l.messages, serverPause)
	})
	if err != nil {
		return nil, err
	}
	return []table{latencyTable(contenders, rounds)}, nil
}
