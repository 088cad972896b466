package suite

import (
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var returnMutants = []mutant{
	{rule: "R66", name: "drops the header of a return", breaks: altersHeaders(func(h map[string]string) { delete(h, headers.Replay) })},
	{rule: "R66", name: "leaves the header of a return in the error queue", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				if out[i].Reason == core.ReasonMoveToError {
					out[i].Headers.Set(headers.Replay, "once")
				}
			}
			return out
		})
	}},
	{rule: "R66", name: "tries a returned message once although it was deferred", breaks: func() changes {
		var errorQueue atomic.Value // the newest queue
		c := changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				if out[i].Reason == core.ReasonDeferral && out[i].Headers.Get(headers.Replay) != "" {
					out[i].Queue, _ = errorQueue.Load().(string)
					out[i].Delay = 0
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
}
