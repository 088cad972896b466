package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Quorum queues in RabbitMQ, compared with loops over amqp091-go alone and Watermill.
var rabbitScenarios = []scenario{
	{
		name:  "rabbitmq-receive",
		title: "RabbitMQ, receiving",
		about: "A backlog is handled by handlers that do nothing, or of which one in 500 takes 20 ms. The raw loop handles and acknowledges one message after the other, at a prefetch of 300; " +
			"one acknowledgement for 50 is a hint at what the broker can do. Watermill tuned has 16 subscriptions with a prefetch of 25 on a quorum queue, each of which handles one message at a time.",
		run: rabbitReceive,
	},
	{
		name:  "rabbitmq-send",
		title: "RabbitMQ, sending",
		about: "Every message is confirmed by the broker, while nobody receives. Watermill sends the messages of one call one after the other, each when the one before it is confirmed.",
		run:   rabbitSend,
	},
	{
		name:  "rabbitmq-retry",
		title: "RabbitMQ, every message fails once",
		about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop rejects it, and knows of no attempts.",
		run:   rabbitRetry,
	},
	{
		name:  "rabbitmq-latency",
		title: "RabbitMQ, latency of an idle queue",
		about: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
		run:   rabbitLatency,
	},
	{
		name:  "rabbitmq-defaults",
		title: "RabbitMQ, defaults",
		about: "What a user gets who sets nothing but the transaction mode, beside the best of the concurrencies tried.",
		run:   rabbitDefaults,
	},
	{
		name:    "rabbitmq-backlog",
		title:   "RabbitMQ, depth of the backlog",
		about:   "How the rate at which a backlog is handled depends on how many wait at the beginning.",
		run:     rabbitBacklog,
		plotted: true,
	},
	{
		name:    "rabbitmq-concurrency",
		title:   "RabbitMQ, concurrency",
		about:   "How the rate grows with Config.Concurrency.",
		run:     rabbitConcurrency,
		plotted: true,
	},
	{
		name:    "rabbitmq-instances",
		title:   "RabbitMQ, instances",
		about:   "How the rate changes with the number of instances of an endpoint, each with connections of its own, in one process.",
		run:     rabbitInstances,
		plotted: true,
	},
	{
		name:    "rabbitmq-body",
		title:   "RabbitMQ, body size",
		about:   "How the rate falls with the size of the body.",
		run:     rabbitBody,
		plotted: true,
	},
}

// tunedRabbit is the concurrency of the aims.
const tunedRabbit = 64

var (
	rabbit      = rabbitSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly}}
	rabbitTuned = rabbitSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly, concurrency: tunedRabbit}}

	rawOneByOne = rawRabbitSetup{acks: 1}
	rawFifty    = rawRabbitSetup{acks: 50}
)

// The most messages of a sample of slower work.
const (
	rabbitSingles    = 20_000 // one per call
	watermillConfirm = 10_000 // each waits for its confirm
	watermillSerial  = 5_000  // with its defaults
)

// Some handlers are slow: the broker must not wait for their acknowledgements.
const (
	slowEvery = 500
	slowWait  = 20 * time.Millisecond
)

// slow lets a part of the handlers take long.
func slow(sequence string) {
	if sequenceNumber(sequence)%slowEvery == 0 {
		time.Sleep(slowWait)
	}
}

func rabbitReceive(ctx context.Context, l load) ([]table, error) {
	const own, raw, peer, slowly = "Reprise", "raw, one ack each", "Watermill, tuned", ", one in 500 slow"
	full := backlog{messages: l.messages}
	c, err := compare(ctx, l.repetitions, []trial{
		rawOneByOne.keeper(l, raw).at(full),
		rawFifty.keeper(l, "raw, one ack for 50").at(full),
		rabbitTuned.keeper(l, own).at(full),
		rabbitTuned.keeper(l, own+slowly).pausing(slow).at(full),
		watermillTuned.keeper(l, peer).at(full),
		watermillTuned.keeper(l, peer+slowly).pausing(slow).at(full),
		watermillDefaults.keeper(l, "Watermill, defaults").at(backlog{messages: l.atMost(watermillSerial).messages}),
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

func rabbitSend(ctx context.Context, l load) ([]table, error) {
	const own, raw, peer = "Reprise", "raw", "Watermill"
	single := sending{l.atMost(rabbitSingles).messages, 16, 1}
	c, err := compare(ctx, l.repetitions, []trial{
		single.at(rawOneByOne.keeper(l, raw)),
		single.at(rabbit.keeper(l, own)),
		single.at(watermillConfirms.keeper(l, peer)),
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
	trials := []trial{sending{l.messages, 1, l.messages}.at(rawOneByOne.keeper(l, window))}
	for _, b := range batches {
		trials = append(trials, b.at(rabbit.keeper(l, b.name)))
	}
	trials = append(trials, sending{l.atMost(watermillConfirm).messages, 8, 100}.at(watermillConfirms.keeper(l, peer+", 100 a call by 8 goroutines")))
	if c, err = compare(ctx, l.repetitions, trials); err != nil {
		return nil, err
	}
	t := c.table("Many messages a call", window)
	for _, b := range batches {
		t.aims = append(t.aims, aim{what: b.name + ", times " + window, want: 0.9, got: c.times(b.name, window)})
	}
	return append(tables, t), nil
}

func rabbitRetry(ctx context.Context, l load) ([]table, error) {
	const own, raw, failing = "Reprise", "raw, one ack each", ", failing once"
	c, err := compare(ctx, l.repetitions, []trial{
		rawOneByOne.keeper(l, raw).at(backlog{messages: l.messages}),
		rawOneByOne.keeper(l, raw+failing).at(backlog{messages: l.messages, failures: 1}),
		rabbitTuned.keeper(l, own).at(backlog{messages: l.messages}),
		rabbitTuned.keeper(l, own+failing).at(backlog{messages: l.messages, failures: 1}),
	})
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, concurrency %d", thousands(int64(l.messages)), tunedRabbit), own, raw+failing)
	t.aims = []aim{{what: "times its own success rate", want: 0.4, got: c.times(own+failing, own)}}
	return []table{t}, nil
}

func rabbitLatency(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(200)
	contenders := []contender{
		rawOneByOne.keeper(l, "raw").contender(),
		watermillConfirms.keeper(l, "Watermill").contender(),
		rabbit.keeper(l, "Reprise").contender(),
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

func rabbitDefaults(ctx context.Context, l load) ([]table, error) {
	const tuned, defaults = "tuned", "defaults"
	c, err := compare(ctx, l.repetitions, backlog{messages: l.messages}.at(rabbitTuned.keeper(l, tuned), rabbit.keeper(l, defaults)))
	if err != nil {
		return nil, err
	}
	t := c.table(fmt.Sprintf("A backlog of %s, concurrency %d when tuned", thousands(int64(l.messages)), tunedRabbit), tuned)
	t.aims = []aim{{what: "times " + tuned, want: 0.5, got: c.times(defaults, tuned)}}
	return []table{t}, nil
}
