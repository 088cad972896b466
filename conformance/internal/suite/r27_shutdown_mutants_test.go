package suite

import (
	"context"

	"github.com/reprise-go/reprise/core"
)

var shutdownMutants = []mutant{
	{rule: "R27", name: "takes the end of Receive's context for its own", breaks: func() changes {
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if ctx.Err() != nil {
				_ = r.Receiver.Close(context.WithoutCancel(ctx))
			}
			return n, err
		}}
	}},
	{rule: "R27", name: "keeps prefetched messages until it is closed", config: receivingOnly, breaks: func() changes { return prefetching(8).changes() }},
	{rule: "R27", name: "counts released deliveries", breaks: releasesByAbandoning},
	{rule: "R27", name: "loses released messages", breaks: losesReleased},
	{rule: "R27", name: "loses released messages", breaks: losesReleased},
}
