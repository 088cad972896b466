// Package rabbitmq has the scenarios of RabbitMQ, their contenders, and the broker.
package rabbitmq

import "github.com/reprise-go/reprise/bench/internal/scenario"

// Scenarios returns the scenarios of quorum queues in RabbitMQ, compared with loops over amqp091-go alone and Watermill.
func (s *Server) Scenarios() []scenario.Scenario {
	return []scenario.Scenario{
		{
			Name:  "rabbitmq-receive",
			Title: "RabbitMQ, receiving",
			About: "A backlog is handled by handlers that do nothing, or of which one in 500 takes 20 ms. The raw loop handles and acknowledges one message after the other, at a prefetch of 300; " +
				"one acknowledgement for 50 is a hint at what the broker can do. Watermill tuned has 16 subscriptions with a prefetch of 25 on a quorum queue, each of which handles one message at a time.",
			Run: s.receive,
		},
		{
			Name:  "rabbitmq-send",
			Title: "RabbitMQ, sending",
			About: "Every message is confirmed by the broker, while nobody receives. Watermill sends the messages of one call one after the other, each when the one before it is confirmed.",
			Run:   s.send,
		},
		{
			Name:  "rabbitmq-retry",
			Title: "RabbitMQ, every message fails once",
			About: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop rejects it, and knows of no attempts.",
			Run:   s.retry,
		},
		{
			Name:  "rabbitmq-latency",
			Title: "RabbitMQ, latency of an idle queue",
			About: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
			Run:   s.latency,
		},
		{
			Name:  "rabbitmq-defaults",
			Title: "RabbitMQ, defaults",
			About: "What a user gets who sets nothing but the transaction mode, beside the best of the concurrencies tried.",
			Run:   s.defaults,
		},
		{
			Name:    "rabbitmq-backlog",
			Title:   "RabbitMQ, depth of the backlog",
			About:   "How the rate at which a backlog is handled depends on how many wait at the beginning.",
			Run:     s.backlog,
			Plotted: true,
		},
		{
			Name:    "rabbitmq-concurrency",
			Title:   "RabbitMQ, concurrency",
			About:   "How the rate grows with Config.Concurrency.",
			Run:     s.concurrency,
			Plotted: true,
		},
		{
			Name:    "rabbitmq-instances",
			Title:   "RabbitMQ, instances",
			About:   "How the rate changes with the number of instances of an endpoint, each with connections of its own, in one process.",
			Run:     s.instances,
			Plotted: true,
		},
		{
			Name:    "rabbitmq-body",
			Title:   "RabbitMQ, body size",
			About:   "How the rate falls with the size of the body.",
			Run:     s.body,
			Plotted: true,
		},
	}
}
