package asb

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// This file records whether the service answers a receiver, and replaces its connection.

// currentClient returns the client by which to open links.
func (r *receiver) currentClient() *sdkclient.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.client
}

// replaceClient replaces a client of which a call was given up, like one whose connection is lost.
func (r *receiver) replaceClient(stuck *sdkclient.Client) {
	r.mu.Lock()
	if r.client == stuck && !r.ended {
		if c, err := r.t.cfg.connect(); err == nil { // does not contact the service
			c.Replace = r.replaceClient
			r.client = c
		}
	}
	r.mu.Unlock()
	stuck.Abort()
}

// notAnswered records a failed request: the next one begins after a pause, or never if no
// retry can help. ctx is the request's context, whose end is not a failure. If err is
// that of another ended context, the request took too long.
func (r *receiver) notAnswered(ctx context.Context, places int, err error, began time.Time) {
	ended := ctx.Err() != nil
	retry := ended || transient(err) || faultOf(err) == faultNoToken || r.mayBeRefusedByChance(err)
	var pause time.Duration
	if retry && !ended {
		pause = r.outages.Failed(err, began)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked -= places
	if !retry && !r.closed {
		r.permanent = err
		r.arrivals.Notify()
	}
	if resume := time.Now().Add(pause); pause > 0 && resume.After(r.resume) {
		r.resume = resume
	}
	r.room.Notify()
}

// maxRefusals is how often in a row access may be denied before that counts as
// permanent.
const maxRefusals = 5

// mayBeRefusedByChance reports whether the service may have denied access that the
// receiver has: if a connection is lost while the SDK opens a link, the SDK may have sent
// the token on that connection, and opens the link on the next one.
func (r *receiver) mayBeRefusedByChance(err error) bool {
	if faultOf(err) != faultRefused {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals++
	return r.refusals < maxRefusals
}

// works records that the service has answered. A receiver that hands sessions back is not reported as sound.
func (r *receiver) works() {
	r.mu.Lock()
	r.refusals = 0
	crowded := r.crowded
	r.mu.Unlock()
	if !crowded {
		r.outages.End()
	}
}
