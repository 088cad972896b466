package suite

import (
	"context"

	"github.com/reprise-go/reprise/core"
)

var failureLimitMutants = []mutant{
	{rule: "R50", name: "loses prefetched messages when it is closed", config: receivingOnly, breaks: func() changes {
		p := prefetching(8)
		c := p.changes()
		c.closeReceiver = func(r *brokenReceiver, next func() error) error {
			kept := make([]core.Delivery, p.size)
			for _, d := range kept[:p.take(r, kept)] {
				if err := d.Complete(context.Background()); err != nil {
					return err
				}
			}
			return next()
		}
		return c
	}},
	{rule: "R50", name: "keeps prefetched messages while MaxInFlight is 0", config: receivingOnly, breaks: func() changes { return prefetching(8).changes() }},
}
