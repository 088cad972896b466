package broker

import (
	"maps"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/uuid"
)

// A Message is a message that a client sends.
type Message struct {
	// AMQP is the decoded message. The broker keeps it: the caller must not change it
	// afterwards.
	AMQP *amqp10.Message
	// Encoded are the bytes from which AMQP was decoded, and by which the broker measures
	// it. The broker does not keep them. If it is nil, the broker encodes AMQP.
	Encoded []byte
}

// A LockToken identifies the lock of one delivery. It is a UUID with its bytes in the
// order of RFC 4122.
type LockToken [16]byte

// String returns the token in the usual form of a UUID.
func (t LockToken) String() string {
	return amqp10.UUID(t).String()
}

func newLockToken() LockToken { return LockToken(uuid.New()) }

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
	content          *content.Content
	state            messageState
	wasDeferred      bool // while locked: it was received by its sequence number
	count            uint32
	hops             uint8 // entities through which it was forwarded
	enqueued         clock.Instant
	ttl              time.Duration
	expires          clock.Instant // 0 for never
	lock             LockToken
	lockedUntil      clock.Instant
	holder           *Consumer        // nil if it was received by its sequence number
	session          *session         // nil outside sessions
	deadLetterSource string           // only of messages forwarded from a dead-letter queue
	position         int              // in an availableHeap
	due              clock.Event      // end of the lock or of the schedule
	expiry           clock.Event      // end of the time to live
	saved            *content.Content // as it is in the journal; nil before the first record
	changed          bool             // for the journal
}

// FireLocked handles the end of a lock, a schedule or a time to live.
func (m *message) FireLocked(ev *clock.Event) {
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
	Message *amqp10.Message // with header and annotations set as the service does
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
	content          *content.Content
	sequence         int64
	enqueuedSequence int64
	count            uint32
	enqueued         clock.Instant
	expires          clock.Instant
	lock             LockToken
	lockedUntil      clock.Instant
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
		Message: s.message(), LockToken: s.lock, SequenceNumber: s.sequence, DeliveryCount: s.count, Size: s.content.Size,
	}
	if s.lockedUntil != 0 {
		d.LockedUntil = s.lockedUntil.Time()
	}
	if s.content.InSession {
		d.SessionID = &s.content.Session
	}
	return d
}

// message returns the message as a receiver sees it. The sections that the sender wrote
// are unchanged; the header has the delivery count, and the annotations have the other
// values (page service-bus-amqp-protocol-guide, "Messages").
func (s *snapshot) message() *amqp10.Message {
	m := *s.content.AMQP
	header := amqp10.MessageHeader{Durable: true, Priority: 4}
	if m.Header != nil {
		header = *m.Header
	}
	header.DeliveryCount, header.FirstAcquirer = s.count, s.count == 0
	// "Messages that have a longer time-to-live than the default are silently adjusted to the
	// defaultMessageTimeToLive value" (page message-expiration): the receiver sees that one.
	if s.expires != 0 {
		header.TTL = min(s.enqueued.Until(s.expires), content.MaxHeaderTTL)
	}
	m.Header = &header
	m.DeliveryAnnotations = nil
	m.Annotations = make(amqp10.Annotations, len(s.content.AMQP.Annotations)+4)
	maps.Copy(m.Annotations, s.content.AMQP.Annotations)
	m.Annotations[content.AnnotationSequenceNumber] = s.sequence
	m.Annotations[content.AnnotationEnqueuedTime] = s.enqueued.Time()
	if s.enqueuedSequence != 0 {
		m.Annotations[content.AnnotationEnqueuedSequenceNumber] = s.enqueuedSequence
	}
	if s.lockedUntil != 0 {
		m.Annotations[content.AnnotationLockedUntil] = s.lockedUntil.Time()
	}
	if s.deadLetterSource != "" {
		m.Annotations[content.AnnotationDeadLetterSource] = s.deadLetterSource
	}
	switch s.state {
	case deferred:
		m.Annotations[content.AnnotationMessageState] = int32(1)
	case scheduled:
		m.Annotations[content.AnnotationMessageState] = int32(2)
	default:
		m.Annotations[content.AnnotationMessageState] = int32(0)
	}
	return &m
}
