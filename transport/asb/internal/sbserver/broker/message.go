package broker

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"time"

	"github.com/Azure/go-amqp"
)

// A Message is a message that a client sends.
type Message struct {
	// AMQP is the decoded message. The broker keeps it: the caller must not change it
	// afterwards.
	AMQP *amqp.Message
	// Encoded are the bytes from which AMQP was decoded, and by which the broker measures
	// it. The broker does not keep them. If it is nil, the broker encodes AMQP.
	Encoded []byte
}

// A LockToken identifies the lock of one delivery. It is a UUID with its bytes in the
// order of RFC 4122.
type LockToken [16]byte

// String returns the token in the usual form of a UUID.
func (t LockToken) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", t[:4], t[4:6], t[6:8], t[8:10], t[10:])
}

func newLockToken() LockToken {
	var t LockToken
	for i, word := range [2]uint64{rand.Uint64(), rand.Uint64()} {
		for j := range 8 {
			t[i*8+j] = byte(word >> (8 * j))
		}
	}
	t[6], t[8] = t[6]&0x0f|0x40, t[8]&0x3f|0x80
	return t
}

// The annotations of messages that the broker reads and writes (page
// service-bus-amqp-protocol-guide, "Message annotations").
const (
	annotationSequenceNumber         = "x-opt-sequence-number"
	annotationEnqueuedSequenceNumber = "x-opt-enqueue-sequence-number"
	annotationEnqueuedTime           = "x-opt-enqueued-time"
	annotationLockedUntil            = "x-opt-locked-until"
	annotationScheduledEnqueueTime   = "x-opt-scheduled-enqueue-time"
	annotationPartitionKey           = "x-opt-partition-key"
	annotationDeadLetterSource       = "x-opt-deadletter-source"
	annotationMessageState           = "x-opt-message-state"
)

// A content is a message without its state in an entity. It never changes, and copies of
// a message in several entities share it.
type content struct {
	amqp      *amqp.Message
	encoded   []byte // only until it is in the journal
	size      int
	id        string // message id in a canonical form, "" if there is none
	hasID     bool
	session   string
	inSession bool // whether there is a session id, which may be ""
	partition string
	ttl       time.Duration // 0 if the sender gave none
	scheduled instant       // 0 if the sender gave none
}

func newContent(m *amqp.Message, size int) *content {
	c := &content{amqp: m, size: size}
	if p := m.Properties; p != nil {
		if p.MessageID != nil {
			c.id, c.hasID = fmt.Sprint(p.MessageID), true
		}
		if p.GroupID != nil {
			c.session, c.inSession = *p.GroupID, true
		}
	}
	if at, ok := m.Annotations[annotationScheduledEnqueueTime].(time.Time); ok {
		c.scheduled = instantOf(at)
	}
	if key, ok := m.Annotations[annotationPartitionKey].(string); ok {
		c.partition = key
	}
	c.ttl = timeToLive(m)
	return c
}

// timeToLive returns the time to live that a sender set. The header has 32 bits for it,
// 49 days in milliseconds; SDKs write a longer one as absolute-expiry-time minus
// creation-time (page service-bus-amqp-protocol-guide, "properties").
func timeToLive(m *amqp.Message) time.Duration {
	var ttl time.Duration
	if m.Header != nil {
		ttl = m.Header.TTL
	}
	if p := m.Properties; p != nil && p.AbsoluteExpiryTime != nil && p.CreationTime != nil {
		if long := p.AbsoluteExpiryTime.Sub(*p.CreationTime); long > ttl && (ttl == 0 || ttl >= maxHeaderTTL) {
			ttl = long
		}
	}
	return ttl
}

const maxHeaderTTL = math.MaxUint32 * time.Millisecond

// withProperties returns a content with application properties added or replaced.
func (c *content) withProperties(properties map[string]any) *content {
	if len(properties) == 0 {
		return c
	}
	changed, copied := *c, *c.amqp
	copied.ApplicationProperties = make(map[string]any, len(c.amqp.ApplicationProperties)+len(properties))
	maps.Copy(copied.ApplicationProperties, c.amqp.ApplicationProperties)
	maps.Copy(copied.ApplicationProperties, properties)
	changed.amqp, changed.encoded = &copied, nil
	return &changed
}

type messageState byte

const (
	gone messageState = iota
	available
	locked
	deferred
	scheduled
)

