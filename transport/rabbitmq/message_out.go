package rabbitmq

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// format turns messages of the engine into those of AMQP, and back. It is safe for
// concurrent use.
type format struct {
	messageType func(queue string, d *amqp.Delivery) string // Config.MessageType
	direct      bool                                        // topics are routing keys

	// frameMax is how large a frame of the connection for sending may be, with its eight
	// bytes of frame; 0 is without limit. The connection sets it when it is opened.
	frameMax atomic.Int64

	tables sync.Pool // of amqp.Table, empty
}

func newFormat(c *Config) *format {
	f := &format{messageType: c.MessageType, direct: c.Topology == Direct}
	f.frameMax.Store(defaultFrameMax)
	return f
}

// defaultFrameMax is what broker and client library agree on, unless they are told
// otherwise.
const defaultFrameMax = 128 << 10

// Headers of AMQP that are not those of the message.
const (
	// copyIDHeader names the stored copy: its id, an @, and the queue that it was sent to.
	// To a topic it is the id alone, because each subscriber has a copy of its own.
	copyIDHeader = "Reprise.CopyID"

	furtherKeys        = "BCC" // a list of routing keys, which the broker removes
	delayHeader        = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
	confirmationHeader = "NServiceBus.Transport.RabbitMQ.ConfirmationId" // NServiceBus's, of a send
	sequenceHeader     = "x-dotnet-pub-seq-no"                           // its client library's
	deliveriesHeader   = "x-delivery-count"                              // the broker's, of quorum queues
	acquiredHeader     = "x-acquired-count"                              // from 4.3
	deathHeader        = "x-death"                                       // the broker's, of dead-lettering
	firstDeathPrefix   = "x-first-death-"
	lastDeathPrefix    = "x-last-death-"

	// escapePrefix goes before the name of a header that would mean something to the
	// broker or is removed on receipt.
	escapePrefix = "Reprise.Header."
)

// removed reports whether a header is the broker's or a transport's, and so no part of
// the message.
func removed(key string) bool {
	switch key {
	case copyIDHeader, undecodableHeader, delayHeader, confirmationHeader, sequenceHeader, deliveriesHeader, acquiredHeader, deathHeader:
		return true
	default:
		return strings.HasPrefix(key, firstDeathPrefix) || strings.HasPrefix(key, lastDeathPrefix)
	}
}

// escaped reports whether a header of a message needs another name on its way. CC and
// BCC are lists of further routing keys: a broker that finds text there closes the channel.
func escaped(key string) bool {
	switch key[0] { // most headers begin with N
	case 'B', 'C':
		return key == "CC" || key == "BCC"
	case 'N', 'R', 'x':
		return removed(key) || strings.HasPrefix(key, escapePrefix)
	default:
		return false
	}
}

const (
	// headerRoom is what the headers that the broker adds to a message may take in the
	// frame that brings it to a consumer. One that does not fit would cost the connection,
	// again and again.
	headerRoom = 4 << 10

	// copyRoom is the same for the engine's copy of a received message, which must get
	// through if at all possible: of a message without delay the broker adds two counts.
	copyRoom = 128

	// delayedCopyRoom is that of a copy with a delay: the broker adds six headers and a
	// count, beside deathRoom for each level.
	delayedCopyRoom = 1 << 10

	// deathRoom is what a level of delay adds to x-death, beside the routing key.
	deathRoom = 192

	// mostHeaders is how many headers a message can have. The client library reads 8,192 of
	// one message, and closes the connection on more; the broker adds some.
	mostHeaders = 8192 - 32

	// mostCopyHeaders is the same for a copy without delay (copyRoom).
	mostCopyHeaders = 8192 - 8

	// manyTableHeaders is the most that a table had that is used again: to clear a larger
	// one takes longer than to make a small one.
	manyTableHeaders = 64
)

// publishing returns the message as it is published. It does not check what
// transport.CheckOutgoing does. copyID has no @, and is new for every message.
//
// The table of headers belongs to the format: recycle takes it back once the message is
// written.
func (f *format) publishing(out *core.Outgoing, copyID string) (amqp.Publishing, error) {
	p := amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		MessageId:    property(out.ID),
		Timestamp:    time.Now(),
		ContentType:  amqp.MimeApplicationOctetStream,
		Body:         out.Body,
	}
	if err := setProperties(&p, out.Properties); err != nil {
		return amqp.Publishing{}, err
	}
	headers := transport.PackHeaders(out)
	most := mostHeaders
	if out.Reason.IsCopy() && out.Delay == 0 {
		most = mostCopyHeaders
	}
	if n := headers.Len(); n > most {
		return amqp.Publishing{}, fmt.Errorf("%w: it has %d headers, the most is %d", core.ErrTooLarge, n, most)
	}
	if out.TimeToBeReceived > 0 && out.Delay > 0 {
		return amqp.Publishing{}, fmt.Errorf("Delay and TimeToBeReceived are both set: %w", errors.ErrUnsupported)
	}
	if out.TimeToBeReceived > 0 {
		p.Expiration = expiration(out.TimeToBeReceived)
	}
	if out.Queue != "" {
		copyID += "@" + out.Queue
	}
	p.Headers = f.table(headers.Len() + 2)
	p.Headers[copyIDHeader] = copyID
	size := len(copyID)
	for key, value := range headers.All() {
		switch key {
		case core.HeaderContentType:
			if value := property(value); value != "" {
				p.ContentType = value
			}
		case core.HeaderMessageTypes:
			p.Type = firstType(value)
		case core.HeaderCorrelationID:
			p.CorrelationId = property(value)
		case core.HeaderReplyToAddress:
			if value != directReplies {
				p.ReplyTo = property(value)
			}
		}
		if key != "" && escaped(key) {
			key = escapePrefix + key
		}
		if len(key) > maxShortString { // it has become longer than CheckOutgoing saw it
			f.recycle(p.Headers)
			return amqp.Publishing{}, &core.TooLargeError{Limit: "MaxHeaderKeyBytes", Max: maxShortString, Size: len(key)}
		}
		p.Headers[key] = value
		size += fieldOverhead + len(key) + len(value)
	}
	if f.direct && len(out.BaseTopics) > 0 {
		// The broker routes by these keys too, a queue gets the message once, and the header
		// is removed.
		more := make([]any, len(out.BaseTopics))
		for i, topic := range out.BaseTopics {
			more[i] = topic
			size += fieldOverhead + len(topic)
		}
		p.Headers[furtherKeys] = more
	}
	seconds := 0
	if out.Delay > 0 {
		seconds = delaySeconds(out.Delay)
		p.Headers[delayHeader] = int32(seconds)
	}
	if err := f.checkSize(size+propertiesSize(&p), seconds, out); err != nil {
		f.recycle(p.Headers)
		return amqp.Publishing{}, err
	}
	return p, nil
}

