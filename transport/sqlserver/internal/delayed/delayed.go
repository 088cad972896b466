// Package delayed forwards messages that wait in a table until they are due: those for queues
// that NServiceBus created, whose tables have no column for a delay.
package delayed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/notify"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/server"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Forwarder is the table of messages that are delayed on their way to a queue that
// NServiceBus created, whose table has no column for a delay. Every transport that
// receives, or has added a message there, forwards due messages; transports share the
// work and do not wait for each other.
type Forwarder struct {
	*dialect.DelayedTexts
	server        *server.Server
	queues        *queues.Cache
	wakeReceivers func(q *queues.Queue) // called for queues with new messages

	// These are set before the first use.
	Off      bool            // it forwards nothing, for tests
	Waits    []time.Duration // ForwardWaits
	MoveWait time.Duration
	Poll     time.Duration // forwardPoll

	mu         sync.Mutex // guards the fields below
	told       []listener // receivers to tell about messages that cannot be forwarded
	started    bool
	exists     bool
	next       time.Time // when the next message of this process is due; zero: there is none
	watchUntil time.Time // until then a transaction may commit a message that is due already
	wake       transport.Signal
}

const (
	forwardBatch = 100
	// forwardPoll is how often the table is read, for messages of processes that have
	// died. A process knows its own messages; only the time of a caller's commit it does
	// not know, so for notify.LongestWatch it reads every watchPoll.
	forwardPoll = 10 * time.Second
	watchPoll   = time.Second
	// refusedPoll is how often it is read if the server refuses that.
	refusedPoll = time.Minute
)

// New returns the delayed messages of a transport, in a table. It does not forward yet.
func New(srv *server.Server, cache *queues.Cache, table dialect.Table, wakeReceivers func(q *queues.Queue)) *Forwarder {
	return &Forwarder{
		DelayedTexts: srv.Dialect.Delayed(table), server: srv, queues: cache, wakeReceivers: wakeReceivers,
		wake: transport.NewSignal(), Waits: ForwardWaits, MoveWait: moveWait, Poll: forwardPoll,
	}
}

// Watch begins to forward.
func (d *Forwarder) Watch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started && !d.Off {
		d.started = d.server.Life.Go(d.run)
	}
}

// Expect is called before a message is added, and makes sure that it is forwarded when it
// is due. It returns that time.
func (d *Forwarder) Expect(ctx context.Context, delay time.Duration) (due time.Time, err error) {
	if err := d.ensure(ctx); err != nil {
		return due, err
	}
	now := time.Now()
	due = now.Add(delay)
	d.mu.Lock()
	if delay < notify.LongestWatch && server.CallersTransaction(ctx) != nil {
		d.watchUntil = now.Add(notify.LongestWatch)
	}
	d.mu.Unlock()
	d.LookAt(due)
	d.Watch()
	return due, nil
}

// LookAt makes sure that the table is read when a message is due. It is called again once
// the message is committed: an earlier read finds nothing, and forgets the message.
func (d *Forwarder) LookAt(due time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next.IsZero() || due.Before(d.next) {
		d.next = due
		d.wake.Notify()
	}
}

// ensure creates the table if it does not exist.
func (d *Forwarder) ensure(ctx context.Context) error {
	exists, err := d.isThere(ctx)
	if exists {
		return nil
	}
	if err == nil {
		err = d.server.Create(ctx, d.server.Dialect.CreateDelayed(d.Table))
		d.found(err == nil)
	}
	if err != nil {
		return fmt.Errorf("a delayed message to a queue made by NServiceBus waits in the table %s, which could not be created (DDL prints the statements for somebody with the right to): %w", d.Table.Quoted, err)
	}
	return nil
}

// isThere reports whether the table exists. A statement on a missing table would be an
// error in the server's log, each time.
func (d *Forwarder) isThere(ctx context.Context) (bool, error) {
	d.mu.Lock()
	exists := d.exists
	d.mu.Unlock()
	if exists {
		return true, nil
	}
	has, err := d.server.Columns(ctx, d.Table)
	exists = err == nil && len(has) > 0
	d.found(exists)
	return exists, err
}

// found remembers whether the table exists.
func (d *Forwarder) found(exists bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exists = exists
}

