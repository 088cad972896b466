package rabbitmq

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// callbackHeader is where older endpoints of NServiceBus want replies, whatever reply-to
// says.
const callbackHeader = "NServiceBus.RabbitMQ.CallbackQueue"

// manyHeaders is about where a map becomes faster than core.Headers.Set, which compares
// with every key.
const manyHeaders = 64

// incoming fills in what a delivery from queue says, but for DeliveryCount and
// LastError. Native is d, whose Acknowledger is cleared: only the receiver settles.
//
// A message of ours has its headers as they were sent. To a foreign one headers are
// added from its properties, where it has none of the name.
//
// A foreign message with a priority has it as a property, so that it keeps it when it
// is retried. That it may be transient is no property: its copy in an error queue shall
// survive a restart of the broker.
//
// A property of this transport that is not legal is left out: a copy with it, to be retried
// or moved to the error queue, would be refused for ever.
//
// EnqueuedAt stays zero: the property timestamp is the sender's clock, and its sending.
func (f *format) incoming(d *amqp.Delivery, queue string, in *core.Incoming) {
	d.Acknowledger = nil
	in.Native, in.Body, in.Redelivered = d, d.Body, d.Redelivered

	marked, _ := d.Headers[copyIDHeader].(string)
	in.NativeID = nativeID(marked, d.Exchange, queue)
	r := reading{escapes: marked != ""}
	if in.NativeID != "" {
		r.headers(d.Headers, 0)
	} else {
		r.headers(d.Headers, roomForProperties)
		r.foreign(d, func() string {
			if f.messageType == nil {
				return ""
			}
			return f.messageType(queue, d)
		})
	}
	if why, undecodable := d.Headers[undecodableHeader].(string); undecodable {
		delete(d.Headers, undecodableHeader)
		r.wrong("", errors.New(strings.ToValidUTF8(why, replacement)))
	}
	in.Headers, in.Malformed = r.read, r.malformed()
	transport.UnpackHeaders(in)
	maps.DeleteFunc(in.Properties, func(name, value string) bool {
		return strings.HasPrefix(name, propertyPrefix) && setProperties(&amqp.Publishing{}, map[string]string{name: value}) != nil
	})
	if len(in.Properties) == 0 {
		in.Properties = nil
	}
	if in.NativeID == "" && in.Properties == nil && d.Priority > 0 {
		in.Properties = map[string]string{propertyPriority: strconv.Itoa(int(d.Priority))}
	}

	in.ID = in.Headers.Get(core.HeaderMessageID)
	if in.ID == "" {
		in.ID = strings.ToValidUTF8(d.MessageId, replacement)
		in.IDSent = in.ID != ""
	}
	if in.ID == "" {
		in.ID = transport.DeliveryKey(in)
	}
}

// nativeID returns the id of a stored copy, or "" where nothing is certain to name it: a
// foreign message, or one of ours that somebody has sent again, headers and all, to
// another queue or from one. marked is its header.
func nativeID(marked, exchange, queue string) string {
	id, to, direct := strings.Cut(marked, "@")
	switch {
	case id == "" || direct && to != queue:
		return ""
	case direct:
		return marked
	case strings.Contains(exchange, ":"), exchange == directExchange, strings.HasPrefix(exchange, delayPrefix):
		// The exchanges of topics have a colon in their names in all topologies that have such.
		return id + "@" + queue
	default:
		return "" // sent to a topic, but came from none
	}
}

// deliveryCount returns how often a message of a quorum queue was delivered, this time
// included. Only a message that was delivered before has the broker's count; what else
// has the header had it from its sender.
func deliveryCount(d *amqp.Delivery) int {
	if !d.Redelivered {
		return 1
	}
	n, _ := transport.Integer(d.Headers[deliveriesHeader])
	return int(min(max(n, 0), math.MaxInt32-1)) + 1
}

// reading is the headers of one message, as they are read.
type reading struct {
	read    core.Headers
	many    map[string]string // instead of read, until all are there
	escapes bool              // names may be escaped

	badKey string // of the header that makes the message malformed, the first in order
	bad    error
}

// headers reads a table, and leaves room for some more headers.
func (r *reading) headers(table amqp.Table, more int) {
	if len(table) <= manyHeaders {
		r.read.Grow(len(table) + more)
	} else {
		r.many = make(map[string]string, len(table))
	}
	for key, value := range table {
		if removed(key) {
			continue
		}
		if key == "" {
			r.wrong(key, fmt.Errorf("%w: a key is empty", core.ErrInvalidHeader))
			continue
		}
		text, valid := value.(string)
		if !valid || !utf8.ValidString(text) {
			var b []byte
			b, valid = appendValue(nil, value)
			text = string(b)
		}
		if !valid || !utf8.ValidString(key) {
			r.wrong(key, fmt.Errorf("%w: %q is not UTF-8 or its value is not", core.ErrInvalidHeader, key))
			key = strings.ToValidUTF8(key, replacement)
		}
		if r.escapes {
			key = unescape(key)
		}
		if r.many != nil {
			r.many[key] = text
		} else {
			r.read.Set(key, text)
		}
	}
	if r.many != nil {
		r.read = core.HeadersFromMap(r.many)
	}
}

// roomForProperties is how many headers foreign adds at most.
const roomForProperties = 5

// foreign adds what is in the properties of a foreign message. messageType is asked for
// the type of one that has none.
func (r *reading) foreign(d *amqp.Delivery, messageType func() string) {
	r.property(core.HeaderMessageID, "message-id", d.MessageId)
	r.property(core.HeaderCorrelationID, "correlation-id", d.CorrelationId)
	r.property(core.HeaderContentType, "content-type", d.ContentType)
	r.property(core.HeaderReplyToAddress, "reply-to", d.ReplyTo)
	if callback := r.read.Get(callbackHeader); callback != "" {
		r.read.Set(core.HeaderReplyToAddress, callback)
	}
	r.property(core.HeaderMessageTypes, "type", d.Type)
	if r.read.Get(core.HeaderMessageTypes) == "" {
		r.property(core.HeaderMessageTypes, "Config.MessageType", messageType())
	}
}

// property sets a header that is missing to the value of a property, if there is one.
func (r *reading) property(key, name, value string) {
	if value == "" {
		return
	}
	if _, has := r.read.Lookup(key); has {
		return
	}
	if !utf8.ValidString(value) {
		r.wrong(key, fmt.Errorf("%w: %s is not UTF-8", core.ErrInvalidHeader, name))
		value = strings.ToValidUTF8(value, replacement)
	}
	r.read.Set(key, value)
}

// wrong notes what makes the message malformed. A table is read in any order, but the
// error of a message is always the same.
func (r *reading) wrong(key string, err error) {
	if r.bad == nil || key < r.badKey {
		r.badKey, r.bad = key, err
	}
}

func (r *reading) malformed() error {
	if r.bad == nil {
		return nil
	}
	return fmt.Errorf("rabbitmq: read the headers: %w", r.bad)
}

// unescape returns the name that a header had before publishing.
func unescape(key string) string {
	if name, ok := strings.CutPrefix(key, escapePrefix); ok && name != "" {
		return name
	}
	return key
}
