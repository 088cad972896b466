// For authors of adapters. This file has the interface of a delivery, with its
// settlements.

package core

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

// Delivery is one message, locked for this receiver until it is settled or its lock is
// lost. It is settled exactly once, by [Delivery.Complete], [Delivery.Abandon],
// [Delivery.Release], [Delivery.Postpone], [Delivery.CompleteWith],
// [Delivery.ReplaceWith] or [Delivery.DeadLetter]: a second settlement is [ErrSettled]
// and changes nothing, a settlement after the lock was lost, or its receiver closed,
// is [ErrLockLost] and changes nothing for the receiver that has the message by
// then. After any other error the delivery is still unsettled, as far as the adapter can
// tell, and another settlement may be tried. In an outage the error matches [ErrUnavailable].
//
// A settlement ends with the deadline of its ctx, and then returns an error that matches
// context.DeadlineExceeded and ErrUnavailable. If ctx is cancelled, it may take some
// seconds longer, to learn its outcome. It either takes full effect or has none; a nil error
// means that it took effect.
//
// Every delivery has every method, so that a wrapper is one type. A method for an
// ability that the transport does not claim, or that the receiver's mode does not
// have, returns an error matching errors.ErrUnsupported and changes nothing: the
// delivery is still unsettled. An adapter embeds UnsupportedDelivery of package
// transport, which has these methods.
//
// Settlements are never called concurrently for one delivery, but are for
// different ones. Renew may run while its delivery is being settled. The [rules] say more.
//
// [rules]: https://github.com/reprise-go/reprise/blob/main/docs/adapter-rules.md
type Delivery interface {
	// Incoming returns the message. It is the same pointer at every call, and
	// neither side writes to the message.
	Incoming() *Incoming

	// Complete consumes the message: it is never delivered again. In [TransactionNone]
	// the message has been consumed already: Complete, [Delivery.Abandon] and
	// [Delivery.Release] only count as the one settlement.
	Complete(ctx context.Context) error

	// Abandon gives back a message whose handling failed: it is available at once, at no
	// particular position, with an [Incoming.DeliveryCount] one higher. The cause may
	// be nil. The adapter may keep its text, of any length and content, for the next
	// delivery's LastError. If the broker cannot record the failure in the count, Abandon
	// gives the message back with the old count and returns an error that matches
	// [ErrLockLost] and [ErrUncounted].
	Abandon(ctx context.Context, cause error) error

	// Release gives back a message that has not failed: it is available at once, and its
	// [Incoming.DeliveryCount] is unchanged unless [Guarantees.CountsReleases].
	Release(ctx context.Context) error

	// Postpone gives back a message of a group from a queue that keeps groups
	// ([Abilities.GroupOrder]), to be available after a delay, which may be 0. It
	// is never early, and late by [Limits.DelayPrecision] at most; no later message of
	// its group is delivered before. With a cause it counts as [Delivery.Abandon] does,
	// without one as [Delivery.Release] does. A delay that would end later than
	// [Limits.MaxLockTime] after the delivery is refused with an error matching
	// errors.ErrUnsupported.
	Postpone(ctx context.Context, delay time.Duration, cause error) error

	// The methods of TransactionSendsAtomicWithReceive (C12), in which Abandon
	// and Release undo the work done through BindContext, and Complete commits it.

	// BindContext returns a context that carries the native transaction, for
	// the handler. Without one it returns ctx itself.
	BindContext(ctx context.Context) context.Context

	// CompleteWith commits the work done through [Delivery.BindContext], sends out and
	// consumes the message: all or nothing. It takes over out and the bodies in it. If
	// messages were refused, the error of CompleteWith and [Delivery.ReplaceWith] matches
	// [*SendError], as that of Send does, and every message in it is refused. If the
	// handler's work has broken the transaction, CompleteWith and [Delivery.Complete] return
	// an error, and the delivery is still unsettled.
	CompleteWith(ctx context.Context, out []Outgoing) error

	// Reset undoes the work done through [Delivery.BindContext], even if the work has broken
	// the transaction, and keeps the lock. The context that BindContext returned stays
	// usable.
	Reset(ctx context.Context) error

	// Savepoint marks the state of the work done through [Delivery.BindContext]. rollback
	// undoes the work done since, even if that work has broken the transaction, and keeps
	// the work done before; the context that BindContext returned stays usable. rollback may
	// be called several times, until an earlier savepoint is rolled back, a [Delivery.Reset]
	// or a settlement; after that it returns an error and changes nothing. After any other
	// error of rollback, such as a broken connection, the work cannot be committed before a
	// Reset. Savepoint and rollback are not called at the same time as a settlement or
	// Reset. Without [Abilities.Savepoints] it is unsupported.
	Savepoint(ctx context.Context) (rollback func(ctx context.Context) error, err error)

	// ReplaceWith undoes all work done through [Delivery.BindContext], sends out and
	// consumes the message, atomically. It takes over out and the bodies in it.
	ReplaceWith(ctx context.Context, out []Outgoing) error

	// The methods of a lock that expires (C17). The engine renews the lock of every delivery
	// that it has, whether its handler has started or not.

	// LockedUntil returns when the lock expires, by the clock of this process. The zero time
	// means that it does not expire; such a lock is not renewed.
	LockedUntil() time.Time

	// Renew moves [Delivery.LockedUntil] forward, but not beyond [Limits.MaxLockTime],
	// or returns [ErrLockLost]; after the settlement it may return [ErrSettled] as well. Any
	// other error, such as that of ctx, leaves the lock unchanged. ctx ends with the lock.
	Renew(ctx context.Context) error

	// DeadLetter moves the message with reason, description and headers to the broker's own
	// dead-letter queue and consumes it, atomically. It accepts any text and keeps the
	// beginning of a long one. For headers that the broker does not accept it returns
	// [ErrTooLarge] or [ErrInvalidHeader], and the delivery is still unsettled. In
	// [TransactionSendsAtomicWithReceive] it commits the work done through
	// [Delivery.BindContext] since the last [Delivery.Reset]. In [TransactionNone], in which
	// the broker no longer has the message, it may be unsupported.
	DeadLetter(ctx context.Context, letter DeadLetter) error
}

// DeadLetter has the reason and headers with which a message is dead-lettered.
type DeadLetter struct {
	// Reason is one word, and Description a text of at most 4 KiB.
	Reason      headers.Failure
	Description string

	// Headers are all headers of the dead letter: those of the message and those of its
	// failure. A broker that can only add headers to a message keeps the headers that are
	// not among them. If Headers is empty, the message keeps its own.
	Headers Headers
}
