//go:build darwin || linux

package sqs

import "time"

// deduplicationInterval is how long a FIFO queue or topic remembers a deduplication id.
const deduplicationInterval = 5 * time.Minute

// A memory remembers the messages that were sent with a deduplication id, for 5 minutes, even
// if they have been deleted.
type memory struct {
	sent  map[string]sentMessage
	order []sentKey // oldest first
}

type sentMessage struct {
	id, sequence string
	at           instant
}

type sentKey struct {
	key string
	at  instant
}

func newMemory() memory { return memory{sent: map[string]sentMessage{}} }

// find returns the message that was sent with a key.
func (m *memory) find(key string, now instant) (sentMessage, bool) {
	for len(m.order) > 0 && m.order[0].at.add(deduplicationInterval) <= now {
		if o := m.order[0]; m.sent[o.key].at == o.at {
			delete(m.sent, o.key)
		}
		m.order = m.order[1:]
	}
	s, ok := m.sent[key]
	return s, ok
}

func (m *memory) add(key string, s sentMessage) {
	m.sent[key] = s
	m.order = append(m.order, sentKey{key, s.at})
}

// deduplicationKey returns the key of a deduplication id in a memory, for the whole queue or
// for each group.
func deduplicationKey(perGroup bool, group, id string) string {
	if perGroup {
		return group + "\x00" + id
	}
	return id
}
