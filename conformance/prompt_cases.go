package conformance

import (
	"slices"
	"time"
)

// promptCases are about how soon a message that was given back is redelivered.
var promptCases = []testCase{
	{rule: "C8", title: "what is given back comes again as quickly as a new message", in: givingBack, run: func(t *trial) {
		// The times are compared with those of new messages sent in between, so that a
		// busy machine does not fail the case; and medians are compared, so that one
		// pause of the machine does not either.
		const rounds, margin = 7, 300 * time.Millisecond
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 2)
		t.sendEach(transport, queue, "given back")
		d := r.next()
		ways := t.waysToSettle("")[1:3] // Abandon and Release
		var fresh []time.Duration
		again := map[string][]time.Duration{}
		for range rounds {
			began := time.Now()
			t.sendEach(transport, queue, "new")
			other := r.takeThese("a new message is delivered", "new")["new"]
			fresh = append(fresh, time.Since(began))
			t.complete(other)
			for _, way := range ways {
				began := time.Now()
				d = t.giveBack(way, d, r)
				again[way.name] = append(again[way.name], time.Since(began))
			}
		}
		t.complete(d)
		limit := margin + 3*median(fresh)
		for _, way := range ways {
			if took := median(again[way.name]); took > limit {
				t.fail("a message that was given back by "+way.name+" comes again at once, without a back-off of the broker or the adapter: about as soon as a new message",
					"%v later (median of %d), while a new message took %v", took, rounds, median(fresh))
			}
		}
	}},
}

func median(durations []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)/2]
}
