// Package message converts messages between the engine and AMQP.
package message

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/wire"
)

// Config has the settings of a Format.
type Config struct {
	MessageType   func(queue string, d *amqp.Delivery) string // the type of a foreign message; nil: none
	TopicsAreKeys bool                                        // topics are routing keys, as in the direct topology
}

// Format converts messages between the engine and AMQP. It is safe for concurrent use.
type Format struct {
	config   Config
	frameMax atomic.Int64 // see SetFrameMax
	user     atomic.Value // a string, see SetUser
	tables   sync.Pool    // of amqp.Table, empty
}

// NewFormat returns a Format for frames of the default size.
func NewFormat(c Config) *Format {
	f := &Format{config: c}
	f.frameMax.Store(wire.DefaultFrameMax)
	return f
}

// SetFrameMax sets the maximum size of a frame of the publishing connection, including the
// eight bytes around the payload; 0 means no limit. The connection sets it when it is
// opened.
func (f *Format) SetFrameMax(n int) { f.frameMax.Store(int64(n)) }

// SetUser sets the user of the publishing connections, "" if it is not known: the broker closes
// the channel on which another user-id arrives.
func (f *Format) SetUser(name string) { f.user.Store(name) }

// mustEscape reports whether a header of a message is published under another name. CC and
// BCC are lists of further routing keys: a broker that finds text there closes the channel.
func mustEscape(key string) bool {
	switch key[0] { // most headers begin with N
	case 'B', 'C':
		return key == "CC" || key == "BCC"
	case 'N', 'R', 'x':
		return header.IsOfTransport(key) || strings.HasPrefix(key, header.EscapePrefix)
	default:
		return false
	}
}

const (
	// headerRoom is the room left in the frame for headers that the broker adds before it
	// delivers a message. A message whose headers do not fit would close the connection at
	// every delivery.
	headerRoom = 4 << 10

	// copyRoom is the same for the engine's copy of a received message, which must get
	// through if at all possible: to a message without delay the broker adds two counts.
	copyRoom = 128

	// delayedCopyRoom is the same for a copy with a delay: the broker adds six headers and
	// a count, and deathRoom for each level.
	delayedCopyRoom = 1 << 10

	// deathRoom is the room that a delay level takes in x-death, without the routing key.
	deathRoom = 192

	// maxHeaders is the largest number of headers of a message. The client library reads
	// 8,192 of one message and closes the connection on more; the broker adds some.
	maxHeaders = 8192 - 32

	// maxCopyHeaders is the same for a copy without delay (copyRoom).
	maxCopyHeaders = 8192 - 8

	// manyTableHeaders is the size of the largest table that is reused: clearing a larger
	// table takes longer than making a small one.
	manyTableHeaders = 64
)

// Publishing returns the message as it is published. It does not repeat the checks of
// transport.CheckOutgoing. copyID has no @, and is new for every message.
//
// The table of headers belongs to the Format: Recycle takes it back once the message is
// written.
func (f *Format) Publishing(out *core.Outgoing, copyID string) (amqp.Publishing, error) {
	p := amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		MessageId:    property(out.ID),
		Body:         out.Body,
	}
	now := time.Now()
	native, isCopy := out.Native.(*amqp.Delivery)
	if isCopy {
		f.copyProperties(&p, native)
	} else {
		p.Timestamp = now
	}
	if err := setProperties(&p, out.Properties); err != nil {
		return amqp.Publishing{}, err
	}
	h := transport.PackHeaders(out)
	limit := maxHeaders
	if out.Reason.IsCopy() && out.Delay == 0 {
		limit = maxCopyHeaders
	}
	if n := h.Len(); n > limit {
		return amqp.Publishing{}, fmt.Errorf("%w: it has %d headers, the most is %d", core.ErrTooLarge, n, limit)
	}
	if out.Queue != "" {
		copyID += "@" + out.Queue
	}
	p.Headers = f.table(h.Len() + 3)
	p.Headers[header.CopyID] = copyID
	if life := out.TimeToBeReceived; life > 0 && life <= MaxExpiration {
		p.Headers[header.ExpiresAt] = now.Add(life).UnixMilli()
		if out.Delay == 0 { // else it would end the delay
			p.Expiration = expiration(life)
		}
	}
	size := len(copyID)
	for key, value := range h.All() {
		switch key {
		case headers.ContentType:
			p.ContentType = property(value)
		case headers.MessageTypes:
			p.Type = firstType(value)
		case headers.CorrelationID:
			p.CorrelationId = property(value)
		case headers.ReplyToAddress:
			p.ReplyTo = property(value)
		}
		field, fieldSize := any(value), len(value)
		if isCopy {
			field, fieldSize = sentField(native, key, value)
		}
		if key != "" && mustEscape(key) {
			key = header.EscapePrefix + key
		}
		if len(key) > names.MaxShortString { // longer than CheckOutgoing saw it, because of escapePrefix
			f.Recycle(p.Headers)
			return amqp.Publishing{}, &core.TooLargeError{Limit: "MaxHeaderKeyBytes", Max: names.MaxShortString, Size: len(key)}
		}
		p.Headers[key] = field
		size += fieldOverhead + len(key) + fieldSize
	}
	if isCopy {
		copyHeaderProperties(&p, native, h)
	}
	if p.ReplyTo == names.DirectReplies { // which the broker would replace by the address of this connection
		p.ReplyTo = ""
	}
	if f.config.TopicsAreKeys && len(out.BaseTopics) > 0 {
		// The broker routes by these keys too, a queue gets the message once, and the
		// header is removed.
		more := make([]any, len(out.BaseTopics))
		for i, topic := range out.BaseTopics {
			more[i] = topic
			size += fieldOverhead + len(topic)
		}
		p.Headers[header.ExtraKeys] = more
	}
	seconds := 0
	if out.Delay > 0 {
		seconds = delays.Seconds(out.Delay)
		p.Headers[header.Delay] = int32(seconds)
	}
	if err := f.checkSize(size+propertiesSize(&p), seconds, out); err != nil {
		f.Recycle(p.Headers)
		return amqp.Publishing{}, err
	}
	return p, nil
}

