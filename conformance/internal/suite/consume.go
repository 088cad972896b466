package suite

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Reading of queues until they are empty. On a busy machine the locks of some deliveries
// may end before they are completed. That is not the transport's fault, and loses
// nothing: the message is redelivered, and counts once.

// messageKey tells messages apart; copies of a message are alike.
type messageKey struct{ id, body string }

func keyOf(in *core.Incoming) messageKey { return messageKey{in.ID, string(in.Body)} }

// redeliveries are the messages that a reader is going to be delivered again, because
// their locks had ended before Complete. Each is kept as it was delivered first, with the
// delivery count that it has on a faster machine.
type redeliveries map[messageKey]*core.Incoming

// settled records a call of Complete. It returns the message, as it was delivered first,
// if the call completed it, and nil if the lock had ended.
func (r *redeliveries) settled(d core.Delivery, lockLost bool) *core.Incoming {
	in := d.Incoming()
	key := keyOf(in)
	first, known := (*r)[key]
	switch {
	case !known && !lockLost:
		return in
	case !known:
		if *r == nil {
			*r = redeliveries{}
		}
		(*r)[key] = in
		return nil
	case !lockLost:
		delete(*r, key)
		return first
	default:
		return nil
	}
}

func (r redeliveries) isEmpty() bool { return len(r) == 0 }

func (r redeliveries) bodies() (bodies []string) {
	for key := range r {
		bodies = append(bodies, key.body)
	}
	return slices.Sorted(slices.Values(bodies))
}

// consume completes deliveries, and returns the completed messages.
func (r *receiver) consume(deliveries []core.Delivery) (completed []*core.Incoming) {
	lost, err := r.t.tryComplete(deliveries)
	if err != nil {
		r.t.stop(completesHeld, "%v", err)
	}
	for i, d := range deliveries {
		if in := r.pending.settled(d, lost[i]); in != nil {
			completed = append(completed, in)
		}
	}
	return completed
}

// maxLateReads ends a case that never completes a delivery before its lock ends.
const maxLateReads = 10 * endless

// tryComplete completes deliveries, and reports which of them had lost their locks
// because the machine was slow. err is the first other error. It does not stop the case.
func (t *caseT) tryComplete(deliveries []core.Delivery) (lost []bool, err error) {
	lost = make([]bool, len(deliveries))
	for i, failed := range t.completeConcurrently(deliveries) {
		if failed == nil {
			continue
		}
		d := deliveries[i]
		t.recordLateLock(d)
		if lost[i] = lockEnded(d, failed) && t.lateReads.Add(1) <= maxLateReads; !lost[i] && err == nil {
			err = fmt.Errorf("%w%s", failed, lockEndedAgo(d))
		}
	}
	return lost, err
}

// completeConcurrently completes deliveries, and returns the error of each. It completes
// them all at once, so that their locks last, except in a bubble, whose time waits for
// the machine.
func (t *caseT) completeConcurrently(deliveries []core.Delivery) []error {
	ctx, cancel := t.withTimeout()
	defer cancel()
	errs := make([]error, len(deliveries))
	var all sync.WaitGroup
	for i, d := range deliveries {
		complete := func() { errs[i] = d.Complete(ctx) }
		if t.suite.h.Synctest {
			complete()
		} else {
			t.goInGroup(&all, complete)
		}
	}
	all.Wait()
	return errs
}

// collect completes deliveries until complete returns true for the message of one. It
// reports whether complete did so within the limit.
func (r *receiver) collect(limit time.Duration, complete func(in *core.Incoming) bool) bool {
	return r.forEachBatch(limit, func(got []core.Delivery) (done bool) {
		for _, in := range r.consume(got) {
			done = complete(in) || done
		}
		return done
	})
}

// forEach calls do for each delivery until do returns true. It reports whether do did so
// within the limit.
func (r *receiver) forEach(limit time.Duration, do func(d core.Delivery) (done bool)) bool {
	return r.forEachBatch(limit, func(got []core.Delivery) (done bool) {
		for _, d := range got {
			done = do(d) || done
		}
		return done
	})
}

// forEachBatch calls do with the deliveries of each call of Receive until do returns
// true. It reports whether do did so within the limit.
func (r *receiver) forEachBatch(limit time.Duration, do func(got []core.Delivery) (done bool)) bool {
	ctx, cancel := context.WithTimeout(r.t.ctx, limit)
	defer cancel()
	for {
		got, err := r.batch(ctx, r.size)
		if err != nil {
			return false
		}
		if do(got) {
			return true
		}
	}
}
