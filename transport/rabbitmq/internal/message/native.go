package message

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
)

// This file gives a copy of a received message the properties of the original, and its headers
// their types.
//
// Not copied are delivery-mode, because a copy must survive a restart of the broker;
// expiration, which is that of core.Outgoing; message-id, which is core.Outgoing.ID; and a
// user-id of another user than the endpoint's, which the broker refuses.

// copyProperties copies the properties that no header has.
func (f *Format) copyProperties(p *amqp.Publishing, d *amqp.Delivery) {
	p.ContentEncoding, p.AppId = property(d.ContentEncoding), property(d.AppId)
	p.Priority, p.Timestamp = d.Priority, d.Timestamp
	if user, _ := f.user.Load().(string); d.UserId == user {
		p.UserId = user
	}
}

// copyHeaderProperties copies the properties that a header of the copy has too. If the header
// has changed, or is left out, the property follows it; if the original had no such
// property, the copy has none.
func copyHeaderProperties(p *amqp.Publishing, d *amqp.Delivery, h core.Headers) {
	for _, c := range [...]struct {
		key  string
		sent string
		to   *string
	}{
		{headers.ContentType, d.ContentType, &p.ContentType},
		{headers.MessageTypes, d.Type, &p.Type},
		{headers.CorrelationID, d.CorrelationId, &p.CorrelationId},
		{headers.ReplyToAddress, d.ReplyTo, &p.ReplyTo},
	} {
		value, has := h.Lookup(c.key)
		if header, _ := d.Headers[c.key].(string); c.sent == "" || has && (value == c.sent || value == header) {
			*c.to = property(c.sent)
		}
	}
}

// sentField returns the value of a header of a copy, and its size without the overhead: as it
// was sent, if that has this text.
func sentField(d *amqp.Delivery, key, text string) (field any, size int) {
	if key != "" && isOurs(d) && mustEscape(key) {
		key = header.EscapePrefix + key
	}
	sent, has := d.Headers[key]
	if _, isText := sent.(string); !has || isText {
		return text, len(text)
	}
	if got, valid := header.AppendValue(nil, sent); !valid || string(got) != text {
		return text, len(text)
	}
	return sent, fieldSize(sent)
}

// isOurs reports whether an endpoint has sent a message, so that names of its headers may be
// escaped.
func isOurs(d *amqp.Delivery) bool { return copyIDOf(d) != "" }

// copyIDOf returns the header of a message that names the stored copy, or "".
func copyIDOf(d *amqp.Delivery) string {
	id, _ := d.Headers[header.CopyID].(string)
	if len(id) > header.MaxCopyID { // it is not ours, and would be kept in memory
		return ""
	}
	return id
}

// fieldSize returns the size of a value in a frame, without its type and the length of a text,
// or more.
func fieldSize(value any) int {
	const length, scalar = 4, 8
	size := 0
	switch v := value.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	case []any:
		for _, element := range v {
			size += 1 + length + fieldSize(element)
		}
		return size
	case amqp.Table:
		for key, element := range v {
			size += 1 + len(key) + 1 + length + fieldSize(element)
		}
		return size
	}
	return scalar
}
