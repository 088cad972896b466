package conformance

import (
	"errors"

	"github.com/reprise-go/reprise/core"
)

// Places of MaxInFlight whose deliveries are lost.

var placesCases = []testCase{
	{rule: "C3", title: "a delivery whose lock has ended leaves its place to another", in: givingBack, needs: []need{locks}, shortLocks: true, run: func(t *trial) {
		const places = 2
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "a", "b", "c", "d")
		r := t.receiver(transport, queue, places)
		lost := r.take(places)
		t.outlive(lost...)
		next := r.takePlaces(places, "a receiver whose deliveries all lost their locks receives as many again: a lost lock leaves its place of MaxInFlight")
		for _, d := range lost {
			ctx, cancel := t.patient()
			err := d.Complete(ctx)
			cancel()
			if !errors.Is(err, core.ErrLockLost) {
				t.fail("Complete after LockedUntil returns core.ErrLockLost, also where the message came to the same receiver again", "%v", err)
			}
		}
		t.noPlaceLeft(r, next, "a late settlement frees no place of MaxInFlight: its place was free since the lock ended")
	}},
}

// takePlaces returns the next n deliveries.
func (r *receiver) takePlaces(n int, expected string) (taken []core.Delivery) {
	ctx, cancel := r.t.patient()
	defer cancel()
	for len(taken) < n {
		got, err := r.batch(ctx, n-len(taken))
		if err != nil {
			r.t.stop(expected, "after %v it has received %d of %d: %s", r.t.patience(), len(taken), n, bodies(taken))
		}
		taken = append(taken, got...)
	}
	return taken
}

// noPlaceLeft checks that a receiver gets nothing while it holds these, which are
// MaxInFlight. Where their locks ended meanwhile, nothing can be said.
func (t *trial) noPlaceLeft(r *receiver, held []core.Delivery, expected string) {
	got := r.within(t.quiet())
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
