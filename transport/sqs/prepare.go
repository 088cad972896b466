package sqs

import (
	"context"
	"sync"
	"time"
)

// prepare does what is to be done before messages are handed out: what has expired is consumed; what is not due yet waits on; bodies that are stored elsewhere are fetched.
func (r *receiver) prepare(arrived []*delivery) []*delivery {
	if len(arrived) == 0 {
		return nil
	}
	ready := arrived[:0:len(arrived)]
	var expired, early []*delivery
	now := r.t.clock.now()
	for _, d := range arrived {
		switch {
		case d.in.expired(now):
			expired = append(expired, d)
		case d.in.wait > 0:
			early = append(early, d)
		default:
			ready = append(ready, d)
		}
	}
	if len(expired) > 0 {
		r.settler.deleteAll(r.cut, expired)
	}
	if len(early) > 0 {
		r.delayAll(early)
	}
	return r.fetchBodies(ready)
}

// fetchBodies gets the bodies that are stored elsewhere, at the same time, and returns the deliveries that have
// theirs. The others are redelivered when their visibility timeout ends. The service counts that, although no handler has seen the
// message, so the count is taken off again: an outage of the store uses up no attempts.
func (r *receiver) fetchBodies(arrived []*delivery) []*delivery {
	began := time.Now()
	errs := make([]error, len(arrived))
	var fetches sync.WaitGroup
	for i, d := range arrived {
		if d.in.bodyKey == "" {
			continue
		}
		fetches.Go(func() {
			// The messages that arrived together wait for the slowest body, so their locks must not end before.
			ctx, cancel := context.WithDeadline(r.cut, d.lockedUntil().Add(-r.visibility/4))
			defer cancel()
			errs[i] = d.in.fetchBody(ctx, r.t.cfg.Bodies)
		})
	}
	fetches.Wait()
	ready := arrived[:0]
	var failed error
	for i, d := range arrived {
		if errs[i] != nil {
			failed = errs[i]
			r.t.unseen.add(d.in.NativeID)
			continue
		}
		ready = append(ready, d)
	}
	if failed != nil && r.cut.Err() == nil {
		r.outages.Failed(failed, began)
	}
	return ready
}
