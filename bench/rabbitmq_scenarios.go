package main

// scenarios returns the scenarios of quorum queues in RabbitMQ, compared with loops over amqp091-go alone and Watermill.
func (s *rabbitSystem) scenarios() []scenario {
	return []scenario{
		{
			name:  "rabbitmq-receive",
			title: "RabbitMQ, receiving",
			about: "A backlog is handled by handlers that do nothing, or of which one in 500 takes 20 ms. The raw loop handles and acknowledges one message after the other, at a prefetch of 300; " +
				"one acknowledgement for 50 is a hint at what the broker can do. Watermill tuned has 16 subscriptions with a prefetch of 25 on a quorum queue, each of which handles one message at a time.",
			run: s.receive,
		},
		{
			name:  "rabbitmq-send",
			title: "RabbitMQ, sending",
			about: "Every message is confirmed by the broker, while nobody receives. Watermill sends the messages of one call one after the other, each when the one before it is confirmed.",
			run:   s.send,
		},
		{
			name:  "rabbitmq-retry",
			title: "RabbitMQ, every message fails once",
			about: "Each handler returns an error at the first attempt and succeeds at the second, which follows at once. The raw loop rejects it, and knows of no attempts.",
			run:   s.retry,
		},
		{
			name:  "rabbitmq-latency",
			title: "RabbitMQ, latency of an idle queue",
			about: "From before the send to the handler's first line, one message at a time, with a pause of 20 ms before each.",
			run:   s.latency,
		},
		{
			name:  "rabbitmq-defaults",
			title: "RabbitMQ, defaults",
			about: "What a user gets who sets nothing but the transaction mode, beside the best of the concurrencies tried.",
			run:   s.defaults,
		},
		{
			name:    "rabbitmq-backlog",
			title:   "RabbitMQ, depth of the backlog",
			about:   "How the rate at which a backlog is handled depends on how many wait at the beginning.",
			run:     s.backlog,
			plotted: true,
		},
		{
			name:    "rabbitmq-concurrency",
			title:   "RabbitMQ, concurrency",
			about:   "How the rate grows with Config.Concurrency.",
			run:     s.concurrency,
			plotted: true,
		},
		{
			name:    "rabbitmq-instances",
			title:   "RabbitMQ, instances",
			about:   "How the rate changes with the number of instances of an endpoint, each with connections of its own, in one process.",
			run:     s.instances,
			plotted: true,
		},
		{
			name:    "rabbitmq-body",
			title:   "RabbitMQ, body size",
			about:   "How the rate falls with the size of the body.",
			run:     s.body,
			plotted: true,
		},
	}
}
