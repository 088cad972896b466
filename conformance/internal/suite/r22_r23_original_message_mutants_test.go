package suite

import (
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
)

var originalMessageMutants = []mutant{
	{rule: "R22", name: "forgets the native properties of copies", breaks: forgetsNative},
	{rule: "R23", name: "forgets the native properties of copies", breaks: forgetsNative},
	{rule: "R22", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R22", name: "replaces the headers of a message", breaks: leaksItsHeaders},
	{rule: "R22", name: "sends a delayed message twice", breaks: func() changes {
		return sendsTwice(func(o core.Outgoing) bool { return o.Delay > 0 })
	}},
	{rule: "R22", name: "releases a message that it replaced", breaks: givesBackReplaced},
	{rule: "R22", name: "loses the replacement of a message", breaks: losesReplacements},
	{rule: "R23", name: "replaces the headers of a message", breaks: leaksItsHeaders},
	{rule: "R23", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R23", name: "sends a failed message twice", breaks: func() changes { return sendsTwice(hasFailed) }},
	{rule: "R23", name: "releases a message that it replaced", breaks: givesBackReplaced},
	{rule: "R23", name: "forgets to acknowledge", breaks: forgetsToAcknowledge},
	{rule: "R23", name: "carries text bodies alone", breaks: func() changes {
		return outgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				out[i].Body = []byte(strings.ToValidUTF8(string(out[i].Body), "\uFFFD"))
			}
			return out
		})
	}},
	{rule: "R23", name: "has addresses to which it cannot send", breaks: func() changes {
		return changes{address: func(queue string, next func(string) (string, error)) (string, error) {
			address, err := next(queue)
			if !strings.HasPrefix(address, "amqp://") {
				address = "amqp://broker/" + address
			}
			return address, err
		}}
	}},
	{rule: "R23", name: "puts back the headers that a failed message was received with", breaks: func() changes {
		var mu sync.Mutex
		held := map[string]core.Headers{} // by message id
		c := outgoing(func(out []core.Outgoing) []core.Outgoing {
			mu.Lock()
			defer mu.Unlock()
			for i, o := range out {
				if hasFailed(o) {
					for key, value := range held[o.ID].All() {
						out[i].Headers.Set(key, value)
					}
				}
			}
			return out
		})
		c.arrive = func(_ *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := held[in.ID]; !ok {
				held[in.ID] = in.Headers
			}
		}
		return c
	}},
}
