package message

import (
	"bytes"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// This file gives a copy of a received message the properties of the original, and its headers
// their types.
//
// Not copied are the message id, which is new for each copy; the session, which is that of the
// group key; the time to live, which is core.Outgoing.TimeToBeReceived; and all annotations but
// the partition key: the service's own, and those for a single hop.

// annotationPartitionKey chooses the partition.
const annotationPartitionKey = "x-opt-partition-key"

// none is the original of a message that is no copy.
var none azservicebus.AMQPAnnotatedMessage

// originalOf returns the message of which one is a copy, or &none.
func originalOf(out *core.Outgoing) *azservicebus.AMQPAnnotatedMessage {
	if received, ok := out.Native.(*azservicebus.ReceivedMessage); ok && received.RawAMQPMessage != nil {
		return received.RawAMQPMessage
	}
	return &none
}

// copyNative copies the native properties of the original. Where the copy has a header for a
// property, and it was changed or left out, the property follows.
func copyNative(m, original *Outgoing, body []byte, h core.Headers) {
	if p := original.Properties; p != nil {
		to := m.Properties
		to.Subject, to.To, to.ReplyToGroupID, to.ContentEncoding = p.Subject, p.To, p.ReplyToGroupID, p.ContentEncoding
		to.UserID, to.CreationTime, to.GroupSequence = p.UserID, p.CreationTime, p.GroupSequence
		copyText(&to.ReplyTo, p.ReplyTo, original, h, headers.ReplyToAddress)
		copyText(&to.ContentType, p.ContentType, original, h, headers.ContentType)
		if sent, isText := p.CorrelationID.(string); isText {
			var id *string
			if text, ok := to.CorrelationID.(string); ok {
				id = &text
			}
			copyText(&id, &sent, original, h, headers.CorrelationID)
			to.CorrelationID = nil
			if id != nil {
				to.CorrelationID = *id
			}
		} else { // no header shows it
			to.CorrelationID = p.CorrelationID
		}
	}
	if original.Header != nil {
		m.Header.Priority = original.Header.Priority
	}
	m.Footer = original.Footer
	if key, ok := original.MessageAnnotations[annotationPartitionKey].(string); ok && (m.Properties.GroupID == nil || *m.Properties.GroupID == key) {
		annotate(m, annotationPartitionKey, key)
	}
	if sent, _ := bodyOf(&original.Body); bytes.Equal(sent, body) { // of another kind than data, perhaps
		m.Body = original.Body
	}
}

// copyText sets a property of a copy, which has the value of its header, as the original has it.
func copyText(to **string, sent *string, original *Outgoing, h core.Headers, key string) {
	value, has := h.Lookup(key)
	before, isHeader := original.ApplicationProperties[key]
	_, named := original.ApplicationProperties[headers.MessageID] // then no header was made of the property
	switch {
	case sent == nil:
		*to = nil
	case has && (value == *sent || isHeader && value == Text(before)), !has && !isHeader && named:
		*to = sent
	}
}

func annotate(m *Outgoing, key string, value any) {
	if m.MessageAnnotations == nil {
		m.MessageAnnotations = map[any]any{}
	}
	m.MessageAnnotations[key] = value
}

// SizeOf returns how many bytes the value of an application property takes, or a few more.
func SizeOf(value any) int {
	if b, ok := value.([]byte); ok {
		return len(b)
	}
	return max(8, len(Text(value)))
}
