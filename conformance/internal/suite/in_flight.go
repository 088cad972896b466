package suite

import "github.com/reprise-go/reprise/core"

// wantFirstDeliveries checks that no earlier delivery was counted as an attempt.
func (t *caseT) wantFirstDeliveries(arrived []*core.Incoming) {
	if t.caps.MayDuplicate {
		return
	}
	for _, in := range arrived {
		if in.DeliveryCount != 1 {
			t.fail("DeliveryCount is 1 at the first delivery: a message that was prefetched and never handled has not failed; where the broker counts it, the receiver keeps it and hands it out",
				"it is %d for %s", in.DeliveryCount, excerpt(in.Body))
		}
	}
}

// takePlaces returns the next n deliveries.
func (r *receiver) takePlaces(n int, expected string) (taken []core.Delivery) {
	ctx, cancel := r.t.withTimeout()
	defer cancel()
	for len(taken) < n {
		got, err := r.batch(ctx, n-len(taken))
		if err != nil {
			r.t.stop(expected, "after %v it has received %d of %d: %s", r.t.timeout(), len(taken), n, bodies(taken))
		}
		taken = append(taken, got...)
	}
	return taken
}

// wantNoPlaceLeft checks that a receiver gets no message while it has the MaxInFlight
// deliveries of held. It cannot decide that if their locks have ended during the check.
func (t *caseT) wantNoPlaceLeft(r *receiver, held []core.Delivery, expected string) {
	got := r.takeFor(t.quietPeriod())
	if len(got) == 0 {
		return
	}
	for _, d := range held {
		if lockEndedAgo(d) != "" {
			t.note("locks ended before anything could be seen%s", lockEndedAgo(d))
			return
		}
	}
	t.fail(expected, "%d deliveries more than MaxInFlight: %s", len(got), bodies(got))
}
