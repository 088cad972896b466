// Package asb has the scenarios of Azure Service Bus, their contenders, and the servers.
package asb

import "github.com/reprise-go/reprise/bench/internal/scenario"

// Scenarios returns the scenarios of queues of Azure Service Bus, compared with loops over azservicebus alone.
func (s *Servers) Scenarios() []scenario.Scenario {
	return []scenario.Scenario{
		{
			Name:  "asb-receive",
			Title: "Azure Service Bus, receiving",
			About: "A backlog is handled by handlers that do nothing. Each link of the raw loop receives up to 50 messages, handles them one after the other and completes them all at once; " +
				"Reprise has as many messages in flight, on as many links.",
			Run: s.receive,
		},
		{
			Name:  "asb-send",
			Title: "Azure Service Bus, sending",
			About: "The raw sender puts the messages of a call into as few batches as they fit in. Both send on one link.",
			Run:   s.send,
		},
		{
			Name:  "asb-retry",
			Title: "Azure Service Bus, every message fails once",
			About: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop abandons failed messages, and knows of no attempts.",
			Run:   s.retry,
		},
		{
			Name:  "asb-latency",
			Title: "Azure Service Bus, latency of an idle queue",
			About: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each. The raw loop receives one message at a time on one link.",
			Run:   s.latency,
		},
	}
}
