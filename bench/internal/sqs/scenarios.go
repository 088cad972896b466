// Package sqs has the scenarios of Amazon SQS, their contenders, and the servers.
package sqs

import "github.com/reprise-go/reprise/bench/internal/scenario"

// Scenarios returns the scenarios of standard queues of Amazon SQS, compared with loops over the AWS SDK alone and Watermill.
func (s *Servers) Scenarios() []scenario.Scenario {
	return []scenario.Scenario{
		{
			Name:  "sqs-receive",
			Title: "Amazon SQS, receiving",
			About: "A backlog is handled by handlers that do nothing. Each poller of the raw loop receives ten messages, handles them one after the other and deletes them with one request; " +
				"Reprise has as many messages in flight, so that it needs as many pollers. Watermill tuned has 16 subscriptions, each of which receives ten messages, and handles and deletes one at a time.",
			Run: s.receive,
		},
		{
			Name:  "sqs-send",
			Title: "Amazon SQS, sending",
			About: "The raw sender puts the messages of a call into requests of ten, one after the other. Watermill sends each message with a separate request.",
			Run:   s.send,
		},
		{
			Name:  "sqs-retry",
			Title: "Amazon SQS, every message fails once",
			About: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop unlocks what failed of ten with one request, and knows of no attempts.",
			Run:   s.retry,
		},
		{
			Name:  "sqs-latency",
			Title: "Amazon SQS, latency of an idle queue",
			About: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
			Run:   s.latency,
		},
	}
}
