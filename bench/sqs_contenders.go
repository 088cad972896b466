package main

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// sqsPollers is the number of concurrent requests for messages in the aims, and tunedSQS the concurrency that
// needs them.
const (
	sqsPollers = 8
	tunedSQS   = sqsPollers * sqsBatch
)

var (
	sqsPlain = sqsSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly}}
	sqsTuned = sqsSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly, concurrency: tunedSQS}}
	rawSQS   = rawSQSSetup{pollers: sqsPollers}
)

// The most messages of a sample of slower work.
const (
	sqsSingles        = 20_000 // one per call
	sqsAwaited        = 40_000 // with delayed answers
	watermillSQS      = 10_000 // each with a separate request
	sqsFewSlots       = 10_000 // with Reprise's defaults
	watermillOneByOne = 500    // with Watermill's
)

// The aims of Reprise as ratios to the raw loop. Each request costs the same.
const (
	sqsRateAim     = 0.9
	sqsRequestsAim = 1.05
)

// sqsAims are the aims of a contender compared with the raw one.
func sqsAims(c comparison, own, raw string) []aim {
	return []aim{
		{what: "times " + raw, want: sqsRateAim, got: c.times(own, raw)},
		{what: "requests a message, times " + raw, want: sqsRequestsAim, got: c.timesRequests(own, raw), ceiling: true},
	}
}

// sqsPlaces are the distances of the server.
var sqsPlaces = []struct {
	title string
	away  time.Duration
	most  int // messages of a sample; 0 is the number of the load
}{
	{fmt.Sprintf("each answer %v later, in place of a network", sqsAway), sqsAway, sqsAwaited},
	{"the server on the same cores, and no time between", 0, 0},
}
