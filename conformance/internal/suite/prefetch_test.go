package suite

import (
	"context"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// prefetch is what a client has whose broker pushes messages: more of them than
// were asked for. This one is careless: it keeps them although it is told to return them.
type prefetch struct {
	size int
	mu   sync.Mutex
	kept map[*brokenReceiver][]core.Delivery
}

func prefetching(size int) *prefetch {
	return &prefetch{size: size, kept: map[*brokenReceiver][]core.Delivery{}}
}

func (p *prefetch) changes() changes {
	return changes{
		open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			cfg.MaxInFlight += p.size
			return next(cfg)
		},
		maxInFlight: func(_ *brokenReceiver, n int, next func(int)) { next(n + p.size) },
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			if n := p.take(r, dst); n > 0 {
				return n, nil
			}
			many := make([]core.Delivery, p.size)
			n, err := next(ctx, many)
			p.mu.Lock()
			p.kept[r] = append(p.kept[r], many[:n]...)
			p.mu.Unlock()
			return p.take(r, dst), err
		},
	}
}

func (p *prefetch) take(r *brokenReceiver, dst []core.Delivery) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(dst, p.kept[r])
	p.kept[r] = p.kept[r][n:]
	return n
}
