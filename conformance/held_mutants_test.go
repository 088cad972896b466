package conformance

import (
	"context"
	"sync"

	"github.com/reprise-go/reprise/core"
)

var heldMutants = []mutant{
	{rule: "C3", name: "holds no more than 1,000 messages", breaks: func() changes {
		return changes{
			open: func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				cfg.MaxInFlight = min(cfg.MaxInFlight, 1000)
				return next(cfg)
			},
			maxInFlight: func(_ *brokenReceiver, n int, next func(int)) { next(min(n, 1000)) },
		}
	}},
	{rule: "C3", name: "keeps what an open request brought after its caller was gone", breaks: keepsLateAnswers},
}

// keepsLateAnswers leaves the request open when the context of a Receive ends. The next
// Receive gets what it brings, and a pause does not end it.
func keepsLateAnswers() changes {
	type result struct {
		deliveries []core.Delivery
		err        error
	}
	var mu sync.Mutex
	open := map[*brokenReceiver]chan result{}
	return changes{
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			if r.cfg.Mode == core.TransactionNone {
				return next(ctx, dst)
			}
			mu.Lock()
			late := open[r]
			if late == nil {
				late = make(chan result, 1)
				open[r] = late
				room := len(dst)
				go func() {
					fetched := make([]core.Delivery, room)
					n, err := next(ctxBackground, fetched)
					late <- result{fetched[:n], err}
				}()
			}
			mu.Unlock()
			select {
			case got := <-late:
				mu.Lock()
				defer mu.Unlock()
				n := copy(dst, got.deliveries)
				if rest := got.deliveries[n:]; len(rest) > 0 || got.err != nil {
					late <- result{rest, got.err}
				} else {
					delete(open, r)
				}
				if n > 0 {
					return n, nil
				}
				return 0, got.err
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		},
	}
}
