package main

// inMemoryScenarios returns the scenarios in this process: the cost of the engine itself, compared with Watermill's
// router on its own in-memory channel.
func inMemoryScenarios() []scenario {
	return []scenario{
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
}
