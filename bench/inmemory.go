package main

import (
	"context"

	"github.com/reprise-go/reprise/core"
)

// Everything in this process: the cost of the engine itself, compared with Watermill's
// router on its own in-memory channel.
var inMemoryScenarios = []scenario{
	{
		name:  "inmemory-transport",
		title: "In memory, through Transport.Send",
		about: "One sender, handlers of []byte that do nothing, 256 bytes and 4 headers.",
		run:   inMemoryTransport,
	},
	{
		name:  "inmemory-endpoint",
		title: "In memory, through Endpoint.Send",
		about: "The same with a new id and all standard headers, 14 in all; Watermill still sends its 4.",
		run:   inMemoryEndpoint,
	},
	{
		name:  "inmemory-otel",
		title: "In memory, with OpenTelemetry",
		about: "The receiving side with package otel at several settings of the SDK, in ReceiveOnly and with 16 handlers; nothing is exported.",
		run:   inMemoryOpenTelemetry,
	},
	{
		name:  "inmemory-retry",
		title: "In memory, every message fails once",
		about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once.",
		run:   inMemoryRetry,
	},
	{
		name:  "inmemory-latency",
		title: "In memory, latency of an idle queue",
		about: "From before the send to the handler's first line, one message at a time, with a pause before each.",
		run:   inMemoryLatency,
	},
	{
		name:    "inmemory-concurrency",
		title:   "In memory, concurrency",
		about:   "How the rate grows with Config.Concurrency: handlers that do nothing, and handlers that wait 1 ms.",
		run:     inMemoryConcurrency,
		plotted: true,
	},
	{
		name:    "inmemory-body",
		title:   "In memory, body size",
		about:   "How the rate falls with the size of the body, free-running.",
		run:     inMemoryBody,
		plotted: true,
	},
	{
		name:  "inmemory-memory",
		title: "In memory, memory while messages fail",
		about: "What the process holds while distinct messages fail: 6 attempts of each, then the error queue, from which another endpoint takes it. " +
			"At most 2,000 are on their way at a time. Where the operating system does not tell the resident set, it is what the Go runtime has taken and not given back.",
		run:     inMemoryMemory,
		plotted: true,
	},
}

// The modes of the in-memory transport that retry. The first is the default.
var inMemoryModes = []struct {
	name string
	mode core.TransactionMode
}{
	{"Reprise", core.TransactionDefault},
	{"Reprise, ReceiveOnly", core.TransactionReceiveOnly},
}

// The rows with which Reprise's are compared.
const (
	plainWatermill = "Watermill"
	retryWatermill = "Watermill + Retry"
)

// inMemoryAims are the aims of the default mode; 0 is no aim.
type inMemoryAims struct {
	times  float64 // the rate of Watermill with Retry
	allocs float64 // per message
}

func inMemoryTransport(ctx context.Context, l load) ([]table, error) {
	return besideWatermill(ctx, l, repriseSetup{}, inMemoryAims{times: 4, allocs: 10})
}

func inMemoryEndpoint(ctx context.Context, l load) ([]table, error) {
	return besideWatermill(ctx, l, repriseSetup{endpoint: true}, inMemoryAims{allocs: 16})
}

// besideWatermill compares both modes with both routers, at both paces.
func besideWatermill(ctx context.Context, l load, setup repriseSetup, aims inMemoryAims) ([]table, error) {
	var tables []table
	for _, p := range []struct {
		title string
		pace  pace
	}{
		{"Free-running", freeRunning},
		{"Blocking: the sender waits until each message is handled", blocking},
	} {
		contenders := []contender{
			watermillSetup{blocking: p.pace == blocking}.contender(plainWatermill),
			watermillSetup{blocking: p.pace == blocking, retry: true}.contender(retryWatermill),
		}
		for _, m := range inMemoryModes {
			setup.mode = m.mode
			contenders = append(contenders, setup.inMemory(m.name))
		}
		c, err := compare(ctx, l.repetitions, work{pace: p.pace, messages: l.messages}.at(contenders...))
		if err != nil {
			return nil, err
		}
		t := c.table(p.title, plainWatermill, retryWatermill)
		own := inMemoryModes[0].name
		if aims.times > 0 {
			t.aims = append(t.aims, aim{what: "times " + retryWatermill, want: aims.times, got: c.times(own, retryWatermill)})
		}
		t.aims = append(t.aims, aim{what: "allocations a message", want: aims.allocs, got: c.allocs(own), ceiling: true})
		tables = append(tables, t)
	}
	return tables, nil
}

func inMemoryRetry(ctx context.Context, l load) ([]table, error) {
	l = l.atMost(50_000)
	succeeds := work{messages: l.messages}
	fails := work{messages: l.messages, failures: 1}
	const failing = ", failing once"
	names := []string{retryWatermill}
	trials := []trial{
		watermillSetup{retry: true}.contender(retryWatermill).at(succeeds),
		watermillSetup{retry: true}.contender(retryWatermill + failing).at(fails),
	}
	for _, m := range inMemoryModes {
		setup := repriseSetup{mode: m.mode}
		names = append(names, m.name)
		trials = append(trials, setup.inMemory(m.name).at(succeeds), setup.inMemory(m.name+failing).at(fails))
	}
	c, err := compare(ctx, l.repetitions, trials)
	if err != nil {
		return nil, err
	}
	t := c.table("Free-running, messages of a sample: "+thousands(int64(l.messages)), retryWatermill+failing)
	t.head = append(t.head, "× own success")
	for i := range t.rows {
		t.rows[i] = append(t.rows[i], number(c.times(trials[i].name, names[i/2])))
	}
	own := inMemoryModes[0].name
	t.aims = []aim{{what: "times its own success rate", want: 0.4, got: c.times(own+failing, own)}}
	return []table{t}, nil
}