// table returns an empty table.
func (f *Format) table(size int) amqp.Table {
	if table, ok := f.tables.Get().(amqp.Table); ok {
		return table
	}
	return make(amqp.Table, size)
}

// Recycle takes back the headers of a message that is written or dropped.
func (f *Format) Recycle(table amqp.Table) {
	if table == nil || len(table) > manyTableHeaders {
		return
	}
	clear(table)
	f.tables.Put(table)
}

// checkSize checks that properties and headers fit into one frame, as AMQP requires, also
// when the broker delivers the message. delay is in seconds.
func (f *Format) checkSize(size, delay int, out *core.Outgoing) error {
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
	limit -= bits.OnesCount(uint(delay)) * (deathRoom + len(delays.BindingPattern) + len(names.TopicPrefix) + len(out.Queue) + len(out.Topic))
	if size > limit {
		return &core.TooLargeError{Limit: "MaxHeaderBytes", Max: limit, Size: size}
	}
	return nil
}

const (
	// fieldOverhead is the size of a header in a frame without its key and value: their
	// lengths and the type.
	fieldOverhead = 1 + 1 + 4

	// frameOverhead is the size of the frame without headers and text properties: the frame
	// itself, class and flags, the length of the table, the other properties, the lengths
	// of nine texts, and the headers of the transport.
	frameOverhead = 8 + 14 + 4 + (1 + 1 + 8) + 9 + (fieldOverhead + len(header.CopyID)) + (fieldOverhead + len(header.Delay)) +
		(2 + len(header.ExpiresAt) + 8)
)

func propertiesSize(p *amqp.Publishing) int {
	return frameOverhead + len(p.ContentType) + len(p.CorrelationId) + len(p.ReplyTo) + len(p.Expiration) + len(p.MessageId) + len(p.Type) +
		len(p.ContentEncoding) + len(p.AppId) + len(p.UserId)
}

// property returns a value for a property of AMQP, or "" if it is too long for one. The
// same value is in a header.
func property(value string) string {
	if len(value) > names.MaxShortString {
		return ""
	}
	return value
}

// firstType returns the first type in a header, without the assembly that .NET appends to
// it.
func firstType(types string) string {
	if i := strings.IndexAny(types, ",;"); i >= 0 {
		types = types[:i]
	}
	return property(strings.TrimSpace(types))
}

// expiration returns a time to be received in AMQP's format, whole milliseconds. It rounds
// up, so that it never returns 0, with which only a waiting consumer would get the message.
func expiration(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// MaxExpiration is the broker's maximum. It closes the channel on a longer one. A message with
// a longer time to be received does not expire: that is better than expiring early.
const MaxExpiration = 10 * 365 * 24 * time.Hour

// Properties of core.Outgoing that belong to this transport.
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
