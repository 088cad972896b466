package suite

import (
	"strings"

	"github.com/reprise-go/reprise/core"
)

// headersInLowerCase carries headers as HTTP/2 does.
func headersInLowerCase() changes {
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		var lower core.Headers
		for key, value := range in.Headers.All() {
			if !strings.HasPrefix(key, "NServiceBus.") {
				key = strings.ToLower(key)
			}
			lower.Set(key, value)
		}
		in.Headers = lower
	}}
}

var policyMutants = []mutant{
	{rule: "R11", name: "hands over headers in lower case", breaks: headersInLowerCase},
	{rule: "R11", name: "counts by the message id, which the delayed copy has too", breaks: countsByID},
	{rule: "R11", name: "counts from 0", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.DeliveryCount-- }}
	}},
	{rule: "R11", name: "takes a semicolon for the end of a header", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
			var cut core.Headers
			for key, value := range in.Headers.All() {
				value, _, _ = strings.Cut(value, ";")
				cut.Set(key, value)
			}
			in.Headers = cut
		}}
	}},
	{rule: "R11", name: "cannot repair a broken transaction", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Reset" {
				return nil
			}
			return next()
		}}
	}},
	{rule: "R11", name: "undoes all work when it sends", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "CompleteWith" {
				d.work.undo()
			}
			return next()
		}}
	}},
	{rule: "R12", name: "gives a message back when its work is undone", breaks: givesBackReset},
	{rule: "R12", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
}
