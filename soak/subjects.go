//go:build darwin || linux

package main

import (
	"context"

	"github.com/reprise-go/reprise/core"
)

// A subject is a way of using a transport, on which a soak runs.
type subject struct {
	name  string // for -transport
	title string // in tables
	guarantees
	start func(ctx context.Context) (system, error)
}

// subjects are in the order in which they run and are printed.
var subjects = []subject{
	{"inmemory-atomic", "in memory, atomic", guarantees{core.TransactionSendsAtomicWithReceive, true, false}, startInMemory},
	{"inmemory-receive-only", "in memory, ReceiveOnly", guarantees{core.TransactionReceiveOnly, true, false}, startInMemory},
	{"postgres-atomic", "PostgreSQL, atomic", guarantees{core.TransactionSendsAtomicWithReceive, true, false}, startPostgres},
	{"postgres-receive-only", "PostgreSQL, ReceiveOnly", guarantees{core.TransactionReceiveOnly, true, false}, startPostgres},
	{"rabbitmq3-quorum", "RabbitMQ 3, quorum", guarantees{core.TransactionReceiveOnly, true, false}, startRabbit3Quorum},
	{"rabbitmq3-classic", "RabbitMQ 3, classic", guarantees{core.TransactionReceiveOnly, false, false}, startRabbit3Classic},
	{"rabbitmq4-quorum", "RabbitMQ 4, quorum", guarantees{core.TransactionReceiveOnly, true, false}, startRabbit4Quorum},
	{"rabbitmq4-classic", "RabbitMQ 4, classic", guarantees{core.TransactionReceiveOnly, false, false}, startRabbit4Classic},
	{"sqs", "SQS, standard", guarantees{core.TransactionReceiveOnly, true, false}, startSQSStandard},
	{"sqs-fifo", "SQS, FIFO", guarantees{core.TransactionReceiveOnly, true, true}, startSQSFIFO},
	{"asb", "Service Bus", guarantees{core.TransactionReceiveOnly, true, false}, startASBPlain},
	{"asb-sessions", "Service Bus, sessions", guarantees{core.TransactionReceiveOnly, true, true}, startASBSessions},
}
