package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// headerHops has the names of the bridges that a message has crossed, in order, separated by
// commas.
const headerHops = "Reprise.Bridge.Hops"

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

// addHop records that a message crosses the bridge. The list starts anew after a failure:
// when a failed message is returned, its earlier hops do not count.
func addHop(h *core.Headers, bridge string) error {
	before := hops(*h)
	if h.Get(headers.FailedQ) != "" {
		before = nil
	}
	if len(before) >= maxHops {
		return fmt.Errorf("%w: it has crossed %d of them (%s); to fix: let each queue be bridged in one direction alone", errLoop, len(before), strings.Join(slices.Compact(slices.Sorted(slices.Values(before))), ", "))
	}
	h.Set(headerHops, strings.Join(append(before, bridge), hopSeparator))
	return nil
}
