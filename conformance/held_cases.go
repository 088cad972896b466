package conformance

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// manyHeld is more than 1,000, the default limit of several brokers and clients.
const manyHeld = 1100

// heldCases are about the number of deliveries that one receiver can hold, and about
// prefetched ones.
var heldCases = []testCase{
	{rule: "C3", title: "more than 1,000 messages can be held", in: inReceiveOnly, slow: true, needs: []need{holdingMany}, run: func(t *trial) {
		const total = manyHeld
		transport := t.open()
		queue := t.queue(transport)
		sent := make([]string, total)
		for i := range sent {
			sent[i] = fmt.Sprint(i)
		}
		t.sendEach(transport, queue, sent...)
		r := t.receiver(transport, queue, total)
		r.size = 100
		expected := fmt.Sprintf("with MaxInFlight %d, so many messages are handed out although none of them is settled: a limit of the broker on unsettled messages is set to MaxInFlight or above", total)
		held := map[string]core.Delivery{}
		for renewed := time.Now(); len(held) < total; {
			ctx, cancel := t.patient()
			got, err := r.batch(ctx, r.size)
			cancel()
			if err != nil {
				t.stop(expected, "%d are, and then no more within %v", len(held), t.patience())
			}
			for _, d := range got {
				held[string(d.Incoming().Body)] = d
			}
			if lock := t.lock(); lock > 0 && time.Since(renewed) > lock/4 {
				renewed = time.Now()
				for _, d := range held {
					t.renew(d)
				}
			}
		}
		t.complete(held["0"], held[fmt.Sprint(total-1)])
		r.shut() // gives back the others
	}},
	{rule: "C3", title: "a pause gives back what arrived after Receive had ended", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		paused := t.receiver(transport, queue, 4)
		ctx, cancel := t.briefly()
		defer cancel()
		if got, _ := paused.batch(ctx, 4); len(got) > 0 {
			t.stop("nothing is delivered from an empty queue", "%s was", bodies(got))
		}
		t.sendEach(transport, queue, "late") // a request of the receiver that is in progress may fetch it
		t.rest(t.quiet())
		paused.SetMaxInFlight(0)
		if t.caps.CountsReleases {
			t.release(paused.prefetched()...)
		}
		other := t.receiver(t.open(), queue, 4)
		d := other.takeThese("a message that arrived when no Receive waited is available to another instance after SetMaxInFlight(0): the end of Receive's context, or the pause, ends an open request, and gives back what it has brought", "late")["late"]
		t.complete(d)
		t.left(queue, "after the message was completed")
	}},
}
