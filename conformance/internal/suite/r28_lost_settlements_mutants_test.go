package suite

import (
	"strconv"
	"sync"

	"github.com/reprise-go/reprise/core"
)

var lostSettlementMutants = []mutant{
	{rule: "R28", name: "gives each delivery a new NativeID", breaks: namesDeliveries},
	{rule: "R28", name: "gives each delivery a new NativeID, and confirms no settlement",
		config: able(func(c *core.Capabilities) { c.ConfirmsSettlement = false }), breaks: namesDeliveries},
	{rule: "R28", name: "sets Redelivered only for failed messages", breaks: arriving(func(in *core.Incoming) { in.Redelivered = in.DeliveryCount > 1 })},
	{rule: "R28", name: "completes abandoned messages", breaks: acknowledgesAbandoned},
	{rule: "R28", name: "gives a message another NativeID at each delivery", onServer: true, breaks: func() changes {
		var mu sync.Mutex
		deliveries := 0
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			deliveries++
			in.NativeID = strconv.Itoa(deliveries)
		}}
	}},
}
