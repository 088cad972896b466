// Package rabbitmq connects endpoints to RabbitMQ, 3.10 and later, by AMQP 0-9-1. It
// uses github.com/rabbitmq/amqp091-go.
//
// An application developer needs [Open], or [New] and [Config]. docs/transports/rabbitmq.md
// is the guide, for operators too: it lists the exchanges and queues, the permissions they
// need, and how to run beside NServiceBus endpoints on the same broker.
package rabbitmq
