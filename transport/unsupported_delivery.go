package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// UnsupportedDelivery has the methods of a [core.Delivery] that not every transport
// can offer, each refused with an error matching errors.ErrUnsupported. An
// adapter's delivery embeds it and declares the methods that the adapter has; a
// method that a later version adds to core.Delivery is then refused too, instead of
// breaking the adapter's build.
//
// A wrapper of deliveries embeds core.Delivery instead, which passes every method on.
type UnsupportedDelivery struct{}

// BindContext returns ctx: there is no native transaction.
func (UnsupportedDelivery) BindContext(ctx context.Context) context.Context { return ctx }

// Postpone is refused: Capabilities.GroupOrder is not claimed.
func (UnsupportedDelivery) Postpone(context.Context, time.Duration, error) error {
	return unclaimed("Postpone", "GroupOrder")
}

// CompleteWith is refused: TransactionSendsAtomicWithReceive has it.
func (UnsupportedDelivery) CompleteWith(context.Context, []core.Outgoing) error {
	return unclaimed("CompleteWith", "SendsAtomicWithReceive")
}

// Reset is refused: TransactionSendsAtomicWithReceive has it.
func (UnsupportedDelivery) Reset(context.Context) error {
	return unclaimed("Reset", "SendsAtomicWithReceive")
}

// Savepoint is refused: Capabilities.Savepoints is not claimed.
func (UnsupportedDelivery) Savepoint(context.Context) (rollback func(context.Context) error, err error) {
	return nil, unclaimed("Savepoint", "Savepoints")
}

// ReplaceWith is refused: TransactionSendsAtomicWithReceive has it.
func (UnsupportedDelivery) ReplaceWith(context.Context, []core.Outgoing) error {
	return unclaimed("ReplaceWith", "SendsAtomicWithReceive")
}

// LockedUntil returns the zero time: the lock does not end by itself.
func (UnsupportedDelivery) LockedUntil() time.Time { return time.Time{} }

// Renew is refused: a lock that does not end by itself needs none.
func (UnsupportedDelivery) Renew(context.Context) error {
	return fmt.Errorf("Renew: the delivery's lock does not end by itself: %w", errors.ErrUnsupported)
}

// DeadLetter is refused: Capabilities.DeadLetter is not claimed.
func (UnsupportedDelivery) DeadLetter(context.Context, core.DeadLetter) error {
	return unclaimed("DeadLetter", "DeadLetter")
}

// unclaimed has the form of Unsupported, with the method before it.
func unclaimed(method, capability string) error {
	return fmt.Errorf("%s: the receiver does not have the capability %s: %w", method, capability, errors.ErrUnsupported)
}
