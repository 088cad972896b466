package conformance

import "time"

var promptMutants = []mutant{
	{rule: "C8", name: "lets an abandoned message wait for a second", breaks: func() changes {
		return settling("Abandon", later(func(d *brokenDelivery) { _ = d.Delivery.Abandon(ctxBackground, d.cause) }))
	}, harness: withSlack},
	{rule: "C8", name: "lets a released message wait for a second", breaks: func() changes {
		return settling("Release", later(func(d *brokenDelivery) { _ = d.Delivery.Release(ctxBackground) }))
	}, harness: withSlack},
}

func later(do func(d *brokenDelivery)) func(d *brokenDelivery) error {
	return func(d *brokenDelivery) error {
		time.AfterFunc(time.Second, func() { do(d) })
		return nil
	}
}

// withSlack allows what is allowed on a broker.
func withSlack(h *Harness) { h.DelayTolerance = 3 * time.Second }
