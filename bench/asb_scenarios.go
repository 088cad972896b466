package main

// scenarios returns the scenarios of queues of Azure Service Bus, compared with loops over azservicebus alone.
func (s *asbSystem) scenarios() []scenario {
	return []scenario{
		{
			name:  "asb-receive",
			title: "Azure Service Bus, receiving",
			about: "A backlog is handled by handlers that do nothing. Each link of the raw loop receives up to 50 messages, handles them one after the other and completes them all at once; " +
				"Reprise has as many messages in flight, on as many links.",
			run: s.receive,
		},
		{
			name:  "asb-send",
			title: "Azure Service Bus, sending",
			about: "The raw sender puts the messages of a call into as few batches as they fit in. Both send on one link.",
			run:   s.send,
		},
		{
			name:  "asb-retry",
			title: "Azure Service Bus, every message fails once",
			about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop abandons failed messages, and knows of no attempts.",
			run:   s.retry,
		},
		{
			name:  "asb-latency",
			title: "Azure Service Bus, latency of an idle queue",
			about: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each. The raw loop receives one message at a time on one link.",
			run:   s.latency,
		},
	}
}
