package conformance

import "github.com/reprise-go/reprise/core"

var scaleOutMutants = []mutant{
	{rule: "R1", name: "takes the counts of its own process for those of the broker",
		on: able(func(c *core.Capabilities) { c.NativeDeliveryCount = false }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.NativeDeliveryCount = true
				return c
			}}
		}},
	{rule: "R1", name: "counts the deliveries of all copies of a message together", breaks: countsCopiesTogether},
}
