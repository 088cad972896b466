package asb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
	"github.com/reprise-go/reprise/transport/asb/internal/names"
)

// delivery is a received message. Either the message or its session is locked.
type delivery struct {
	transport.UnsupportedDelivery
	r       *receiver
	in      message.Received
	message *azservicebus.ReceivedMessage
	usage   *usage        // of the link on which it came; nil: a session's message
	session *session      // nil: no session
	locked  time.Duration // lock duration when it arrived
	done    chan struct{} // closed when its place is free; nil without a session
	once    sync.Once     // closes done

	waiting   bool // no Receive has returned it yet; the receiver's mu guards it
	refreshed bool // its lock was renewed before it was handed out; the receiver's mu guards it

	mu       sync.Mutex // guards the fields below
	lockEnd  time.Time
	settled  bool
	settling bool
}

var _ core.Delivery = (*delivery)(nil)

// warnOfForgery warns of the first message that is due later than Config.MaxPostpone allows.
func (r *receiver) warnOfForgery() {
	r.t.forgery.Do(func() {
		r.warn(fmt.Sprintf("a message of the queue %q is postponed for longer than Config.MaxPostpone, %v, and was received at once: its sender has written that, or another process with a higher Config.MaxPostpone; to fix: give all processes the same, and find the sender", r.address, r.t.cfg.MaxPostpone))
	})
}

// newDelivery returns the delivery of a message that arrived at the given time, on a link
// or in a session.
func newDelivery(r *receiver, m *azservicebus.ReceivedMessage, at time.Time, u *usage, s *session) *delivery {
	d := &delivery{r: r, message: m, usage: u, session: s}
	r.t.codec.Read(&d.in, r.address, m)
	if d.in.Forged {
		r.warnOfForgery()
	}
	if d.in.HasOwnLifetime(r.timeToLive) {
		d.in.ExpiresAt = d.in.Expires.Add(-r.t.clock.Ahead())
	}
	if s != nil {
		d.done = make(chan struct{})
	}
	switch {
	case s != nil: // for its messages the service sends the largest possible date
		d.lockEnd = s.lockedUntil()
	case m.LockedUntil != nil:
		d.lockEnd = r.lockEnd(*m.LockedUntil, at)
	default:
		d.lockEnd = at.Add(r.t.cfg.LockDuration)
	}
	d.locked = d.lockEnd.Sub(at)
	return d
}

// ended signals to the session that the place of the delivery is free.
func (d *delivery) ended() {
	if d.done != nil {
		d.once.Do(func() { close(d.done) })
	}
}

// Incoming implements core.Delivery.
func (d *delivery) Incoming() *core.Incoming { return &d.in.Incoming }

// Complete implements core.Delivery.
func (d *delivery) Complete(ctx context.Context) error {
	return d.settle(ctx, complete)
}

// Abandon implements core.Delivery. The service counts it, except in a dead-letter queue,
// where a property of the message does.
func (d *delivery) Abandon(ctx context.Context, _ error) error {
	return d.settle(ctx, abandon(d.failed()))
}

// failed returns the properties of a message that is released after a failure.
func (d *delivery) failed() map[string]any {
	state := d.in.State
	if names.IsDeadLetterQueue(d.r.address) {
		state.Failed++
	}
	return state.Properties(d.message)
}

// Release implements core.Delivery. The service counts it as a failure, since the SDK has
// no other way to release a message; a property of the message subtracts that.
func (d *delivery) Release(ctx context.Context) error {
	return d.settle(ctx, abandon(d.released()))
}

// released returns the properties of a message that is released without a failure.
func (d *delivery) released() map[string]any {
	state := d.in.State
	if !names.IsDeadLetterQueue(d.r.address) { // there it was not counted
		state.Released++
	}
	return state.Properties(d.message)
}

// Postpone implements core.Delivery. The session keeps its lock until the message is due;
// a process that takes the session over finds the due time in the message.
func (d *delivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	if d.session == nil || d.in.GroupKey == "" || d.r.mode == core.TransactionNone || delay < 0 {
		return fmt.Errorf("asb: postpone a message of %q by %v: it belongs to no session: %w", d.r.address, delay, errors.ErrUnsupported)
	}
	if longest := d.r.t.cfg.MaxPostpone; delay > longest {
		return fmt.Errorf("asb: postpone a message of %q by %v: Config.MaxPostpone is %v; set more, or shorter delays: %w", d.r.address, delay, longest, errors.ErrUnsupported)
	}
	state := d.in.State
	if cause == nil {
		state.Released++
	}
	state.NotBefore = message.RoundUp(d.r.t.codec.Scheduled(delay))
	return d.settle(ctx, abandon(state.Properties(d.message)))
}

