package conformance

import (
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

// lineCases are about connections that die silently: neither side is notified, and the
// operating system notices nothing for hours.
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
		expected := "a transport whose connections are silent, with no reset and no end, notices it by itself (a heartbeat, a time limit for answers), connects again and receives"
		// A fetch that was in progress may lock the messages that it finds until their
		// locks end, which may take long. So this message is sent again and again.
		t.sendEach(other, queue, "meanwhile")
		again := time.NewTicker(t.patience() / 20)
		defer again.Stop()
		limit := time.NewTimer(t.patience())
		defer limit.Stop()
		for arrived := false; !arrived; {
			select {
			case got := <-received:
				if got.err != nil {
					t.stop(expected, "Receive returned %v", got.err)
				}
				t.complete(got.deliveries...)
				// "before" is redelivered if its settlement was lost.
				arrived = slices.ContainsFunc(got.deliveries, func(d core.Delivery) bool { return string(d.Incoming().Body) == "meanwhile" })
				if !arrived {
					received = r.receiving()
				}
			case <-again.C:
				t.sendEach(other, queue, "meanwhile")
			case <-limit.C:
				t.stop(expected, "it has received no message that was sent afterwards within %v", t.patience())
			}
		}
		t.sendEventually(transport, t.message(queue, "afterwards"))
	}},
	{rule: "C2", title: "a Send whose answer was lost is not said to be refused", in: once, slow: true, needs: []need{ownLine}, run: func(t *trial) {
		other := t.open()
		queue := t.queue(other)
		transport, line := t.openOnLine()
		t.sendEach(transport, queue, "before") // so that its connections are open
		line.SilenceBroker()
		sent := []core.Outgoing{t.message(queue, "one"), t.message(queue, "two")}
		ctx, cancel := t.briefly()
		defer cancel()
		var must, may, refused []string
		t.sortOut(transport.Send(ctx, sent...), sent, &must, &may, &refused)
		t.holds(queue, "what was accepted before, or by a new connection,", append(must, "before"), may, refused...)
	}},
}
