package rabbitmq

import (
	"time"

	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
)

// tunedConcurrency is the concurrency of the aims.
const tunedConcurrency = 64

var (
	reprisePlain = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionReceiveOnly}}
	repriseTuned = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionReceiveOnly, Concurrency: tunedConcurrency}}

	rawOneByOne = rawSetup{acks: 1}
	rawFifty    = rawSetup{acks: 50}
)

// The most messages of a sample of slower work.
const (
	singles          = 20_000 // one per call
	watermillConfirm = 10_000 // each waits for its confirm
	watermillSerial  = 5_000  // with its defaults
)

// Some handlers are slow: the broker must not wait for their acknowledgements.
const (
	slowEvery = 500
	slowWait  = 20 * time.Millisecond
)

// slow lets a part of the handlers take long.
func slow(sequence string) {
	if workload.SequenceNumber(sequence)%slowEvery == 0 {
		time.Sleep(slowWait)
	}
}