// RemoveQueue removes the messages that wait for a queue address.
func (d *Forwarder) RemoveQueue(ctx context.Context, address string) error {
	err := d.server.DB.Exec(ctx, sqlexec.Command(d.DelayedTexts.RemoveQueue, address))
	if err == nil {
		return nil
	}
	switch d.server.Fault(err) {
	case dialect.FaultNoTable:
		return nil
	case dialect.FaultRefused:
		err = d.server.Denied(ctx, err, append(d.server.Dialect.Seeing(d.Table), dialect.RightsOn(d.Table, "select", "delete")...))
	}
	return fmt.Errorf("remove its delayed messages from the table %s: %w", d.Table.Quoted, err)
}

func (d *Forwarder) run() {
	for {
		wait := d.forwardAll()
		d.mu.Lock()
		if !d.next.IsZero() {
			wait = min(wait, max(time.Until(d.next), time.Millisecond))
		}
		d.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-d.wake:
		case <-d.server.Life.Context().Done():
		}
		timer.Stop()
		if d.server.Life.Context().Err() != nil {
			return
		}
	}
}

// forwardAll forwards due messages, and returns the time until there may be more.
func (d *Forwarder) forwardAll() time.Duration {
	ctx, cancel := context.WithTimeout(d.server.Life.Context(), operation.Timeout)
	defer cancel()
	started := time.Now()
	d.mu.Lock()
	if d.next.Before(started) { // this is the read for that time, even if it fails
		d.next = time.Time{}
	}
	d.mu.Unlock()
	exists, err := d.isThere(ctx)
	if err != nil {
		return d.failed(err)
	}
	if !exists {
		return d.Poll
	}
	for {
		n, err := d.forward(ctx, forwardBatch)
		if err != nil && !d.server.Transient(err) {
			n, err = d.forwardEach(ctx)
		}
		if err != nil {
			return d.failed(err)
		}
		if n < forwardBatch {
			break
		}
	}
	wait, ok, err := d.server.NextDue(ctx, d.DelayedTexts.Next)
	if err != nil {
		return d.failed(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	poll := d.Poll
	if started.Before(d.watchUntil) {
		poll = watchPoll
	}
	if !ok {
		return poll
	}
	return min(max(wait, time.Millisecond), poll)
}

// failed returns the pause after an error.
func (d *Forwarder) failed(err error) time.Duration {
	d.server.GaveUp(err)
	switch d.server.Fault(err) {
	case dialect.FaultNoTable: // the table was dropped
		d.found(false)
		return d.Poll
	case dialect.FaultRefused: // a process without messages to forward needs no rights
		return refusedPoll
	default:
		return time.Second
	}
}

// forward moves up to most due messages to their queues, in one transaction.
func (d *Forwarder) forward(ctx context.Context, limit int) (int, error) {
	var due []dialect.DelayedRow
	tx, err := d.server.DB.Begin(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		var w dialect.DelayedRow
		err := scan(w.Columns()...)
		due = append(due, w)
		return err
	}, d.Take, limit))
	if err != nil {
		return 0, err
	}
	if len(due) == 0 {
		tx.Rollback(ctx)
		return 0, nil
	}
	var statements []*sqlexec.Statement
	var to []*queues.Queue
	for i := range due {
		w := &due[i]
		q, err := d.queues.Get(w.Destination)
		if err != nil {
			tx.Rollback(ctx)
			return 0, &undeliverable{w, transport.Permanent(err)}
		}
		statements = append(statements, sqlexec.Command(d.DelayedTexts.Forward(q.Table), w.Expires, w.Headers, w.Body))
		to = append(to, q)
	}
	if err := tx.Commit(ctx, statements...); err != nil {
		tx.Rollback(ctx)
		if limit == 1 {
			return 0, &undeliverable{&due[0], err}
		}
		return 0, err
	}
	for _, q := range to {
		d.wakeReceivers(q)
	}
	return len(due), nil
}

// forwardEach forwards one message at a time, so that a message whose queue is gone
// delays no other. That message waits again, or is moved to the error queue.
func (d *Forwarder) forwardEach(ctx context.Context) (n int, err error) {
	for range forwardBatch {
		moved, err := d.forward(ctx, 1)
		var bad *undeliverable
		switch {
		case errors.As(err, &bad) && !d.server.Transient(err):
			err = d.failedFor(ctx, bad)
			moved = 1
		case err == nil && moved == 0:
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += moved
	}
	return n, nil
}
