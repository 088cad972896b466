// Package inmemory has the scenarios of the in-memory transport, and their contenders.
package inmemory

import "github.com/reprise-go/reprise/bench/internal/scenario"

// Scenarios returns the scenarios in this process: the cost of the engine itself, compared with Watermill's
// router on its own in-memory channel.
func Scenarios() []scenario.Scenario {
	return []scenario.Scenario{
		{
			Name:  "inmemory-transport",
			Title: "In memory, through Transport.Send",
			About: "One sender, handlers of []byte that do nothing, 256 bytes and 4 headers.",
			Run:   transportSend,
		},
		{
			Name:  "inmemory-endpoint",
			Title: "In memory, through Endpoint.Send",
			About: "The same with a new id and all standard headers, 14 in all; Watermill still sends its 4.",
			Run:   endpointSend,
		},
		{
			Name:  "inmemory-otel",
			Title: "In memory, with OpenTelemetry",
			About: "The receiving side with package otel at several settings of the SDK, in ReceiveOnly and with 16 handlers; nothing is exported.",
			Run:   openTelemetry,
		},
		{
			Name:  "inmemory-retry",
			Title: "In memory, every message fails once",
			About: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once.",
			Run:   retry,
		},
		{
			Name:  "inmemory-latency",
			Title: "In memory, latency of an idle queue",
			About: "From before the send to the handler's first line, one message at a time, with a pause before each.",
			Run:   latency,
		},
		{
			Name:    "inmemory-concurrency",
			Title:   "In memory, concurrency",
			About:   "How the rate grows with Config.Concurrency: handlers that do nothing, and handlers that wait 1 ms.",
			Run:     concurrency,
			Plotted: true,
		},
		{
			Name:    "inmemory-body",
			Title:   "In memory, body size",
			About:   "How the rate falls with the size of the body, free-running.",
			Run:     bodySizes,
			Plotted: true,
		},
		{
			Name:  "inmemory-memory",
			Title: "In memory, memory while messages fail",
			About: "What the process holds while distinct messages fail: 6 attempts of each, then the error queue, from which another endpoint takes it. " +
				"At most 2,000 are on their way at a time. Where the operating system does not tell the resident set, it is what the Go runtime has taken and not given back.",
			Run:     memory,
			Plotted: true,
		},
	}
}
