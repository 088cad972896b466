package conformance

import "github.com/reprise-go/reprise/core"

// crashCases are about the state that a broker keeps about deliveries after it died. The
// case about counts after a restart is in restartCases.
var crashCases = []testCase{
	{rule: "C9", title: "what was handed out when the broker died is known as delivered before", in: inReceiveOnly, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *trial) {
		o := t.operator()
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "handed out")
		r := t.receiver(transport, queue, 1)
		r.next()
		o.kill()            // at once: some brokers store a moment later that they have delivered a message
		r.SetMaxInFlight(0) // now: it may keep messages that it fetches when it is connected again
		o.start()
		other := t.receiver(transport, queue, 1) // of the same process, which remembers deliveries
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
