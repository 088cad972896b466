package asb

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/table"
	"github.com/reprise-go/reprise/core"
)

// linkCount is the number of links in the aims, batchSize the number of messages that the raw loop receives at a time on
// each, and tunedConcurrency the concurrency with the same number in flight.
const (
	linkCount        = 4
	batchSize        = 50
	tunedConcurrency = linkCount * batchSize
)

var (
	reprisePlain = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionReceiveOnly}}
	repriseTuned = repriseSetup{Setup: reprise.Setup{Mode: core.TransactionReceiveOnly, Concurrency: tunedConcurrency}}
	rawLoop      = rawSetup{links: linkCount, batch: batchSize}
)

// The most messages of a sample of slower work.
const (
	singles  = 20_000 // one per call
	awaited  = 40_000 // with delayed answers
	fewSlots = 10_000 // with Reprise's defaults
)

// rateAim is the aim of Reprise as a ratio to the raw loop.
const rateAim = 0.9

// aims are the aims of a contender compared with the raw one.
func aims(c compare.Comparison, own, raw string) []table.Aim {
	return []table.Aim{{Figure: "times " + raw, Want: rateAim, Got: c.RateRatio(own, raw)}}
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
