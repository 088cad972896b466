package suite

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var failureQueueMutants = []mutant{
	{rule: "R62", name: "drops the headers of a failure that NServiceBus does not have", breaks: dropsOwnHeaders},
	{rule: "R62", name: "loses a copy that it accepts while it consumes the message", breaks: losesReplacements},
	{rule: "R62", name: "consumes a message before its copy is accepted, and loses the copy", breaks: func() changes {
		var moves callCounter
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			if len(out) == 1 && out[0].Reason == core.ReasonMoveToError && moves.isNth(1) {
				return nil
			}
			return out
		})
	}},
	{rule: "R62", name: "drops the header that names the queue of a failed message", breaks: altersHeaders(func(h map[string]string) {
		delete(h, headers.FailedQ)
	})},
	{rule: "R62", name: "swallows the refusal of a queue that does not exist", breaks: swallowsUnroutable},
	{rule: "R62", name: "cuts off headers beyond 32 KiB", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				for key := range out[i].Headers.Map() {
					if out[i].Headers.Bytes() > 32<<10 && strings.HasPrefix(key, "large-") {
						out[i].Headers.Del(key)
					}
				}
			}
			return out
		})
	}},
	{rule: "R62", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R63", name: "sends invalid messages to the error queue", breaks: func() changes {
		var errorQueue atomic.Value // the newest queue: services make theirs last
		c := changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				if out[i].Headers.Get(headers.FailureReason) != "" {
					out[i].Queue, _ = errorQueue.Load().(string)
				}
			}
			return out
		})
		c.provision = func(_ *brokenTransport, topology core.Topology, next func() error) error {
			errorQueue.Store(topology.Queues[len(topology.Queues)-1])
			return next()
		}
		return c
	}},
	{rule: "R63", name: "drops the headers of a failure that NServiceBus does not have", breaks: dropsOwnHeaders},
	{rule: "R63", name: "makes UTF-8 of bodies", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				out[i].Body = []byte(strings.ToValidUTF8(string(out[i].Body), "?"))
			}
			return out
		})
	}},
	{rule: "R63", name: "does not consume malformed messages", breaks: onMalformed(func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Complete" || isSend(operation) {
			return d.Delivery.Release(context.Background())
		}
		return next()
	})},
}
