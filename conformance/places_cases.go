package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Places of MaxInFlight after deliveries were lost.

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
	{rule: "C3", title: "a message that comes as a Receive is cancelled goes to another that waits", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 2)
		for round := range 30 {
			ctx, cancel := context.WithCancel(t.ctx)
			cancelled := r.ask(ctx, 1)
			t.rest(time.Millisecond) // so that the first call is before the second
			waits := r.ask(t.ctx, 1)
			t.rest(time.Millisecond)
			if round%3 == 0 {
				cancel() // the receiver may not have noticed this when the message arrives
			}
			t.send(transport, t.message(queue, fmt.Sprintf("of round %d", round)))
			if round%3 == 1 { // over a network the message takes a while
				t.rest(time.Duration(t.random.IntN(2000)) * time.Microsecond)
			}
			cancel()
			if first := <-cancelled; len(first.deliveries) > 0 {
				t.complete(first.deliveries...)
				t.send(transport, t.message(queue, fmt.Sprintf("of round %d, for the call that waits", round)))
			}
			select {
			case second := <-waits:
				if len(second.deliveries) == 0 {
					t.stop("Receive returns a delivery, while its context goes on", "%v", second.err)
				}
				t.complete(second.deliveries...)
			case <-time.After(t.patience()):
				t.stop("of two calls of Receive, one of which is cancelled as a message comes, the other receives what the first has not returned", "it has not, in round %d, after %v", round+1, t.patience())
			}
		}
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

// noPlaceLeft checks that a receiver gets no message while it has the MaxInFlight
// deliveries of held. It cannot decide that if their locks have ended during the check.
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

// retaken has the messages that were redelivered after an outage and are still unsettled.
type retaken struct {
	again  map[string]bool // redelivered messages, by their bodies
	holder []core.Delivery // the deliveries to the receiver that had the messages before
	other  *receiver       // has the other deliveries; nil: there are none
}

// retakes receives, with the receiver that had these deliveries in an outage and with
// another one, until their messages have been redelivered. It does nothing if locks end
// by time, and not with their connection: then the messages need not be redelivered.
func (t *trial) retakes(holder *receiver, queue string, lost []core.Delivery) (all retaken) {
	all.again = map[string]bool{}
	missing := map[string]bool{}
	for _, d := range lost {
		if !d.LockedUntil().IsZero() {
			return all
		}
		missing[string(d.Incoming().Body)] = true
	}
	other := t.receiver(t.open(), queue, len(lost))
	all.other = other
	for deadline := time.Now().Add(t.comesAgain()); len(missing) > 0 && time.Now().Before(deadline); {
		for _, r := range []*receiver{holder, other} {
			for _, d := range r.within(t.quiet() / 4) {
				body := string(d.Incoming().Body)
				all.again[body] = true
				delete(missing, body)
				if r == holder {
					all.holder = append(all.holder, d)
				}
			}
		}
	}
	return all
}

// places checks after an outage that a receiver can hold exactly MaxInFlight deliveries.
// It sends as many messages as that takes.
func (t *trial) places(r *receiver, queue string, maxInFlight int, before retaken) {
	if before.other != nil {
		before.other.shut()
	}
	more := make([]core.Outgoing, maxInFlight)
	for i := range more {
		more[i] = t.message(queue, fmt.Sprint("more ", i))
	}
	t.sendEventually(t.open(), more...)
	held := slices.Concat(before.holder, r.takePlaces(maxInFlight-len(before.holder),
		fmt.Sprintf("a receiver whose connection was lost holds as many deliveries afterwards as before, %d: what was lost leaves its places of MaxInFlight", maxInFlight)))
	t.noPlaceLeft(r, held, fmt.Sprintf("late settlements of what was lost in an outage free no places: MaxInFlight is %d", maxInFlight))
}
