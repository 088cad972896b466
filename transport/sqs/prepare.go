package sqs

import (
	"context"
	"sync"
	"time"
)

// prepared are the messages of one answer.
type prepared struct {
	ready   []*delivery
	stored  []*delivery // their bodies have to be fetched
	expired []*delivery // to be deleted
	notDue  []*delivery // the receiver has to delay them
}

// prepare sorts the messages of an answer.
func (r *receiver) prepare(messages []*delivery) (p prepared) {
	now := r.t.clock.Now()
	for _, d := range messages {
		switch {
		case d.in.Expired(now):
			p.expired = append(p.expired, d)
		case d.in.Wait > 0:
			p.notDue = append(p.notDue, d)
		case d.in.BodyKey != "":
			p.stored = append(p.stored, d)
		default:
			p.ready = append(p.ready, d)
		}
	}
	return p
}

// A message whose body could not be fetched is locked for firstBodyWait, and twice as
// long each further time, up to longestBodyWait: each redelivery counts as an attempt for
// other instances.
const (
	firstBodyWait   = 5 * time.Second
	longestBodyWait = 5 * time.Minute
)

// fetchBodies gets the bodies of messages that arrived with one request, at the same
// time. Each message is handed out as soon as it has its body. If the fetch fails, the
// message is redelivered later. The service counts that, although no handler has seen the
// message, so the count is subtracted: an outage of the store uses up no attempts.
//
// If the request brought only messages whose bodies cannot be fetched, the next request
// begins after a pause, which grows during the outage: otherwise all messages of the
// queue would be received and counted in vain. brought is the number of messages in the
// answer. probes reports whether the request counts as in progress until the bodies are
// fetched.
func (r *receiver) fetchBodies(stored []*delivery, brought int, probes bool) {
	began := time.Now()
	errs := make([]error, len(stored))
	var fetches sync.WaitGroup
	for i, d := range stored {
		fetches.Go(func() { errs[i] = r.fetchBody(d) })
	}
	fetches.Wait()
	var failed []*delivery
	var cause error
	times := 0
	for i, d := range stored {
		if errs[i] != nil {
			failed, cause = append(failed, d), errs[i]
			times = max(times, r.t.unseen.add(d.in.NativeID))
		}
	}
	var pause time.Duration
	if len(failed) > 0 {
		wait := min(firstBodyWait<<min(times-1, 16), longestBodyWait)
		pause = r.bodies.failed(cause, began, wait+r.t.cfg.WaitTime+requestTimeout)
		r.settler.lock(r.cut, failed, wait)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if probes {
		r.polling--
	}
	r.asked -= len(failed)
	r.storeDown = len(failed) == len(stored)
	if len(failed) == brought {
		r.pauseLocked(pause)
	} else {
		r.wakePollersLocked()
	}
}

// FetchBody gets the body of a message, and makes the message available to Receive. When
// the receiver closes, it returns without the body, and leaves the message to Close.
// After an error the message's place is still among asked.
func (r *receiver) fetchBody(d *delivery) error {
	// A quarter of the lock is left for the time until a handler begins.
	ctx, cancel := context.WithDeadline(r.closing, d.lockedUntil().Add(-r.visibility/4))
	defer cancel()
	err := d.in.FetchBody(ctx, r.t.cfg.Bodies)
	switch {
	case err == nil && r.t.cfg.Bodies != nil:
		r.bodies.ended()
	case err != nil && r.closing.Err() == nil:
		return err
	}
	r.mu.Lock()
	r.asked--
	surplus := r.arriveLocked(d)
	r.mu.Unlock()
	r.releaseAll(surplus)
	return nil
}
