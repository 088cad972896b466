package conformance

import "github.com/reprise-go/reprise/core"

// crashCases are about what a broker knows of deliveries after it died. That of counts
// after a restart is among the restartCases.
var crashCases = []testCase{
	{rule: "C9", title: "what was handed out when the broker died is known as delivered before", in: inReceiveOnly, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *trial) {
		o := t.operator()
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "handed out")
		r := t.receiver(transport, queue, 1)
		r.next()
		o.kill()            // at once: some brokers write a moment later what they have handed out
		r.SetMaxInFlight(0) // now: what it fetches when it is connected again it may keep
		o.start()
		other := t.receiver(transport, queue, 1) // of the same process, which has a memory
		ended := other.each(t.comesAgain(), func(d core.Delivery) bool {
			if in := d.Incoming(); !in.Redelivered && in.DeliveryCount < 2 {
				t.fail("a message that was handed out when the broker died comes again with Redelivered set, or a DeliveryCount above 1: the engine recognises by it what it has handled already (R28). Where a broker may forget deliveries, the adapter sets Redelivered for each message that may be older than the broker's last start",
					"Redelivered is false and DeliveryCount is %d", in.DeliveryCount)
			}
			t.complete(d)
			return true
		})
		if !ended {
			t.fail("Durable is claimed, so a message that was handed out when the broker died comes again", "it does not within %v", t.comesAgain())
		}
	}},
}
