package delayed

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// This file is about a delayed message that cannot be forwarded, because its queue is
// gone or this transport has no right to send there. The endpoint is told at the first
// failed try, and the message is tried again less and less often. After the last try it
// is moved to the error queue of an endpoint, where operators find it (C13).

// ForwardWaits are the waits of such a message after each failed try: 11 tries in 23
// hours and 21 minutes. The first waits are short, because another transport may have the
// right that this one lacks.
var ForwardWaits = []time.Duration{
	time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
}

// MoveWait is the wait after the message could not be moved to the error queue either.
const moveWait = time.Hour

// untoldWait is the wait if this transport has no receiver, and so no endpoint to tell
// and no error queue. Such a try does not count.
const untoldWait = time.Minute

// undeliverable is the error about one message.
type undeliverable struct {
	*dialect.DelayedRow
	err error
}

func (e *undeliverable) Error() string { return e.err.Error() }
func (e *undeliverable) Unwrap() error { return e.err }

// listener is a receiver whose endpoint is told of such messages.
type listener struct {
	closing    context.Context // of the receiver
	queue      string
	told       func(core.Undeliverable) // nil: it does not listen, but may have an error queue
	errorQueue string                   // "": none
}

// Listen adds a receiver to the listeners, until closing ends. queue is the name of its
// table.
func (d *Forwarder) Listen(closing context.Context, queue string, cfg *core.ReceiverConfig) {
	l := listener{closing: closing, queue: queue, told: cfg.MessageUndeliverable, errorQueue: cfg.ErrorQueue}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.open(), l)
}

// open returns the listeners whose receivers are not closed. The caller has mu.
func (d *Forwarder) open() []listener {
	var open []listener
	for _, l := range d.told {
		if l.closing.Err() == nil {
			open = append(open, l)
		}
	}
	return open
}

// listenerFor returns the listener for a message: the endpoint that sent it, if it
// receives here, or else the endpoint that has received here for the longest time.
func (d *Forwarder) listenerFor(h core.Headers) (listener, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = d.open()
	if len(d.told) == 0 {
		return listener{}, false
	}
	if sender := h.Get(headers.OriginatingEndpoint); sender != "" {
		for _, l := range d.told {
			if l.queue == sender {
				return l, true
			}
		}
	}
	return d.told[0], true
}

// failedFor postpones a message that could not be forwarded, or moves it.
func (d *Forwarder) failedFor(ctx context.Context, bad *undeliverable) error {
	h, malformed := dialect.ParseHeaders([]byte(bad.Headers))
	l, ok := d.listenerFor(h)
	if !ok {
		_, err := d.postponed(ctx, bad, untoldWait, bad.err, bad.Tries)
		return err
	}
	e := core.Undeliverable{
		MessageID: h.Get(headers.MessageID), Queue: bad.Destination, Err: d.server.Explained(bad.err), Tries: dialect.StoredInt(max(bad.Tries, 0) + 1), // other senders may have written any number
	}
	cause := e.Err
	switch {
	case e.Tries <= len(d.Waits):
		e.RetryIn = d.Waits[e.Tries-1]
	case l.errorQueue == "":
		e.RetryIn = d.MoveWait
	default:
		text := bad.Headers
		if malformed == nil {
			text = string(dialect.AppendHeaders(nil, e.MoveHeaders(h, time.Now())))
		}
		to, moved, err := d.move(ctx, bad, l.errorQueue, text)
		switch {
		case err == nil && !moved: // another process was faster
			return nil
		case err == nil:
			e.MovedTo = to.Table.Address
			d.wakeReceivers(to)
			l.tell(e)
			return nil
		case d.server.Transient(err):
			return err
		}
		e.MoveErr, e.RetryIn = err, d.MoveWait
		cause = fmt.Errorf("%w; and it could not be moved to the error queue %s: %w", e.Err, l.errorQueue, err)
	}
	postponed, err := d.postponed(ctx, bad, e.RetryIn, cause, e.Tries)
	if postponed && err == nil {
		l.tell(e)
	}
	return err
}

// postponed makes a message due later, with the error in its row, unless another process
// was faster.
func (d *Forwarder) postponed(ctx context.Context, bad *undeliverable, wait time.Duration, cause error, tries int) (ok bool, err error) {
	err = d.server.DB.Exec(ctx, sqlexec.Query(sqlexec.RowFound(&ok), d.Postpone, bad.Seq, wait.Microseconds(), dialect.Storable(cause.Error()), bad.Tries, tries))
	return ok, err
}

// move moves a message to the error queue in one transaction, unless another process was
// faster. A failed message does not expire.
func (d *Forwarder) move(ctx context.Context, bad *undeliverable, errorQueue, h string) (to *queues.Queue, ok bool, err error) {
	to, err = d.queues.Get(errorQueue)
	if err != nil {
		return nil, false, transport.Permanent(err)
	}
	tx, err := d.server.DB.Begin(ctx, sqlexec.Query(sqlexec.RowFound(&ok), d.Remove, bad.Seq, bad.Tries))
	if err != nil {
		return nil, false, err
	}
	if !ok {
		tx.Rollback(ctx)
		return to, false, nil
	}
	if err := tx.Commit(ctx, sqlexec.Command(d.DelayedTexts.Forward(to.Table), "", h, bad.Body)); err != nil {
		tx.Rollback(ctx)
		return nil, false, d.server.Explained(err)
	}
	return to, true, nil
}

// tell calls the listener's observer, if there is one.
func (l *listener) tell(e core.Undeliverable) {
	if l.told != nil {
		l.told(e)
	}
}
