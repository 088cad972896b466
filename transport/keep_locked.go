package transport

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise/core"
)

// minRenewalInterval is the shortest time between two renewals of one lock.
const minRenewalInterval = 10 * time.Millisecond

// KeepLocked renews the lock of a delivery until ctx ends. It is for a program that calls a
// transport without an endpoint, which renews the locks of its deliveries by itself:
//
//	ctx, cancel := context.WithCancelCause(ctx)
//	go func() { cancel(transport.KeepLocked(ctx, delivery)) }()
//	err := handle(ctx, delivery.Incoming())
//
// It returns nil when ctx ends or the delivery is settled, and an error that matches
// [core.ErrLockLost] when the lock is lost: the message is redelivered. A renewal that fails
// for another reason is repeated until the lock has expired. If the lock does not expire,
// KeepLocked waits for the end of ctx.
func KeepLocked(ctx context.Context, d core.Delivery) error {
	for {
		lockedUntil := d.LockedUntil()
		if lockedUntil.IsZero() {
			<-ctx.Done()
			return nil
		}
		pause := max(time.Until(lockedUntil)/2, minRenewalInterval)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		renewal, cancel := context.WithDeadline(ctx, lockedUntil)
		err := d.Renew(renewal)
		cancel()
		switch {
		case ctx.Err() != nil, errors.Is(err, core.ErrSettled):
			return nil //nolint:nilerr // it has ended as it should
		case errors.Is(err, core.ErrLockLost):
			return err
		case err != nil && !time.Now().Before(lockedUntil):
			return errors.Join(core.ErrLockLost, err)
		}
	}
}
