package conformance

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// namesDeliveries takes the receipt of a delivery for the name of the stored
// copy.
func namesDeliveries() changes {
	var receipts atomic.Int64
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		in.NativeID = fmt.Sprintf("receipt-%d", receipts.Add(1))
	}}
}

func losesReleased() changes {
	return settling("Release", func(d *brokenDelivery) error { return d.Delivery.Complete(context.Background()) })
}

var interruptionMutants = []mutant{
	{rule: "R25", name: "gives each delivery a NativeID of its own", breaks: namesDeliveries},
	{rule: "R25", name: "loses what is released", breaks: losesReleased},
	{rule: "R25", name: "settles a delivery also when its sends failed", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Reset" || operation == "Release" {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
	{rule: "R25", name: "holds no more than it was opened for", on: receivingOnly, breaks: func() changes {
		return changes{maxInFlight: func(r *brokenReceiver, n int, next func(int)) { next(min(n, r.cfg.MaxInFlight)) }}
	}},
	{rule: "R25", name: "loses the headers whose meaning it does not know", breaks: altersHeaders(func(headers map[string]string) {
		delete(headers, core.HeaderUndelivered)
	})},
	{rule: "R27", name: "loses what is released", breaks: losesReleased},
	{rule: "R28", name: "gives each delivery a NativeID of its own", breaks: namesDeliveries},
	{rule: "R28", name: "gives each delivery a NativeID of its own, and confirms no settlement",
		on: able(func(c *core.Capabilities) { c.ConfirmsSettlement = false }), breaks: namesDeliveries},
	{rule: "R28", name: "calls a redelivery only what failed", breaks: arriving(func(in *core.Incoming) { in.Redelivered = in.DeliveryCount > 1 })},
	{rule: "R28", name: "acknowledges what is abandoned", breaks: acknowledgesAbandoned},
}
