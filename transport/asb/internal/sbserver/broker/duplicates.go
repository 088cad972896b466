package broker

import "time"

// A duplicates is the history of message ids of an entity with duplicate detection.
type duplicates struct {
	seen  map[string]instant
	order []seenID // the oldest first
}

type seenID struct {
	key string
	at  instant
}

// rememberLocked tells whether a message is a duplicate, and remembers it if not: "If any new
// message is sent with MessageId that was logged during the time window, the message is reported
// as accepted (the send operation succeeds), but the newly sent message is instantly ignored and
// dropped. No other parts of the message other than the MessageId are considered" (page
// duplicate-detection). "In the case of a partitioned entity the combination of MessageId and
// PartitionKey is used to determine uniqueness"; "When sessions are enabled, partition key and
// session ID must be the same" (same page). A scheduled message counts when it is sent.
func (e *entity) rememberLocked(c *content) bool {
	if !e.settings.RequiresDuplicateDetection || !c.hasID {
		return false
	}
	key := c.id
	if e.settings.EnablePartitioning {
		partition := c.partition
		if c.inSession {
			partition = c.session
		}
		key += "\x00" + partition
	}
	now := e.broker.now
	e.history.forget(now, e.settings.DuplicateDetectionWindow)
	if _, ok := e.history.seen[key]; ok {
		return true
	}
	e.history.add(key, now)
	e.broker.rememberedLocked(e, key)
	return false
}

func (d *duplicates) add(key string, at instant) {
	if d.seen == nil {
		d.seen = map[string]instant{}
	}
	d.seen[key] = at
	d.order = append(d.order, seenID{key, at})
}

// forget removes the ids that were seen before the window.
func (d *duplicates) forget(now instant, window time.Duration) {
	n := 0
	for n < len(d.order) && d.order[n].at.add(window) <= now {
		delete(d.seen, d.order[n].key)
		n++
	}
	d.order = d.order[n:]
}
