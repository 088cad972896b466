package postgres

import (
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/core"
)

// The concurrencies that are fastest with handlers that do nothing.
const (
	tunedReceiveOnly = 64
	tunedAtomic      = 16
)

var (
	receiveOnly      = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionReceiveOnly}}
	receiveOnlyTuned = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionReceiveOnly, Concurrency: tunedReceiveOnly}}
	atomic16         = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionSendsAtomicWithReceive, Concurrency: tunedAtomic, Sends: true}}
	atomicLeases     = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionSendsAtomicWithReceive, Concurrency: tunedReceiveOnly, Sends: true}}
	atomicWrites     = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionSendsAtomicWithReceive, Concurrency: tunedAtomic, Work: writeRow}}
	nserviceBusTable = repriseSetup{Setup: atomicWrites.Setup, nserviceBus: true}
	atomicDefaults   = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionSendsAtomicWithReceive, Sends: true}}

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
