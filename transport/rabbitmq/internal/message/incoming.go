package message

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// callbackHeader is the address to which older endpoints of NServiceBus want replies. It
// takes precedence over reply-to.
const callbackHeader = "NServiceBus.RabbitMQ.CallbackQueue"

// manyHeaders is the approximate number of headers above which a map is faster than
// core.Headers.Set, which compares with every key.
const manyHeaders = 64

// Incoming fills in the fields of in from a delivery from queue, except DeliveryCount,
// LastError and ExpiresAt. Native is d with its Acknowledger cleared: only the receiver settles.
//
// A message of ours has its headers exactly as they were sent. A foreign message gets
// headers from its properties, unless it has headers of those names.
//
// An invalid property of this transport is left out: any copy with it, for a retry or for
// the error queue, would be refused.
//
// ID and NativeID stay empty where the message has none.
//
// EnqueuedAt stays zero: the property timestamp is the time of sending by the sender's
// clock.
func (f *Format) Incoming(d *amqp.Delivery, queue string, in *core.Incoming) {
	d.Acknowledger = nil
	in.Native, in.Body, in.Redelivered = d, d.Body, d.Redelivered

	marked := copyIDOf(d)
	in.NativeID = nativeID(marked, d.Exchange, queue)
	r := headerReader{escapes: marked != ""}
	if in.NativeID != "" {
		r.readTable(d.Headers, 0)
	} else {
		r.readTable(d.Headers, roomForProperties)
		r.setForeign(d, func() string {
			if f.config.MessageType == nil {
				return ""
			}
			return f.config.MessageType(queue, d)
		})
	}
	if why, undecodable := d.Headers[header.Undecodable].(string); undecodable {
		delete(d.Headers, header.Undecodable)
		r.markMalformed("", errors.New(strings.ToValidUTF8(why, header.Replacement)))
	}
	in.Headers, in.Malformed = r.headers, r.malformed()
	transport.UnpackHeaders(in)
	maps.DeleteFunc(in.Properties, func(name, value string) bool {
		return strings.HasPrefix(name, propertyPrefix) && setProperties(&amqp.Publishing{}, map[string]string{name: value}) != nil
	})
	if len(in.Properties) == 0 {
		in.Properties = nil
	}

	if in.ID == "" {
		in.ID = strings.ToValidUTF8(d.MessageId, header.Replacement)
		in.IDSent = in.ID != ""
	}
}

// nativeID returns the id of a stored copy. It returns "" if the id may not be unique: for
// a foreign message, and for one of ours that a tool has sent again, headers included, to
// another queue or from another queue. marked is its header.
func nativeID(marked, exchange, queue string) string {
	id, to, direct := strings.Cut(marked, "@")
	switch {
	case id == "" || direct && to != queue:
		return ""
	case direct:
		return marked
	case strings.Contains(exchange, ":"), exchange == names.DirectExchange, strings.HasPrefix(exchange, delays.Prefix):
		// The exchanges of topics have a colon in their names in all topologies that have
		// such exchanges.
		return id + "@" + queue
	default:
		return "" // sent to a topic, but not received through one
	}
}

// DeliveryCount returns the number of deliveries of a message of a quorum queue, including
// this one. The header is the broker's only if the message is redelivered; otherwise the
// sender set it.
func DeliveryCount(d *amqp.Delivery) int {
	if !d.Redelivered {
		return 1
	}
	n, _ := transport.Integer(d.Headers[header.Deliveries])
	return int(min(max(n, 0), math.MaxInt32-1)) + 1
}

// ExpiresAt returns when a delivery that arrived now expires by the clock of this process, or the
// zero time. The broker tells only the length of the time, and its sender when it began. The
// sender's time is used if it is possible: the message has not expired yet, and was not sent in
// the future. Otherwise the time begins at the arrival.
func ExpiresAt(d *amqp.Delivery, now time.Time) time.Time {
	var told time.Time
	if ms, ok := transport.Integer(d.Headers[header.ExpiresAt]); ok && ms > 0 {
		told = time.UnixMilli(ms)
	}
	if d.Expiration == "" {
		if _, delayed := d.Headers[header.Delay]; delayed && wasOnlyDelayed(d.Headers) {
			return told
		}
		return time.Time{} // another queue had it, in which it was dead-lettered
	}
	ms, err := strconv.ParseInt(d.Expiration, 10, 64)
	if err != nil || ms <= 0 { // with 0 only a waiting consumer gets the message
		return time.Time{}
	}
	life := time.Duration(min(ms, MaxExpiration.Milliseconds())) * time.Millisecond
	latest := now.Add(life)
	if told.IsZero() {
		text, _ := d.Headers[headers.TimeSent].(string)
		sent, err := headers.ParseTime(text)
		if err != nil {
			sent = d.Timestamp
		}
		told = sent.Add(life)
	}
	if told.After(now) && told.Before(latest) {
		return told
	}
	return latest
}