// A message is a message in a store. The broker's mutex guards it.
type message struct {
	store            *store
	sequence         int64
	enqueuedSequence int64 // in the entity that forwarded the message; 0 if none did
	content          *content
	state            messageState
	wasDeferred      bool // while locked: it was received by its sequence number
	count            uint32
	hops             uint8 // entities through which it was forwarded
	enqueued         instant
	ttl              time.Duration
	expires          instant // 0 for never
	lock             LockToken
	lockedUntil      instant
	holder           *Consumer // nil if it was received by its sequence number
	session          *session  // nil outside sessions
	deadLetterSource string    // only of messages forwarded from a dead-letter queue
	position         int       // in an availableHeap
	due              event     // end of the lock or of the schedule
	expiry           event     // end of the time to live
	saved            *content  // as it is in the journal; nil before the first record
	changed          bool      // for the journal
}

// fireLocked handles the end of a lock, a schedule or a time to live.
func (m *message) fireLocked(ev *event) {
	switch {
	case ev == &m.expiry:
		m.store.expireLocked(m)
	case m.state == locked:
		m.store.loseLockLocked(m)
	case m.state == scheduled:
		m.store.activateLocked(m)
	}
}

// A Delivery is a message for a receiver. The receiver may change the message, except for
// the sections of the body and the properties, which it shares with the broker.
type Delivery struct {
	Message *amqp.Message // with header and annotations set as the service does
	// LockToken names the lock; it is zero if the message was received and deleted.
	LockToken      LockToken
	LockedUntil    time.Time
	SequenceNumber int64
	DeliveryCount  uint32 // earlier deliveries that failed, as in the AMQP header
	Size           int    // of the encoded message, roughly
	SessionID      *string
}

// snapshot has the data of a delivery, so that the delivery can be made without a lock.
type snapshot struct {
	content          *content
	sequence         int64
	enqueuedSequence int64
	count            uint32
	enqueued         instant
	expires          instant
	lock             LockToken
	lockedUntil      instant
	state            messageState
	deadLetterSource string
}

func (m *message) snapshot() snapshot {
	return snapshot{
		content: m.content, sequence: m.sequence, enqueuedSequence: m.enqueuedSequence, count: m.count, enqueued: m.enqueued,
		expires: m.expires, lock: m.lock, lockedUntil: m.lockedUntil, state: m.publicState(), deadLetterSource: m.deadLetterSource,
	}
}

// publicState returns the state that receivers see. That of a deferred message is deferred also
// while a receiver has it (azservicebus v1.11.0, TestDeferredMessages).
func (m *message) publicState() messageState {
	if m.wasDeferred {
		return deferred
	}
	return m.state
}

// original returns the sequence number at the point of submission.
func (m *message) original() int64 {
	if m.enqueuedSequence != 0 {
		return m.enqueuedSequence
	}
	return m.sequence
}

func (s *snapshot) delivery() Delivery {
	d := Delivery{
		Message: s.message(), LockToken: s.lock, SequenceNumber: s.sequence, DeliveryCount: s.count, Size: s.content.size,
	}
	if s.lockedUntil != 0 {
		d.LockedUntil = s.lockedUntil.time()
	}
	if s.content.inSession {
		d.SessionID = &s.content.session
	}
	return d
}

// message returns the message as a receiver sees it. The sections that the sender wrote
// are unchanged; the header has the delivery count, and the annotations have the other
// values (page service-bus-amqp-protocol-guide, "Messages").
func (s *snapshot) message() *amqp.Message {
	m := *s.content.amqp
	header := amqp.MessageHeader{Durable: true, Priority: 4}
	if m.Header != nil {
		header = *m.Header
	}
	header.DeliveryCount, header.FirstAcquirer = s.count, s.count == 0
	// "Messages that have a longer time-to-live than the default are silently adjusted to the
	// defaultMessageTimeToLive value" (page message-expiration): the receiver sees that one.
	if s.expires != 0 {
		header.TTL = min(s.enqueued.until(s.expires), maxHeaderTTL)
	}
	m.Header = &header
	m.DeliveryAnnotations = nil
	m.Annotations = make(amqp.Annotations, len(s.content.amqp.Annotations)+4)
	maps.Copy(m.Annotations, s.content.amqp.Annotations)
	m.Annotations[annotationSequenceNumber] = s.sequence
	m.Annotations[annotationEnqueuedTime] = s.enqueued.time()
	if s.enqueuedSequence != 0 {
		m.Annotations[annotationEnqueuedSequenceNumber] = s.enqueuedSequence
	}
	if s.lockedUntil != 0 {
		m.Annotations[annotationLockedUntil] = s.lockedUntil.time()
	}
	if s.deadLetterSource != "" {
		m.Annotations[annotationDeadLetterSource] = s.deadLetterSource
	}
	switch s.state {
	case deferred:
		m.Annotations[annotationMessageState] = int32(1)
	case scheduled:
		m.Annotations[annotationMessageState] = int32(2)
	default:
		m.Annotations[annotationMessageState] = int32(0)
	}
	return &m
}