// DeadLetter implements core.Delivery.
func (d *delivery) DeadLetter(ctx context.Context, letter core.DeadLetter) error {
	if d.r.mode == core.TransactionNone {
		return d.UnsupportedDelivery.DeadLetter(ctx, letter)
	}
	if names.IsDeadLetterQueue(d.r.address) {
		return fmt.Errorf("asb: dead-letter a message of %q: it is in a dead-letter queue; to fix: leave Recoverability.DeadLetter of its endpoint unset, so that it goes to the error queue: %w", d.r.address, errors.ErrUnsupported)
	}
	properties, err := d.changed(letter.Headers)
	if err != nil {
		return fmt.Errorf("asb: dead-letter a message of %q: %w", d.r.address, err)
	}
	reason, description := d.deadLetterTexts(&letter, properties)
	return d.settle(ctx, func(ctx context.Context, s settler, m *azservicebus.ReceivedMessage) error {
		return s.DeadLetterMessage(ctx, m, &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &description, PropertiesToModify: properties})
	})
}

// changed returns the properties that a settlement has to set, so that the message has
// these headers. The service cannot remove a property, so properties that are not among
// the headers are emptied: earlier retries, for example, no longer count when the message
// is sent back.
func (d *delivery) changed(headers core.Headers) (map[string]any, error) {
	if headers.Len() == 0 {
		return nil, nil
	}
	// The limits for applications are not those of a foreign message that the service has accepted.
	copied := core.Outgoing{ID: d.in.ID, Queue: d.r.address, Headers: headers, Reason: core.ReasonMoveToError}
	if err := transport.CheckOutgoing(&copied, &d.r.t.caps); err != nil {
		return nil, err
	}
	properties, err := message.ApplicationProperties(headers, nil)
	if err != nil {
		return nil, err
	}
	for key, before := range d.in.Headers.All() {
		property := message.PropertyOf(key)
		if now, kept := properties[property]; !kept {
			properties[property] = ""
		} else if now == before {
			delete(properties, property)
		}
	}
	return properties, nil
}

// maxDeadLetterText limits a reason or a description, in bytes, to the size that the
// service keeps
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-dead-letter-queues).
const maxDeadLetterText = 4096

// The names of the application properties that have the reason and the description.
const (
	propertyDeadLetterReason      = "DeadLetterReason"
	propertyDeadLetterDescription = "DeadLetterErrorDescription"
)

// deadLetterTexts returns the reason and the description of a dead letter, which has these properties too: as much of them as the service's limit of all
// properties leaves room for.
func (d *delivery) deadLetterTexts(letter *core.DeadLetter, properties map[string]any) (reason, description string) {
	room := message.MaxPropertiesBytes - d.sizeWith(properties) - len(propertyDeadLetterReason) - len(propertyDeadLetterDescription)
	reason = deadLetterText(string(letter.Reason), min(maxDeadLetterText, room))
	return reason, deadLetterText(letter.Description, min(maxDeadLetterText, room-len(reason)))
}

// sizeWith returns how many bytes the message's application properties have when a settlement sets these.
func (d *delivery) sizeWith(properties map[string]any) (size int) {
	for key, value := range d.message.ApplicationProperties {
		if _, replaced := properties[key]; !replaced {
			size += len(key) + message.SizeOf(value)
		}
	}
	for key, value := range properties {
		size += len(key) + message.SizeOf(value)
	}
	return size
}

