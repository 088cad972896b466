package main

// scenarios returns the scenarios of standard queues of Amazon SQS, compared with loops over the AWS SDK alone and Watermill.
func (s *sqsSystem) scenarios() []scenario {
	return []scenario{
		{
			name:  "sqs-receive",
			title: "Amazon SQS, receiving",
			about: "A backlog is handled by handlers that do nothing. Each poller of the raw loop receives ten messages, handles them one after the other and deletes them with one request; " +
				"Reprise has as many messages in flight, so that it needs as many pollers. Watermill tuned has 16 subscriptions, each of which receives ten messages, and handles and deletes one at a time.",
			run: s.receive,
		},
		{
			name:  "sqs-send",
			title: "Amazon SQS, sending",
			about: "The raw sender puts the messages of a call into requests of ten, one after the other. Watermill sends each message with a separate request.",
			run:   s.send,
		},
		{
			name:  "sqs-retry",
			title: "Amazon SQS, every message fails once",
			about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop unlocks what failed of ten with one request, and knows of no attempts.",
			run:   s.retry,
		},
		{
			name:  "sqs-latency",
			title: "Amazon SQS, latency of an idle queue",
			about: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
			run:   s.latency,
		},
	}
}
