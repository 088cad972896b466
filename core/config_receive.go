package core

import (
	"slices"

	"github.com/reprise-go/reprise/core/internal/pump"
)

// This file has the settings with which an endpoint receives.

// receiverConfig returns the configuration of a receiver, without the functions that it calls.
func (r *resolvedConfig) receiverConfig(concurrency int) ReceiverConfig {
	return ReceiverConfig{
		Queue: r.inputQueue, Mode: r.mode, MaxInFlight: r.pumpRules().FirstMaxInFlight(concurrency), MaxDeliveries: r.rules.receiverMaxDeliveries(),
		MaxReceiveBytes: (r.prefetchBytesLimit() + 1) / 2,
		ErrorQueue:      r.rules.config.Failed.ErrorQueue,
	}
}

// pumpRules returns how a pump works with this transport in this mode.
func (r *resolvedConfig) pumpRules() pump.Rules {
	caps, receiveAndDelete := r.rules.caps, r.mode == TransactionNone
	return pump.Rules{
		FetchPerWorker:   r.connectionPerMessage(),
		ReceiveAndDelete: receiveAndDelete,
		CountsReleases:   caps.CountsReleases && !receiveAndDelete,
		Prefetches:       caps.Prefetch && !r.connectionPerMessage() && !receiveAndDelete,
		MaxBatch:         caps.MaxReceiveBatch,
		MaxPrefetchBytes: r.prefetchBytesLimit(),
		Isolates:         r.isolation.threshold > 0,
		SlowAfter:        slowHandlerAfter,
	}
}

// prefetchBytesLimit returns the limit for unstarted deliveries; 0 = no limit, as without
// prefetching. One Receive may fetch half of it.
func (r *resolvedConfig) prefetchBytesLimit() int {
	if !r.rules.caps.Prefetch || r.mode == TransactionNone || r.connectionPerMessage() {
		return 0
	}
	return r.maxPrefetchBytes
}

// connectionPerMessage reports whether each message takes a connection of the transport
// from its receipt on.
func (r *resolvedConfig) connectionPerMessage() bool {
	return r.mode.isAtomic() && !r.rules.caps.AtomicLeases
}

// topology returns the queues that the endpoint needs.
func (r *resolvedConfig) topology() Topology {
	return Topology{Queues: r.queues, InputQueue: r.inputQueue, QueueExpiry: r.config.QueueExpiry, Transactions: r.mode}
}

// isConfiguredQueue reports whether the configuration names the queue.
func (r *resolvedConfig) isConfiguredQueue(queue string) bool {
	return queue != "" && (queue == r.auditAddress || slices.Contains(r.rules.errorQueues(), queue))
}
