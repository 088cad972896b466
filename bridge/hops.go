package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

const (
	// headerHops has the names of the bridges that a message has crossed, in order, separated
	// by commas.
	headerHops = "Reprise.Bridge.Hops"
	// headerHopsSince is the time of the failure after which the list began anew.
	headerHopsSince = "Reprise.Bridge.HopsSince"
)

// errLoop is the failure of a message that has crossed too many bridges: two bridges send
// it to each other.
var errLoop = errors.New("message goes in circles between bridges")

const (
	hopSeparator = ","
	// maxHops is far more than a message needs, even one that is forwarded, or returned
	// from an error queue, several times.
	maxHops = 16
)

// hops returns the bridges that a message has crossed.
func hops(h core.Headers) []string {
	text := h.Get(headerHops)
	if text == "" {
		return nil
	}
	return strings.Split(text, hopSeparator)
}

// crossed reports whether a message has crossed the bridge before.
func crossed(h core.Headers, bridge string) bool { return slices.Contains(hops(h), bridge) }

// addHop records that a message crosses the bridge to a queue or topic. For a queue the list
// starts anew after a failure: when a failed message is returned from its error queue, its
// earlier hops do not count. It does so once for each failure, because the headers of a
// failure stay on a message that goes in circles, and because its sender may have written
// them. An event never needs it: it crosses each bridge once, and a failed one is returned to
// the queue of a subscriber.
func addHop(h *core.Headers, bridge string, toQueue bool) error {
	before := hops(*h)
	if failedAt := failureTime(*h); toQueue && failedAt != h.Get(headerHopsSince) && failedAt != "" {
		before = nil
		h.Set(headerHopsSince, failedAt)
	}
	if len(before) >= maxHops {
		return fmt.Errorf("%w: it has crossed %d of them (%s); to fix: let each queue be bridged in one direction alone", errLoop, len(before), strings.Join(slices.Compact(slices.Sorted(slices.Values(before))), ", "))
	}
	h.Set(headerHops, strings.Join(append(before, bridge), hopSeparator))
	return nil
}

// failureTime returns the time of a message's failure as its headers have it, or "".
func failureTime(h core.Headers) string {
	text := h.Get(headers.TimeOfFailure)
	if _, err := headers.ParseTime(text); err != nil || h.Get(headers.FailedQ) == "" {
		return ""
	}
	return text
}
