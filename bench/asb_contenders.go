package main

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// asbLinks is the number of links in the aims, asbBatch the number of messages that the raw loop receives at a time on
// each, and tunedASB the concurrency with the same number in flight.
const (
	asbLinks = 4
	asbBatch = 50
	tunedASB = asbLinks * asbBatch
)

var (
	asbPlain = asbSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly}}
	asbTuned = asbSetup{repriseSetup: repriseSetup{mode: core.TransactionReceiveOnly, concurrency: tunedASB}}
	rawASB   = rawASBSetup{links: asbLinks, batch: asbBatch}
)

// The most messages of a sample of slower work.
const (
	asbSingles  = 20_000 // one per call
	asbAwaited  = 40_000 // with delayed answers
	asbFewSlots = 10_000 // with Reprise's defaults
)

// asbRateAim is the aim of Reprise as a ratio to the raw loop.
const asbRateAim = 0.9

func asbAims(c comparison, own, raw string) []aim {
	return []aim{{what: "times " + raw, want: asbRateAim, got: c.times(own, raw)}}
}

// asbPlaces are the distances of the server.
var asbPlaces = []struct {
	title string
	away  time.Duration
	most  int // messages of a sample; 0 is the number of the load
}{
	{fmt.Sprintf("each answer %v later, in place of a network", asbAway), asbAway, asbAwaited},
	{"the server on the same cores, and no time between", 0, 0},
}
