package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// renew renews the locks of deliveries, if locks end by themselves.
func (t *caseT) renew(deliveries ...core.Delivery) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	for _, d := range deliveries {
		if !d.LockedUntil().IsZero() {
			if err := d.Renew(ctx); err != nil {
				t.recordLateLock(d)
				t.stop("Renew returns nil for a delivery that is held", "%v%s", err, lockEndedAgo(d))
			}
		}
	}
}

// needLock ends the case if locks do not end by themselves in its mode.
func (t *caseT) needLock(d core.Delivery) {
	if d.LockedUntil().IsZero() {
		t.notRun(fmt.Sprintf("in %v a delivery's lock does not end by itself", t.mode))
	}
}

// sleepPastLocks rests until the locks of all these deliveries have ended.
func (t *caseT) sleepPastLocks(deliveries ...core.Delivery) {
	var last time.Time
	for _, d := range deliveries {
		t.needLock(d)
		if lockedUntil := d.LockedUntil(); lockedUntil.After(last) {
			last = lockedUntil
		}
	}
	t.sleep(time.Until(last) + t.quietPeriod()/2)
}

// keepRenewing renews the locks in time until stop is called. stop returns the first
// error.
func (t *caseT) keepRenewing(deliveries ...core.Delivery) (stop func() error) {
	ctx, cancel := context.WithCancel(t.ctx)
	t.setRenewing(deliveries)
	ended := make(chan error, len(deliveries))
	for _, d := range deliveries {
		t.needLock(d)
		pause := max(time.Until(d.LockedUntil())/3, time.Millisecond)
		t.goGuarded(func() {
			var err error
			defer func() { ended <- err }()
			for err == nil {
				sleepContext(ctx, pause)
				if ctx.Err() != nil {
					return
				}
				err = d.Renew(t.ctx)
				if err != nil {
					t.recordLateLock(d)
				}
			}
		})
	}
	stop = sync.OnceValue(func() error {
		cancel()
		var errs []error
		for range deliveries {
			errs = append(errs, <-ended)
		}
		t.setRenewing(nil)
		return errors.Join(errs...)
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// sleepContext lets d pass, unless ctx ends first.
func sleepContext(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// wantAfterLock waits for the next delivery. It must not arrive before a lock has ended,
// and has to arrive soon after.
func (r *receiver) wantAfterLock(lockedUntil time.Time) core.Delivery {
	ctx, cancel := context.WithDeadline(r.t.ctx, lockedUntil.Add(r.t.timeout()))
	defer cancel()
	got, err := r.batch(ctx, 1)
	if err != nil {
		r.t.stop("a message whose lock has ended is delivered to another receiver", "nothing came until %v after LockedUntil", r.t.timeout())
	}
	if remaining := time.Until(lockedUntil); remaining > 0 {
		r.t.fail("a message is not delivered to another receiver before LockedUntil", "it came %v earlier", remaining)
	}
	return got[0]
}

// redeliveryTimeout returns the time in which messages held by a killed process are
// redelivered.
func (t *caseT) redeliveryTimeout() time.Duration { return t.timeout() + t.lock() }
