package sqs

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
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

// A message whose body cannot be fetched while the store has others is malformed after
// bodyTries, or bodyTriesInGroup in a FIFO queue, where later messages of its group wait for
// it.
const (
	bodyTries        = 8
	bodyTriesInGroup = 5
)

// fetchBodies gets the bodies of messages that arrived with one request, at the same
// time. Each message is handed out as soon as it has its body. If the fetch fails, the
// message is redelivered later. The service counts that, although no handler has seen the
// message, so the count is subtracted: an outage of the store uses up no attempts.
//
// A failed fetch is an outage only if the store does not have a body that is known to exist:
// any sender can name keys that cannot be read. If in an outage the request brought only
// messages whose bodies cannot be fetched, the next request begins after a pause, which
// grows: otherwise all messages of the queue would be received and counted in vain. brought
// is the number of messages in the answer. probes reports whether the request counts as in
// progress until the bodies are fetched.
func (r *receiver) fetchBodies(stored []*delivery, brought int, probes bool) {
	began := time.Now()
	errs := make([]error, len(stored))
	var read atomic.Bool
	var fetches sync.WaitGroup
	for i, d := range stored {
		fetches.Go(func() {
			var hasBody bool
			if hasBody, errs[i] = r.fetchBody(d); hasBody {
				read.Store(true)
			}
		})
	}
	fetches.Wait()
	var failed []*delivery
	var cause error
	for i, d := range stored {
		if errs[i] != nil {
			failed, cause = append(failed, d), errs[i]
		}
	}
	down := len(failed) > 0 && !read.Load() && !r.storeHasBodies()
	if !down && r.closing.Err() == nil {
		failed = r.giveUpBodies(stored, errs)
	}
	longest := r.lockFailed(failed)
	var pause time.Duration
	if down {
		pause = r.bodies.failed(cause, began, longest+r.t.cfg.WaitTime+requestTimeout)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if probes {
		r.polling--
	}
	r.asked -= len(failed)
	r.storeDown = down
	if down && len(failed) == brought {
		r.pauseLocked(pause)
	} else {
		r.wakePollersLocked()
	}
}

// lockFailed locks messages whose bodies could not be fetched, and returns the longest time.
func (r *receiver) lockFailed(failed []*delivery) (longest time.Duration) {
	byWait := map[time.Duration][]*delivery{}
	for _, d := range failed {
		wait := min(firstBodyWait<<min(r.t.unseen.add(d.in.NativeID)-1, 16), longestBodyWait)
		byWait[wait] = append(byWait[wait], d)
		longest = max(longest, wait)
	}
	for wait, messages := range byWait {
		r.settler.lock(r.cut, messages, wait)
	}
	return longest
}

// giveUpBodies counts failed fetches while the store has other bodies. It makes messages with
// too many of them available to Receive, as malformed ones, and returns the others.
func (r *receiver) giveUpBodies(stored []*delivery, errs []error) (left []*delivery) {
	tries := bodyTries
	if isFIFO(r.address) {
		tries = bodyTriesInGroup
	}
	for i, d := range stored {
		if errs[i] == nil {
			continue
		}
		r.unreadable.Failed(d.key, errs[i])
		if next, _ := r.unreadable.Delivered(d.key); next <= tries {
			left = append(left, d)
			continue
		}
		d.in.Malformed = errors.Join(d.in.Malformed, fmt.Errorf("its body could not be read in %d tries, in which the store had other bodies: %w", tries, errs[i]))
		r.available(d)
	}
	return left
}

// fetchBody gets the body of a message, and makes the message available to Receive. It reports
// whether the store had the body. When the receiver closes, it returns without the body, and
// leaves the message to Close. After an error the message's place is still among asked.
func (r *receiver) fetchBody(d *delivery) (read bool, err error) {
	// A quarter of the lock is left for the time until a handler begins.
	ctx, cancel := context.WithDeadline(r.closing, d.lockedUntil().Add(-r.visibility/4))
	defer cancel()
	read, err = d.in.FetchBody(ctx, r.t.codec.Bodies, r.t.cfg.MaxMessageBytes)
	switch {
	case read:
		r.bodies.ended()
		if d.in.Redelivered {
			r.unreadable.Forget(d.key)
		}
	case err != nil && r.closing.Err() == nil:
		return false, err
	}
	r.available(d)
	return read, nil
}

// available makes a message whose place is among asked available to Receive.
func (r *receiver) available(d *delivery) {
	r.mu.Lock()
	r.asked--
	surplus := r.arriveLocked(d)
	r.mu.Unlock()
	r.releaseAll(surplus)
}

// storeProbe tells whether the store of bodies has a body that the adapter has stored. It is
// safe for concurrent use.
type storeProbe struct {
	mu  sync.Mutex // held during the requests
	key string     // of the stored body, or ""
}

var probeBody = []byte("a body that shows whether the store can be read")

// storeHasBodies reports whether a body that is known to exist can be read.
func (r *receiver) storeHasBodies() bool {
	ctx, cancel := context.WithTimeout(r.closing, r.visibility/8) // the messages are locked for twice that
	defer cancel()
	p, bodies := &r.t.storeProbe, r.t.cfg.Bodies
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.key == "" {
		key := bodies.BodyKey(rand.Text())
		if bodies.Put(ctx, key, probeBody) != nil {
			return false
		}
		p.key = key
	}
	body, err := bodies.Get(ctx, p.key, len(probeBody))
	if errors.Is(err, fs.ErrNotExist) { // it has expired
		p.key = ""
	}
	return err == nil && bytes.Equal(body, probeBody)
}