// wasOnlyDelayed reports whether the queues of delays were the only ones that dead-lettered the
// message. A message that another queue has dead-lettered does not expire any more, also if an
// operator moves it back.
func wasOnlyDelayed(table amqp.Table) bool {
	deaths, _ := table[header.Death].([]any)
	return !slices.ContainsFunc(deaths, func(death any) bool {
		entry, _ := death.(amqp.Table)
		queue, _ := entry["queue"].(string)
		return !strings.HasPrefix(queue, delays.Prefix)
	})
}

// headerReader is the state of reading the headers of one message.
type headerReader struct {
	headers core.Headers
	byKey   map[string]string // used instead of read until all headers are read
	escapes bool              // names may be escaped

	badKey string // of the header that makes the message malformed, the lowest
	badErr error
}

// readTable reads a table, and leaves room for more further headers.
func (r *headerReader) readTable(table amqp.Table, more int) {
	if len(table) <= manyHeaders {
		r.headers.Grow(len(table) + more)
	} else {
		r.byKey = make(map[string]string, len(table))
	}
	for key, value := range table {
		if header.IsOfTransport(key) {
			continue
		}
		if key == "" {
			r.markMalformed(key, fmt.Errorf("%w: a key is empty", core.ErrInvalidHeader))
			continue
		}
		text, valid := value.(string)
		if !valid || !utf8.ValidString(text) {
			var b []byte
			b, valid = header.AppendValue(nil, value)
			text = string(b)
		}
		if !valid || !utf8.ValidString(key) {
			r.markMalformed(key, fmt.Errorf("%w: %q is not UTF-8 or its value is not", core.ErrInvalidHeader, key))
			key = strings.ToValidUTF8(key, header.Replacement)
		}
		if r.escapes {
			key = unescape(key)
		}
		if r.byKey != nil {
			r.byKey[key] = text
		} else {
			r.headers.Set(key, text)
		}
	}
	if r.byKey != nil {
		r.headers = core.HeadersFromMap(r.byKey)
	}
}

// roomForProperties is the largest number of headers that foreign adds.
const roomForProperties = 5

// setForeign adds headers from the properties of a foreign message. It calls messageType
// for a message without a type.
func (r *headerReader) setForeign(d *amqp.Delivery, messageType func() string) {
	r.setMissing(headers.MessageID, "message-id", d.MessageId)
	r.setMissing(headers.CorrelationID, "correlation-id", d.CorrelationId)
	r.setMissing(headers.ContentType, "content-type", d.ContentType)
	r.setMissing(headers.ReplyToAddress, "reply-to", d.ReplyTo)
	if callback := r.headers.Get(callbackHeader); callback != "" {
		r.headers.Set(headers.ReplyToAddress, callback)
	}
	r.setMissing(headers.MessageTypes, "type", d.Type)
	if r.headers.Get(headers.MessageTypes) == "" {
		r.setMissing(headers.MessageTypes, "Config.MessageType", messageType())
	}
}

// setMissing sets a missing header to the value of a property, unless that is empty.
func (r *headerReader) setMissing(key, name, value string) {
	if value == "" {
		return
	}
	if _, has := r.headers.Lookup(key); has {
		return
	}
	if !utf8.ValidString(value) {
		r.markMalformed(key, fmt.Errorf("%w: %s is not UTF-8", core.ErrInvalidHeader, name))
		value = strings.ToValidUTF8(value, header.Replacement)
	}
	r.headers.Set(key, value)
}

// markMalformed records why the message is malformed. The error is always that of the
// lowest key, because a table is read in random order.
func (r *headerReader) markMalformed(key string, err error) {
	if r.badErr == nil || key < r.badKey {
		r.badKey, r.badErr = key, err
	}
}

func (r *headerReader) malformed() error {
	if r.badErr == nil {
		return nil
	}
	return fmt.Errorf("rabbitmq: read the headers: %w", r.badErr)
}

// unescape returns the name of a header before publishing.
func unescape(key string) string {
	if name, ok := strings.CutPrefix(key, header.EscapePrefix); ok && name != "" {
		return name
	}
	return key
}
