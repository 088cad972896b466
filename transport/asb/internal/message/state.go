package message

import (
	"math"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport"
)

// State is the state of a message that the adapter keeps in its application properties, since the service has no other place
// for it.
type State struct {
	Released  int       // deliveries that were no failures, which the service has counted
	Failed    int       // failed deliveries from a dead-letter queue, which the service does not count
	NotBefore time.Time // when a postponed message is due, by the service's clock
}

// These application properties have the state of a message, as numbers. A settlement writes them.
const (
	// propertyStateOf is the sequence number of the message whose state it is: a sender does
	// not know the number that its message gets, and a copy has another one.
	propertyStateOf   = "Reprise.StateOf"
	propertyReleased  = "Reprise.Released"
	propertyNotBefore = "Reprise.NotBefore" // in milliseconds since 1970; 0: at once
	propertyFailed    = "Reprise.Failed"
)

// propertyMessageID is an application property of a copy with a new native id: the native
// id of the original message.
const propertyMessageID = "Reprise.NativeMessageID"

// escapePrefix is put before the name of a header that the adapter uses itself.
// transport.UnpackHeaders removes it.
const escapePrefix = "Reprise.Escaped."

// PropertyOf returns the name of the application property that has a header.
func PropertyOf(header string) string {
	if isOwnProperty(header) {
		return escapePrefix + header
	}
	return header
}

// isOwnProperty reports whether an application property is no header, also if a sender has written it.
func isOwnProperty(key string) bool {
	switch key {
	case propertyStateOf, propertyReleased, propertyNotBefore, propertyFailed, propertyMessageID:
		return true
	}
	return false
}

// number returns an application property that the adapter has added, or 0 if there is
// none.
func number(m *azservicebus.ReceivedMessage, key string) int64 {
	n, _ := transport.Integer(m.ApplicationProperties[key])
	return n
}

// countOf returns how often the service has counted a delivery before.
func countOf(m *azservicebus.ReceivedMessage) int {
	if header := m.RawAMQPMessage.Header; header != nil {
		return int(min(header.DeliveryCount, math.MaxInt32))
	}
	return 0
}

// StateOf returns the state of a message. Any sender can write such properties, so they count only where a settlement of this
// message wrote them: they name it, and outside of a dead-letter queue it has been delivered before.
func StateOf(m *azservicebus.ReceivedMessage, deadLetter bool) (s State) {
	_, has := m.ApplicationProperties[propertyStateOf]
	if !has || m.SequenceNumber == nil || number(m, propertyStateOf) != *m.SequenceNumber {
		return s
	}
	counted := countOf(m)
	switch released, due := number(m, propertyReleased), number(m, propertyNotBefore); {
	case deadLetter:
		s.Failed = int(max(0, min(number(m, propertyFailed), math.MaxInt32)))
	case counted > 0:
		if released > 0 && released <= int64(counted) {
			s.Released = int(released)
		}
		if due > 0 {
			s.NotBefore = time.UnixMilli(due)
		}
	}
	return s
}

// Properties returns the properties that a settlement of a message has to set for a state. Those that a sender has written are
// overwritten. It returns nil if there is nothing to set.
func (s State) Properties(m *azservicebus.ReceivedMessage) map[string]any {
	if m.SequenceNumber == nil {
		return nil
	}
	due := int64(0)
	if !s.NotBefore.IsZero() {
		due = s.NotBefore.UnixMilli()
	}
	var properties map[string]any
	for _, p := range []struct {
		key   string
		value int64
	}{{propertyReleased, int64(s.Released)}, {propertyNotBefore, due}, {propertyFailed, int64(s.Failed)}} {
		if _, has := m.ApplicationProperties[p.key]; !has && p.value == 0 {
			continue
		}
		if properties == nil {
			properties = map[string]any{propertyStateOf: *m.SequenceNumber}
		}
		properties[p.key] = p.value
	}
	return properties
}
