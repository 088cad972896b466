package suite

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

// A case assumes that it runs in time: before locks end by themselves, and when a message
// that is due arrives. On a machine that is busy with other work it may not, which is not
// the transport's fault. So the case records that it was late, and the suite runs it again.

// recordLate records that the machine delayed the case too much.
func (t *caseT) recordLate(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lateError == "" {
		t.lateError = fmt.Sprintf(format, args...)
	}
}

// recordLateLock is called when a delivery has lost its lock, perhaps because the case
// held it for too long.
func (t *caseT) recordLateLock(d core.Delivery) {
	if lockedUntil := d.LockedUntil(); !lockedUntil.IsZero() && time.Now().After(lockedUntil) {
		t.recordLate("the lock of a delivery had ended %v before the case came to it", time.Since(lockedUntil))
	}
}

// recordUnconfirmed records that a broker has confirmed a message of an endpoint so late that the
// endpoint sends it again, as it may: there can then be two.
func (t *caseT) recordUnconfirmed(err error) {
	sent, ok := errors.AsType[*core.SendError](err)
	if ok && slices.ContainsFunc(sent.Results, func(r core.SendResult) bool { return r.State == core.SendUnknown }) {
		t.recordLate("the broker had not confirmed a message: %v", err)
	}
}

// lockEnded reports whether a settlement was refused because the lock had ended.
func lockEnded(d core.Delivery, err error) bool {
	return errors.Is(err, core.ErrLockLost) && !d.LockedUntil().IsZero() && !time.Now().Before(d.LockedUntil())
}

// setRenewing sets the deliveries that the case has to keep by renewing their locks.
func (t *caseT) setRenewing(deliveries []core.Delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewing = deliveries
}

// recordLateRenewals is called after a failure.
func (t *caseT) recordLateRenewals() {
	t.mu.Lock()
	kept := t.renewing
	t.mu.Unlock()
	for _, d := range kept {
		t.recordLateLock(d)
	}
}

// watchPauses looks for times in which no goroutine of the process runs. A pause of a
// quarter of the lock's duration may have prevented the renewal of a lock, and one of half
// of DelayTolerance may have made a message too late.
func (t *caseT) watchPauses() (stop func()) {
	if t.suite.h.Synctest {
		return func() {}
	}
	limit := t.suite.h.DelayTolerance / 2
	if lock := t.lock(); lock > 0 {
		limit = min(limit, lock/4)
	}
	every := max(limit/10, time.Millisecond)
	ticker := time.NewTicker(every)
	quit := make(chan struct{})
	go func() {
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-quit:
				return
			case <-ticker.C:
				now := time.Now()
				if pause := now.Sub(last); pause > limit {
					t.recordLate("the process was not running for %v, and the case allows for %v", pause, limit)
				}
				last = now
			}
		}
	}()
	return func() { close(quit) }
}
