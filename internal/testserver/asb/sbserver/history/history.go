// Package history remembers the message ids of entities with duplicate detection.
package history

import (
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
)

// A History is the history of message ids of an entity with duplicate detection.
type History struct {
	seen  map[string]clock.Instant
	order []seenID // the oldest first
}

type seenID struct {
	key string
	at  clock.Instant
}

// Has reports whether a message id was seen.
func (d *History) Has(key string) bool {
	_, ok := d.seen[key]
	return ok
}

// Each calls f with all message ids, the oldest first.
func (d *History) Each(f func(key string, at clock.Instant)) {
	for _, s := range d.order {
		f(s.key, s.at)
	}
}

// Add adds a message id.
func (d *History) Add(key string, at clock.Instant) {
	if d.seen == nil {
		d.seen = map[string]clock.Instant{}
	}
	d.seen[key] = at
	d.order = append(d.order, seenID{key, at})
}

// Forget removes the ids that were seen before the window.
func (d *History) Forget(now clock.Instant, window time.Duration) {
	n := 0
	for n < len(d.order) && d.order[n].at.Add(window) <= now {
		delete(d.seen, d.order[n].key)
		n++
	}
	d.order = d.order[n:]
}
