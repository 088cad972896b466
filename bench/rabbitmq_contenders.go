package main

import (
	"time"

	"github.com/reprise-go/reprise/core"
)

// tunedRabbit is the concurrency of the aims.
const tunedRabbit = 64

var (
	rabbit      = rabbitSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly}}
	rabbitTuned = rabbitSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly, concurrency: tunedRabbit}}

	rawOneByOne = rawRabbitSetup{acks: 1}
	rawFifty    = rawRabbitSetup{acks: 50}
)

// The most messages of a sample of slower work.
const (
	rabbitSingles    = 20_000 // one per call
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
	if sequenceNumber(sequence)%slowEvery == 0 {
		time.Sleep(slowWait)
	}
}
