package sqs

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/table"
	"github.com/reprise-go/reprise/core"
)

// pollers is the number of concurrent requests for messages in the aims, and tunedConcurrency the concurrency that
// needs them.
const (
	pollers          = 8
	tunedConcurrency = pollers * batchSize
)

var (
	reprisePlain = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionReceiveOnly}}
	repriseTuned = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionReceiveOnly, Concurrency: tunedConcurrency}}
	rawLoop      = rawSetup{pollers: pollers}
)

// The most messages of a sample of slower work.
const (
	singles           = 20_000 // one per call
	awaited           = 40_000 // with delayed answers
	watermillMessages = 10_000 // each with a separate request
	fewSlots          = 10_000 // with Reprise's defaults
	watermillOneByOne = 500    // with Watermill's
)

// The aims of Reprise as ratios to the raw loop. Each request costs the same.
const (
	rateAim     = 0.9
	requestsAim = 1.05
)

// aims are the aims of a contender compared with the raw one.
func aims(c compare.Comparison, own, raw string) []table.Aim {
	return []table.Aim{
		{Figure: "times " + raw, Want: rateAim, Got: c.RateRatio(own, raw)},
		{Figure: "requests a message, times " + raw, Want: requestsAim, Got: c.RequestRatio(own, raw), Ceiling: true},
	}
}

// places are the distances of the server.
var places = []struct {
	title   string
	latency time.Duration
	max     int // messages of a sample; 0 is the number of the load
}{
	{fmt.Sprintf("each answer %v later, in place of a network", networkDelay), networkDelay, awaited},
	{"the server on the same cores, and no time between", 0, 0},
}
