package bridge

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// destinations tracks the queues and topics of a side that cannot be reached.
//
// In a queue with messages for several destinations, those for an unreachable one wait as
// copies, at the end of the queue, so that the others pass: one at a time is sent as a
// probe, the others wait without an attempt. It is the same if the whole side cannot be
// reached, because the bridge can tell that only by an attempt for each destination.
type destinations struct {
	log         *slog.Logger
	giveUpAfter time.Duration

	outageCount atomic.Int64 // number of outages, so that the usual case takes no lock
	mu          sync.Mutex
	outages     map[string]*outage
	waiting     int // messages in all outages
}

// outage is the outage of a single destination.
type outage struct {
	since time.Time
	// alone is the time since which the destination is known to be unreachable although
	// its side can be reached: it does not exist, or a later attempt for another
	// destination was accepted. Zero means that this is not known.
	alone   time.Time
	err     error
	probes  int // failed ones, after the failure with which it began
	next    time.Time
	probing bool                // a probe has not ended: without an answer it takes Config.SendTimeout
	waiting map[uint64]struct{} // hashes of the ids of messages that were put back
}

// idSeed is for hashes of ids: a message's id may have any size.
var idSeed = maphash.MakeSeed()

// Probes of one destination are 1, 2, 4, ... 30 s apart. If many messages wait, the
// bridge receives about a hundred of them a second in all, and leaves the rest of the
// endpoint's capacity to other messages.
const (
	firstProbe   = time.Second
	lastProbe    = 30 * time.Second
	waitingRate  = 100 // a second
	longestPause = 5 * time.Minute
	maxWaiting   = int(longestPause/time.Second) * waitingRate
)

func newDestinations(log *slog.Logger, giveUpAfter time.Duration) *destinations {
	return &destinations{log: log, giveUpAfter: giveUpAfter, outages: map[string]*outage{}}
}

// blocked returns an error if a destination must not be tried now, and how long the
// message waits, or the function that the caller calls after its try. During an outage
// that try is the probe, and no other message is tried before it has ended: sends that are
// not answered would take all slots from the messages for other destinations.
func (d *destinations) blocked(key, id string) (ended func(), pause time.Duration, err error) {
	if d.outageCount.Load() == 0 {
		return noProbe, 0, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.outages[key]
	if o == nil {
		return noProbe, 0, nil
	}
	if o.probing || time.Now().Before(o.next) {
		return nil, d.waitLocked(o, id), o.err
	}
	o.probing, o.next = true, time.Now().Add(o.interval())
	return func() { d.probeEnded(o) }, 0, nil
}

func noProbe() {}

func (d *destinations) probeEnded(o *outage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.probing = false
}

// interval is the time until the next probe.
func (o *outage) interval() time.Duration { return min(firstProbe<<min(o.probes, 5), lastProbe) }

// waitLocked records that a message waits, and returns for how long.
func (d *destinations) waitLocked(o *outage, id string) time.Duration {
	hash := maphash.String(idSeed, id)
	if _, known := o.waiting[hash]; !known && d.waiting < maxWaiting {
		o.waiting[hash] = struct{}{}
		d.waiting++
	}
	turn := time.Duration(d.waiting) * time.Second / waitingRate
	return min(max(time.Until(o.next), turn, firstProbe), longestPause)
}

// failed records that a message could not be sent by an attempt that began at the given
// time, and returns how long it waits.
func (d *destinations) failed(key, id string, err error, began time.Time) (pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.outages[key]
	switch {
	case o == nil:
		o = &outage{since: time.Now(), waiting: map[uint64]struct{}{}}
		d.outages[strings.Clone(key)] = o // it may be a part of a message
		d.outageCount.Store(int64(len(d.outages)))
		d.log.Warn("destination cannot be reached; its messages wait", "destination", key, "error", err)
		o.next = time.Now().Add(o.interval())
	case o.probing && !began.Before(o.since): // not one that began with the first
		o.probes++
		o.next = time.Now().Add(o.interval())
	}
	o.err = err
	if o.alone.IsZero() && errors.Is(err, core.ErrQueueNotFound) {
		o.alone = time.Now()
	}
	return d.waitLocked(o, id)
}

// accepted records that a message was accepted by an attempt that began at the given
// time.
func (d *destinations) accepted(key string, began time.Time) {
	if d.outageCount.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.outages[key]; o != nil {
		delete(d.outages, key)
		d.outageCount.Store(int64(len(d.outages)))
		d.waiting -= len(o.waiting)
		d.log.Info("destination can be reached again", "destination", key, "unreachable_since", o.since, "messages_waited", len(o.waiting))
	}
	for _, o := range d.outages {
		if o.alone.IsZero() && !began.Before(o.since) {
			o.alone, o.next = time.Now(), time.Time{} // if the whole side was unreachable, the destination may be back
		}
	}
}

// givenUp reports whether messages no longer wait for a destination, and since when it
// cannot be reached.
func (d *destinations) givenUp(key string) (since time.Time, given bool) {
	if d.giveUpAfter == 0 {
		return time.Time{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.outages[key]
	if o == nil || o.alone.IsZero() || time.Since(o.alone) < d.giveUpAfter {
		return time.Time{}, false
	}
	return o.since, true
}

// state returns the state of a destination for Endpoint.Health, in the words of a circuit.
// Probes show it to anybody, so the error's text is in the log only.
func (d *destinations) state(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.outages[key]
	if o == nil {
		return "closed"
	}
	return fmt.Sprintf("open since %s (%d messages wait)", o.since.UTC().Format(time.RFC3339), len(o.waiting))
}
