// Package deduplication remembers the deduplication ids of messages.
package deduplication

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

// Interval is how long a FIFO queue or topic remembers a deduplication id.
const Interval = 5 * time.Minute

// A Memory remembers the messages that were sent with a deduplication id, for 5 minutes, even
// if they have been deleted.
type Memory struct {
	sent  map[string]Sent
	order []SentKey // oldest first
}

// Sent is a message that was sent.
type Sent struct {
	ID, Sequence string
	At           clock.Instant
}

// SentKey is a key, and when a message was sent with it.
type SentKey struct {
	Key string
	At  clock.Instant
}

// New returns an empty memory.
func New() Memory { return Memory{sent: map[string]Sent{}} }

// Find returns the message that was sent with a key.
func (m *Memory) Find(key string, now clock.Instant) (Sent, bool) {
	for len(m.order) > 0 && m.order[0].At.Add(Interval) <= now {
		if o := m.order[0]; m.sent[o.Key].At == o.At {
			delete(m.sent, o.Key)
		}
		m.order = m.order[1:]
	}
	s, ok := m.sent[key]
	return s, ok
}

// Add remembers that a message was sent with a key.
func (m *Memory) Add(key string, s Sent) {
	m.sent[key] = s
	m.order = append(m.order, SentKey{key, s.At})
}

// Key returns the key of a deduplication id in a memory, for the whole queue or
// for each group.
func Key(perGroup bool, group, id string) string {
	if perGroup {
		return group + "\x00" + id
	}
	return id
}

// IDOfBody returns the deduplication id that content-based deduplication
// derives from a body.
func IDOfBody(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}
