package main

import "github.com/reprise-go/reprise/core"

// The concurrencies that are fastest with handlers that do nothing.
const (
	tunedReceiveOnly = 64
	tunedAtomic      = 16
)

var (
	receiveOnly      = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly}}
	receiveOnlyTuned = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly, concurrency: tunedReceiveOnly}}
	atomic16         = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionSendsAtomicWithReceive, concurrency: tunedAtomic, sends: true}}
	atomicLeases     = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionSendsAtomicWithReceive, concurrency: tunedReceiveOnly, sends: true}}
	atomicWrites     = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionSendsAtomicWithReceive, concurrency: tunedAtomic, work: writeRow}}
	nserviceBusTable = postgresSetup{repriseSetup: atomicWrites.repriseSetup, nserviceBus: true}
	atomicDefaults   = postgresSetup{repriseSetup: repriseSetup{mode: core.TransactionSendsAtomicWithReceive, sends: true}}

	rawLease       = rawSetup{batch: 256, workers: 1}
	rawLeaseLarge  = rawSetup{batch: 1000, workers: 1}
	rawLeaseSends  = rawSetup{batch: 256, workers: 1, sends: true}
	rawTransaction = rawSetup{workers: 16, sends: true}
	rawWrites      = rawSetup{workers: 16, writes: true}
)

// The most messages of a sample of slower work.
const (
	atomicMessages   = 20_000
	singleMessages   = 50_000
	riverMessages    = 3_000 // with its defaults
	watermillSingles = 5_000
)
