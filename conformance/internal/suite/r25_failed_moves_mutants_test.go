package suite

import (
	"context"

	"github.com/reprise-go/reprise/core/headers"
)

var failedMoveMutants = []mutant{
	{rule: "R25", name: "gives each delivery a new NativeID", breaks: namesDeliveries},
	{rule: "R25", name: "loses released messages", breaks: losesReleased},
	{rule: "R25", name: "settles a delivery also when its sends failed", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Reset" || operation == "Release" {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
	{rule: "R25", name: "holds no more than it was opened for", config: receivingOnly, breaks: func() changes {
		return changes{maxInFlight: func(r *brokenReceiver, n int, next func(int)) { next(min(n, r.cfg.MaxInFlight)) }}
	}},
	{rule: "R25", name: "loses the headers whose meaning it does not know", breaks: altersHeaders(func(h map[string]string) {
		delete(h, headers.Undelivered)
	})},
}
