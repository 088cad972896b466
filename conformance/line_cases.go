package conformance

import (
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

// lineCases are about connections that die without a word: neither side is told, and
// the operating system notices nothing for hours.
var lineCases = []testCase{
	{rule: "C15", title: "connections that have fallen silent are noticed", in: givingBack, slow: true, needs: []need{ownLine}, run: func(t *trial) {
		other := t.open()
		queue := t.queue(other)
		transport, line := t.openOnLine()
		r := t.receiver(transport, queue, 4)
		t.sendEach(transport, queue, "before")
		t.complete(r.takeThese("a message is received", "before")["before"])
		received := r.receiving()
		line.Silence()
		t.sendEach(other, queue, "meanwhile")
		expected := "a transport whose connections are silent, with no reset and no end, notices it by itself (a heartbeat, a time limit for answers), connects again and receives"
		arrived := func(d core.Delivery) bool { return string(d.Incoming().Body) == "meanwhile" }
		select {
		case got := <-received:
			if got.err != nil {
				t.stop(expected, "Receive returned %v", got.err)
			}
			t.complete(got.deliveries...)
			// "before" comes again where its settlement was lost.
			if !slices.ContainsFunc(got.deliveries, arrived) && !r.collect(t.patience(), arrived) {
				t.stop(expected, "it receives no message that was sent afterwards")
			}
		case <-time.After(t.patience()):
			t.stop(expected, "Receive has not returned after %v", t.patience())
		}
		t.sendEventually(transport, t.message(queue, "afterwards"))
	}},
	{rule: "C2", title: "a Send whose answer was lost is not said to be refused", in: once, slow: true, needs: []need{ownLine}, run: func(t *trial) {
		other := t.open()
		queue := t.queue(other)
		transport, line := t.openOnLine()
		t.sendEach(transport, queue, "before") // it has its connections
		line.SilenceBroker()
		sent := []core.Outgoing{t.message(queue, "one"), t.message(queue, "two")}
		ctx, cancel := t.briefly()
		defer cancel()
		var must, may, refused []string
		t.sortOut(transport.Send(ctx, sent...), sent, &must, &may, &refused)
		t.holds(queue, "what was accepted before, or by a new connection,", append(must, "before"), may, refused...)
	}},
}
