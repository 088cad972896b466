package message

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"time"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
)

// These are limits. In the service (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas) a
// property has at most 32 KiB, all properties together at most 64 KiB. A copy for the
// error queue has more headers than the original message.
const (
	MaxPropertiesBytes = 64 << 10
	MaxHeaderBytes     = 30 << 10                   // of an application's message
	maxHeaderBytes     = MaxPropertiesBytes - 2<<10 // the rest is for properties that the service and the adapter add
	maxPropertyBytes   = 32<<10 - 1
	maxSessionIDLength = 128
	maxMessageIDLength = 128
)

// clocksDiffer is how far apart two estimates of the service's clock may be.
const clocksDiffer = time.Minute

// annotationScheduled is the time at which the service makes a message available.
const annotationScheduled = "x-opt-scheduled-enqueue-time"

// Outgoing is a message as the SDK sends it.
type Outgoing = azservicebus.AMQPAnnotatedMessage

// Encode encodes a message for a queue or topic. With sessions every message belongs to
// one.
func (c *Codec) Encode(out *core.Outgoing, sessions bool) (*Outgoing, error) {
	id := messageID(out)
	packed := *out
	session := ""
	switch {
	case out.GroupKey == "":
		if sessions {
			session = id // a separate session
		}
	case isSessionID(out.GroupKey):
		session, packed.GroupKey = out.GroupKey, ""
	default:
		sum := sha256.Sum256([]byte(out.GroupKey))
		session = "sha256-" + hex.EncodeToString(sum[:])
	}
	h := transport.PackHeaders(&packed)
	m := &Outgoing{
		Body:       azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{out.Body}},
		Properties: &azservicebus.AMQPAnnotatedMessageProperties{MessageID: id},
		Header:     &azservicebus.AMQPAnnotatedMessageHeader{Durable: true},
	}
	if session != "" {
		m.Properties.GroupID = &session
	}
	var err error
	original := originalOf(out)
	if m.ApplicationProperties, err = ApplicationProperties(h, original.ApplicationProperties); err != nil {
		return nil, err
	}
	nativeProperty(&m.Properties.ReplyTo, h, headers.ReplyToAddress)
	nativeProperty(&m.Properties.ContentType, h, headers.ContentType)
	if text := h.Get(headers.CorrelationID); text != "" && len(text) <= maxMessageIDLength {
		m.Properties.CorrelationID = text
	}
	if original != &none {
		copyNative(m, original, out.Body, h)
	}
	due := c.Scheduled(out.Delay)
	if out.Delay > 0 {
		annotate(m, annotationScheduled, RoundUp(due))
	}
	if out.TimeToBeReceived > 0 {
		// The service counts it from the moment when the message becomes available.
		expire(m, due, max(out.TimeToBeReceived-out.Delay, time.Millisecond))
	}
	return m, nil
}

// ApplicationProperties returns headers in the form that the service keeps; nil if there
// are none. In a copy, a property is as it was sent if that has the text of its header.
func ApplicationProperties(h core.Headers, sent map[string]any) (map[string]any, error) {
	if h.Len() == 0 {
		return nil, nil
	}
	properties, total := make(map[string]any, h.Len()), 0
	for key, value := range h.All() {
		key = PropertyOf(key)
		if len(key) > maxPropertyBytes || len(value) > maxPropertyBytes {
			return nil, fmt.Errorf("the header %.100q: %w", key, &core.TooLargeError{Limit: "Service Bus's limit of a property", Max: maxPropertyBytes, Size: max(len(key), len(value))})
		}
		total += len(key) + len(value)
		properties[key] = value
		if original, has := sent[key]; has && Text(original) == value {
			properties[key] = original
			total += SizeOf(original) - len(value)
		}
	}
	if total > maxHeaderBytes {
		return nil, &core.TooLargeError{Limit: "Service Bus's limit of all properties", Max: maxHeaderBytes, Size: total}
	}
	return properties, nil
}

// Scheduled returns the time by the service's clock at which a message with a delay
// becomes available. It must not be early.
func (c *Codec) Scheduled(delay time.Duration) time.Time {
	const differs = time.Second
	at := time.Now().Add(delay)
	if offset := c.Clock.Ahead(); offset < -differs || offset > differs {
		at = at.Add(offset + differs/4) // the estimate is too small by the latency of an answer
	}
	return at
}

// maxHeaderTTL is the longest time to live that the header has room for. The service writes it
// where there is no limit, or a longer one.
const maxHeaderTTL = math.MaxUint32 * time.Millisecond

// expire sets the time to live of a message, in whole milliseconds. If it does not fit
// into the header's 32 bits (49 days), it is written as .NET's client writes it: as the
// time at which the message expires.
func expire(m *Outgoing, available time.Time, ttl time.Duration) {
	ttl = (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
	m.Header.TTL = min(ttl, maxHeaderTTL)
	if ttl > maxHeaderTTL {
		created := available.UTC()
		expires := created.Add(ttl)
		m.Properties.CreationTime, m.Properties.AbsoluteExpiryTime = &created, &expires
	}
}

// RoundUp rounds t up to whole milliseconds, the precision of AMQP.
func RoundUp(t time.Time) time.Time {
	rounded := t.Truncate(time.Millisecond)
	if rounded.Before(t) {
		rounded = rounded.Add(time.Millisecond)
	}
	return rounded.UTC()
}

// nativeProperty sets the AMQP field that corresponds to a header: programs without
// Reprise read it.
func nativeProperty(field **string, h core.Headers, key string) {
	text := h.Get(key)
	if text == "" {
		return
	}
	value := text // allocated only here: most messages have none
	*field = &value
}

// messageID returns the service's own id of a message, by which an entity with duplicate
// detection finds duplicates. For a message that the application sends it is the
// message's id, so that a second Send of the same message is dropped there. The engine's
// copies, for delayed retries or the error queue, have a new one: they must never be
// dropped.
func messageID(out *core.Outgoing) string {
	if out.Reason != core.ReasonApplication || out.ID == "" || len(out.ID) > maxMessageIDLength || out.ID == out.GroupKey {
		return transport.DeduplicationID(out)
	}
	return out.ID
}

// isSessionID reports whether a group key can be used unchanged as the id of a session.
func isSessionID(key string) bool {
	if len(key) > maxSessionIDLength {
		return false
	}
	for _, r := range key {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