// deadLetterText returns as much of a text as fits into a number of bytes.
func deadLetterText(s string, limit int) string {
	s, n := strings.ToValidUTF8(s, "\ufffd"), max(limit, 0)
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// LockedUntil implements core.Delivery.
func (d *delivery) LockedUntil() time.Time {
	switch {
	case d.r.mode == core.TransactionNone:
		return time.Time{}
	case d.session != nil:
		return d.session.lockedUntil()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lockEnd
}

// Renew implements core.Delivery.
func (d *delivery) Renew(ctx context.Context) error {
	if d.r.mode == core.TransactionNone {
		return d.UnsupportedDelivery.Renew(ctx)
	}
	if err := d.mayRenew(); err != nil {
		return err
	}
	if d.session != nil {
		return d.session.renew(ctx)
	}
	var lockedUntil atomic.Pointer[time.Time] // a renewal that was given up may still set it
	err := d.r.control.do(ctx, "renew a lock", func(ctx context.Context, sdk *azservicebus.Receiver) error {
		lock := d.bare()
		if err := sdk.RenewMessageLock(ctx, lock, nil); err != nil {
			return err
		}
		lockedUntil.Store(lock.LockedUntil)
		return nil
	})
	if err != nil {
		return d.r.settleError(ctx, err)
	}
	end := d.r.lockEnd(*lockedUntil.Load(), time.Now())
	d.mu.Lock()
	defer d.mu.Unlock()
	if end.After(d.lockEnd) {
		d.lockEnd = end
	}
	return nil
}

// bare returns a message with only the lock token, which the SDK settles and renews
// without the link on which the message came.
func (d *delivery) bare() *azservicebus.ReceivedMessage {
	return &azservicebus.ReceivedMessage{LockToken: d.message.LockToken}
}

func (d *delivery) mayRenew() error {
	end := d.LockedUntil()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.settled:
		return core.ErrSettled
	case time.Now().After(end) || d.r.closing.Err() != nil:
		return core.ErrLockLost
	}
	return nil
}

// settlement is a call of the SDK that settles a message.
type settlement func(ctx context.Context, s settler, m *azservicebus.ReceivedMessage) error

func complete(ctx context.Context, s settler, m *azservicebus.ReceivedMessage) error {
	return s.CompleteMessage(ctx, m, nil)
}

// deadLetterExpired dead-letters a message with the reason that the service has for one that is past its time to live
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-dead-letter-queues#time-to-live).
func deadLetterExpired(ctx context.Context, s settler, m *azservicebus.ReceivedMessage) error {
	return s.DeadLetterMessage(ctx, m, &azservicebus.DeadLetterOptions{
		Reason: new("TTLExpiredException"), ErrorDescription: new("The message expired and was dead lettered."),
	})
}

// abandon returns the settlement that makes a message available, with changed properties.
func abandon(properties map[string]any) settlement {
	return func(ctx context.Context, s settler, m *azservicebus.ReceivedMessage) error {
		return s.AbandonMessage(ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: properties})
	}
}

// settle makes the delivery's only settlement.
func (d *delivery) settle(ctx context.Context, s settlement) error {
	if err := d.begin(ctx); err != nil || d.r.mode == core.TransactionNone {
		return err
	}
	err := d.request(ctx, s)
	d.finish(err)
	return err
}

// request asks the service for a settlement. If the link is lost, the outcome is unknown,
// so the settlement is repeated by the message's lock token alone. If the first attempt
// had succeeded, the second one fails because the lock is gone.
func (d *delivery) request(ctx context.Context, s settlement) error {
	if d.session != nil {
		return d.r.settleError(ctx, d.session.settle(ctx, d.message, s))
	}
	err, repeat := d.onLink(ctx, s)
	if repeat {
		err = d.r.control.do(ctx, "settle", func(ctx context.Context, sdk *azservicebus.Receiver) error { return s(ctx, sdk, d.bare()) })
	}
	return d.r.settleError(ctx, err)
}

// onLink settles on the link on which the message came. repeat reports whether the
// outcome is unknown, or the link is closed.
func (d *delivery) onLink(ctx context.Context, s settlement) (err error, repeat bool) {
	if !d.usage.begin() {
		return nil, true
	}
	defer d.usage.settling.Done()
	limited, cancel := context.WithTimeout(ctx, settleAttempt)
	defer cancel()
	defer context.AfterFunc(d.usage.alive, cancel)()
	l, err := d.r.control.link(limited)
	if err == nil {
		err = l.do(limited, "settle", func(ctx context.Context, sdk *azservicebus.Receiver) error { return s(ctx, sdk, d.message) })
	}
	if err == nil || ctx.Err() != nil || limited.Err() == nil && !isLinkError(err) {
		return err, false
	}
	if l != nil {
		d.r.control.lost(l) // it is on the same connection
	}
	return err, true
}

// releaseUnplaced releases a message whose place is already free.
func (d *delivery) releaseUnplaced(ctx context.Context) error {
	defer d.ended()
	return d.request(ctx, abandon(d.released()))
}

// begin returns an error if the delivery cannot be settled now. In mode None it settles
// the delivery; in other modes finish must follow.
func (d *delivery) begin(ctx context.Context) error {
	end := d.LockedUntil()
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.settled || d.settling:
		return core.ErrSettled
	case d.r.mode == core.TransactionNone:
	case d.r.closed:
		return core.ErrLockLost
	case time.Now().After(end):
		return core.ErrLockLost
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.r.mode == core.TransactionNone {
		d.settled = true
		return nil
	}
	d.settling = true
	d.r.settlements.Add(1) // which Close waits for
	return nil
}

// isSettled reports whether the service has confirmed a settlement.
func (d *delivery) isSettled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settled
}

// finish records the outcome.
func (d *delivery) finish(err error) {
	defer d.r.settlements.Done()
	lost := errors.Is(err, core.ErrLockLost)
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settling = false
	d.settled = err == nil
	if err == nil || lost {
		d.r.freeLocked(d)
		d.ended()
	}
}