// table returns an empty table.
func (f *format) table(size int) amqp.Table {
	if table, ok := f.tables.Get().(amqp.Table); ok {
		return table
	}
	return make(amqp.Table, size)
}

// recycle takes back the headers of a message that is written, or will not be.
func (f *format) recycle(table amqp.Table) {
	if table == nil || len(table) > manyTableHeaders {
		return
	}
	clear(table)
	f.tables.Put(table)
}

// checkSize checks that properties and headers fit into one frame, in which AMQP sends
// them, also on the way to a consumer. delay is in seconds.
func (f *format) checkSize(size, delay int, out *core.Outgoing) error {
	limit := int(f.frameMax.Load())
	if limit == 0 {
		return nil
	}
	room := headerRoom
	switch {
	case out.Reason.IsCopy() && delay == 0:
		room = copyRoom
	case out.Reason.IsCopy():
		room = delayedCopyRoom
	}
	limit -= min(room, limit/2)
	limit -= bits.OnesCount(uint(delay)) * (deathRoom + len(deliveryPattern) + len(topicPrefix) + len(out.Queue) + len(out.Topic))
	if size > limit {
		return &core.TooLargeError{Limit: "MaxHeaderBytes", Max: limit, Size: size}
	}
	return nil
}

const (
	// fieldOverhead is what a header takes in a frame beside its key and value: their
	// lengths, and the type.
	fieldOverhead = 1 + 1 + 4

	// frameOverhead is what the frame takes beside headers and properties of text: the
	// frame itself, class and flags, the length of the table, the other properties, the
	// lengths of six texts, and the headers of the transport.
	frameOverhead = 8 + 14 + 4 + (1 + 1 + 8) + 6 + (fieldOverhead + len(copyIDHeader)) + (fieldOverhead + len(delayHeader))
)

func propertiesSize(p *amqp.Publishing) int {
	return frameOverhead + len(p.ContentType) + len(p.CorrelationId) + len(p.ReplyTo) + len(p.Expiration) + len(p.MessageId) + len(p.Type)
}

// property returns a value for a property of AMQP, or none where it is too long for one.
// A header has it too.
func property(value string) string {
	if len(value) > maxShortString {
		return ""
	}
	return value
}

// firstType returns the first of the types in a header, without the assembly that .NET
// adds to it.
func firstType(types string) string {
	if i := strings.IndexAny(types, ",;"); i >= 0 {
		types = types[:i]
	}
	return property(strings.TrimSpace(types))
}

// expiration returns a time to be received as AMQP has it, in whole milliseconds. Rounded
// up it is never 0, which would be only for a consumer that waits. What is longer than the
// broker takes is none: better not to expire than too early.
func expiration(d time.Duration) string {
	if d > mostExpiration {
		return ""
	}
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// mostExpiration is the longest that the broker takes. On more it closes the channel.
const mostExpiration = 10 * 365 * 24 * time.Hour

// Properties of core.Outgoing that are this transport's.
const (
	propertyPrefix       = "rabbitmq."
	propertyDeliveryMode = propertyPrefix + "delivery-mode"
	propertyPriority     = propertyPrefix + "priority"
)

func setProperties(p *amqp.Publishing, properties map[string]string) error {
	for name, value := range properties {
		switch {
		case name == propertyDeliveryMode && value == "transient":
			p.DeliveryMode = amqp.Transient
		case name == propertyDeliveryMode && value == "persistent":
		case name == propertyDeliveryMode:
			return fmt.Errorf("the property %s is %q, but must be persistent or transient", name, value)
		case name == propertyPriority:
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil {
				return fmt.Errorf("the property %s is %q, but must be a whole number from 0 to 255", name, value)
			}
			p.Priority = uint8(n)
		case strings.HasPrefix(name, propertyPrefix):
			return fmt.Errorf("there is no property %s; there are %s and %s", name, propertyDeliveryMode, propertyPriority)
		}
	}
	return nil
}
