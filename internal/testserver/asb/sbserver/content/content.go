// Package content has the part of a message that its sender chooses.
package content

import (
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
)

// The annotations of messages that the broker reads and writes (page
// service-bus-amqp-protocol-guide, "Message annotations").
const (
	AnnotationSequenceNumber         = "x-opt-sequence-number"
	AnnotationEnqueuedSequenceNumber = "x-opt-enqueue-sequence-number"
	AnnotationEnqueuedTime           = "x-opt-enqueued-time"
	AnnotationLockedUntil            = "x-opt-locked-until"
	AnnotationScheduledEnqueueTime   = "x-opt-scheduled-enqueue-time"
	AnnotationPartitionKey           = "x-opt-partition-key"
	AnnotationDeadLetterSource       = "x-opt-deadletter-source"
	AnnotationMessageState           = "x-opt-message-state"
)

// A Content is a message without its state in an entity. It never changes, and copies of
// a message in several entities share it.
type Content struct {
	AMQP      *amqp10.Message
	Encoded   []byte // only until it is in the journal
	Size      int
	ID        string // message id in a canonical form, "" if there is none
	HasID     bool
	Session   string
	InSession bool // whether there is a session id, which may be ""
	Partition string
	TTL       time.Duration // 0 if the sender gave none
	Scheduled clock.Instant // 0 if the sender gave none
}

// New returns the content of a message, whose encoded form has a size in bytes.
func New(m *amqp10.Message, size int) *Content {
	c := &Content{AMQP: m, Size: size}
	if p := m.Properties; p != nil {
		if p.MessageID != nil {
			c.ID, c.HasID = fmt.Sprint(p.MessageID), true
		}
		if p.GroupID != nil {
			c.Session, c.InSession = *p.GroupID, true
		}
	}
	if at, ok := m.Annotations[AnnotationScheduledEnqueueTime].(time.Time); ok {
		c.Scheduled = clock.At(at)
	}
	if key, ok := m.Annotations[AnnotationPartitionKey].(string); ok {
		c.Partition = key
	}
	c.TTL = timeToLive(m)
	return c
}

// timeToLive returns the time to live that a sender set. The header has 32 bits for it,
// 49 days in milliseconds; SDKs write a longer one as absolute-expiry-time minus
// creation-time (page service-bus-amqp-protocol-guide, "properties").
func timeToLive(m *amqp10.Message) time.Duration {
	var ttl time.Duration
	if m.Header != nil {
		ttl = m.Header.TTL
	}
	if p := m.Properties; p != nil && p.AbsoluteExpiryTime != nil && p.CreationTime != nil {
		if long := p.AbsoluteExpiryTime.Sub(*p.CreationTime); long > ttl && (ttl == 0 || ttl >= MaxHeaderTTL) {
			ttl = long
		}
	}
	return ttl
}

const MaxHeaderTTL = math.MaxUint32 * time.Millisecond

// WithProperties returns a content with application properties added or replaced.
func (c *Content) WithProperties(properties map[string]any) *Content {
	if len(properties) == 0 {
		return c
	}
	changed, copied := *c, *c.AMQP
	copied.ApplicationProperties = make(map[string]any, len(c.AMQP.ApplicationProperties)+len(properties))
	maps.Copy(copied.ApplicationProperties, c.AMQP.ApplicationProperties)
	maps.Copy(copied.ApplicationProperties, properties)
	changed.AMQP, changed.Encoded = &copied, nil
	return &changed
}

// WithReason returns a content with the application properties that give the reason why a
// message was dead-lettered (page service-bus-dead-letter-queues, "Moving messages to the
// DLQ").
func (c *Content) WithReason(reason, description string) *Content {
	properties := map[string]any{}
	if reason != "" {
		properties["DeadLetterReason"] = reason
	}
	if description != "" {
		properties["DeadLetterErrorDescription"] = description
	}
	return c.WithProperties(properties)
}

// Encode returns the message as the sender wrote it, or with the changes made since.
func (c *Content) Encode() []byte {
	if c.Encoded != nil {
		return c.Encoded
	}
	encoded, err := amqp10.AppendMessage(nil, c.AMQP)
	if err != nil {
		panic(fmt.Sprintf("broker: journal: encode a message that was decoded before: %v", err))
	}
	return encoded
}
