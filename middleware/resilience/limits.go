package resilience

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
)

// limiter lets messages through at a rate.
type limiter struct {
	config  RateLimit
	name    string
	permits ratelimiter.RateLimiter[any]

	mu   sync.Mutex
	next time.Time // the time at which the next refused message may return
}

func newLimiter(name string, c RateLimit) *limiter {
	l := &limiter{config: c, name: name}
	if c.Burst {
		l.permits = ratelimiter.NewBursty[any](uint(c.Messages), c.Per)
	} else {
		l.permits = ratelimiter.NewSmooth[any](uint(c.Messages), c.Per)
	}
	return l
}

// wait waits for the turn of a message, or refuses it. It returns an error if ctx ends.
func (l *limiter) wait(ctx context.Context) (*RefusedError, error) {
	switch wait := l.permits.TryReservePermit(l.config.MaxWait); {
	case wait < 0:
		return &RefusedError{Policy: l.name, By: StrategyRateLimit, Until: l.turn()}, nil
	case wait > 0:
		return nil, pause(ctx, wait, nil)
	}
	return nil, nil
}

// turn spreads refused messages at the rate, so that they do not all return at once and
// are refused again.
func (l *limiter) turn() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.next.Before(now) {
		l.next = now
	}
	l.next = l.next.Add(l.config.Per / time.Duration(l.config.Messages))
	return l.next
}

// places limits the number of messages that are handled at the same time.
type places struct {
	config   Bulkhead
	name     string
	bulkhead bulkhead.Bulkhead[any]
}

func newPlaces(name string, c Bulkhead) *places {
	return &places{c, name, bulkhead.New[any](uint(c.Concurrency))}
}

// wait takes a place, or refuses the message. It returns an error if ctx ends.
func (p *places) wait(ctx context.Context) (*RefusedError, error) {
	err := p.bulkhead.AcquirePermitWithMaxWait(ctx, p.config.MaxWait)
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, bulkhead.ErrFull):
		return &RefusedError{Policy: p.name, By: StrategyBulkhead, Until: time.Now().Add(p.config.RefuseFor)}, nil
	}
	return nil, context.Cause(ctx)
}

func (p *places) leave() { p.bulkhead.ReleasePermit() }

// pause waits for d, or until changed is closed. If ctx ends first, it returns the cause.
func pause(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
