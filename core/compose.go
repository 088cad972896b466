package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/headers"
)

// SendOptions are the options of a send ([Draft.With]). The zero value is a plain send.
type SendOptions struct {
	// Delay makes the message available this much later.
	Delay time.Duration

	// DeliverAt is the time at which the message becomes available, instead of Delay,
	// however long its handler runs.
	DeliverAt time.Time

	// TimeToBeReceived is the time after which the message expires, unless it was handled by
	// then, or has been moved to another queue. See docs/recoverability.md.
	TimeToBeReceived time.Duration

	// Headers are further headers. They may override standard headers such as
	// NServiceBus.TimeSent, but not those that the rest of the call determines, which are
	// refused.
	Headers map[string]string

	// ID is the message id. The default is a new one or, in a handler, one derived from the
	// handled message and the number of its deferrals, the same at every attempt.
	ID string

	// CorrelationID and ConversationID override the values from the message being handled.
	CorrelationID  string
	ConversationID string

	// NewConversation begins a conversation, with ConversationID or the id of the message
	// itself.
	NewConversation bool

	// ReplyTo is the queue for replies. The default is the endpoint's own queue, from which
	// all its instances receive.
	ReplyTo string

	// ContentType describes a []byte body. The default is "application/octet-stream". For
	// any other body another one than the codec's is refused.
	ContentType string

	// GroupKey groups the messages whose order matters, and Properties are for the broker.
	// Every transport carries them, to retries and error queues too. The group of a reply is
	// by default the one that the handled message names (headers.ReplyToGroup).
	GroupKey   string
	Properties map[string]string

	// RequireSubscriber makes Publish fail with [ErrNoSubscriber] if no queue has
	// subscribed to the event. Azure Service Bus and SNS can tell only that there is no
	// topic. Without it such an event is counted ([health.Sends]), and the first of each
	// type is logged.
	RequireSubscriber bool
}

// composer turns an application's sends into transport messages: encoding, standard
// headers, checks. It is immutable.
type composer struct {
	endpoint  string
	machine   string
	replyTo   string // "" for a send-only endpoint
	codec     *bodyCodec
	caps      Capabilities
	address   func(queue string) (string, error) // Transport.Address
	topic     func(topic string) error           // Subscriber.CheckTopic, or nil
	baseTypes map[string][]string                // Config.BaseTypes
	sendChain SendFunc                           // Config.SendMiddleware, or nil
}

// causation has the values that a message inherits from the message being handled; the
// zero value is for a message that begins a conversation.
type causation struct {
	id             string
	conversationID string
	correlationID  string

	// sagaID and sagaType name the saga of NServiceBus that sent the message being handled,
	// or are empty. Without them a reply only reaches a saga that is found by the reply's
	// body.
	sagaID, sagaType string

	// replyGroup is the group that the message being handled names for its reply, or empty.
	replyGroup string
}

// maxReplyGroup is the longest group of a reply, in bytes: as long as an id of a session of
// Service Bus.
const maxReplyGroup = 128

// replyGroup returns the group that the message names for its reply, if that can be one.
func (in *Incoming) replyGroup() string {
	group := in.Headers.Get(headers.ReplyToGroup)
	if len(group) > maxReplyGroup || !utf8.ValidString(group) {
		return ""
	}
	return group
}

// compose returns the message for a destination: a queue, or the topic of the message
// type if the intent is to publish. id is used if the options have none.
func (c *composer) compose(intent, queue string, d *Draft, from causation, id func() string) (Outgoing, error) {
	if err := d.check(); err != nil {
		return Outgoing{}, err
	}
	messageType, body := d.messageType, d.body
	var o SendOptions
	if d.options != nil {
		o = *d.options
	}
	out := Outgoing{
		ID: o.ID, Queue: queue,
		Delay: o.Delay, TimeToBeReceived: o.TimeToBeReceived,
		GroupKey: o.GroupKey, Properties: maps.Clone(o.Properties),
	}
	if o.RequireSubscriber && intent != headers.IntentPublish {
		return Outgoing{}, errors.New("SendOptions.RequireSubscriber is for events; remove it, or call Publish")
	}
	out.RequireSubscriber = o.RequireSubscriber
	bases := c.baseTypes[messageType]
	if intent == headers.IntentPublish {
		out.Topic = messageType
		if c.caps.BaseTopics {
			out.BaseTopics = bases
		}
	}
	if !isMessageType(messageType) {
		return Outgoing{}, fmt.Errorf("%q cannot be a message type; use UTF-8 text without ';' and ','", messageType)
	}
	if err := checkHeaders(o.Headers); err != nil {
		return Outgoing{}, err
	}
	now := time.Now()
	if !o.DeliverAt.IsZero() {
		if err := c.setDue(&out, o, now); err != nil {
			return Outgoing{}, err
		}
	}
	if err := c.checkRequest(&out); err != nil {
		return Outgoing{}, err
	}
	if o.ReplyTo != "" {
		address, err := c.address(o.ReplyTo)
		if err != nil {
			return Outgoing{}, fmt.Errorf("SendOptions.ReplyTo %q cannot be a queue's name: %w", o.ReplyTo, err)
		}
		o.ReplyTo = address
	}
	if out.ID == "" {
		out.ID = id()
	}

	encoded, contentType, err := c.codec.encode(messageType, body)
	if err != nil {
		return Outgoing{}, err
	}
	out.Body = encoded
	if o.ContentType != "" && o.ContentType != contentType {
		if _, raw := body.([]byte); !raw {
			return Outgoing{}, fmt.Errorf("SendOptions.ContentType is %q, but the codec for the %T writes %q; remove it or send []byte", o.ContentType, body, contentType)
		}
		contentType = o.ContentType
	}

	conversation := firstNonEmpty(from.conversationID, from.id, out.ID)
	if o.NewConversation {
		conversation = out.ID
	}
	conversation = firstNonEmpty(o.ConversationID, conversation)
	pairs := make([]header, 0, 12+len(o.Headers))
	add := func(key, value string) {
		if value != "" {
			pairs = append(pairs, header{key, value})
		}
	}
	add(headers.MessageID, out.ID)
	add(headers.MessageTypes, typeHeader(messageType, bases))
	add(headers.ContentType, contentType)
	add(headers.MessageIntent, intent)
	add(headers.ConversationID, conversation)
	if previous := from.conversationID; previous != firstNonEmpty(o.Headers[headers.ConversationID], conversation) {
		add(headers.PreviousConversationID, previous)
	}
	add(headers.CorrelationID, firstNonEmpty(o.CorrelationID, from.correlationID, from.id, out.ID))
	add(headers.RelatedTo, from.id)
	if intent == headers.IntentReply {
		out.GroupKey = firstNonEmpty(o.GroupKey, from.replyGroup)
		add(headerSagaID, from.sagaID)
		add(headerSagaType, from.sagaType)
	}
	add(headers.ReplyToAddress, firstNonEmpty(o.ReplyTo, c.replyTo))
	add(headers.OriginatingEndpoint, c.endpoint)
	add(headers.OriginatingMachine, c.machine)
	add(headers.TimeSent, headers.FormatTime(now))
	if out.Delay > 0 {
		add(headers.DeliverAt, headers.FormatTime(now.Add(out.Delay)))
	}
	if o.TimeToBeReceived > 0 {
		add(headers.TimeToBeReceived, headers.FormatSpan(o.TimeToBeReceived))
	}
	out.Headers = Headers{pairs: override(pairs, o.Headers)}
	if c.sendChain != nil {
		return out, nil // runSendMiddleware checks it after the middleware
	}
	return out, c.checkSize(&out)
}

// reservedHeaders are the headers that the call determines, and the part of the call that
// does.
var reservedHeaders = []struct{ key, alternative string }{
	{headers.MessageID, "use SendOptions.ID"},
	{headers.MessageTypes, "send a draft of that message type, or replace it in SendMiddleware"},
	{headers.MessageIntent, "call Send, Publish or Reply"},
	{headers.ContentType, "use SendOptions.ContentType and send []byte"},
	{headers.DeliverAt, "use SendOptions.Delay or SendOptions.DeliverAt"},
	{headers.TimeToBeReceived, "use SendOptions.TimeToBeReceived"},
}

// checkHeaders refuses headers that could contradict the call.
func checkHeaders(headers map[string]string) error {
	if len(headers) == 0 {
		return nil
	}
	for _, d := range reservedHeaders {
		if value, ok := headers[d.key]; ok {
			return fmt.Errorf("header %s (%q) cannot be set by SendOptions.Headers; %s", d.key, boundedText(value, maxTypeName), d.alternative)
		}
	}
	return nil
}

// setDue computes the delay of a message from its due time.
func (c *composer) setDue(out *Outgoing, o SendOptions, now time.Time) error {
	switch {
	case o.Delay != 0:
		return fmt.Errorf("SendOptions has both Delay (%v) and DeliverAt (%v); set one of them", o.Delay, o.DeliverAt)
	case !c.caps.DelayedDelivery: // also for a time in the past, or it would depend on the clock
		return unsupported("deliver a message at a given time", "DelayedDelivery")
	}
	out.Delay = max(o.DeliverAt.Sub(now), 0)
	out.metadata = &sendMetadata{due: o.DeliverAt}
	return nil
}

// override adds headers in the order of their keys; an existing header keeps its place
// and gets the new value. It writes to pairs, which no Headers shares yet, and so need
// not copy them as Headers.Set does.
func override(pairs []header, by map[string]string) []header {
	standard := pairs
next:
	for key, value := range by {
		for i := range standard {
			if standard[i].key == key {
				standard[i].value = value
				continue next
			}
		}
		pairs = append(pairs, header{key, value})
	}
	slices.SortFunc(pairs[len(standard):], func(a, b header) int { return strings.Compare(a.key, b.key) })
	return pairs
}

// checkRequest refuses invalid values and missing abilities of the transport, before
// anything is encoded.
func (c *composer) checkRequest(out *Outgoing) error {
	switch {
	case out.Topic == "" && out.Queue == "":
		return errors.New("no destination queue was given")
	case isReservedQueue(out.Queue):
		return fmt.Errorf("%q stands for a queue of the configuration (GiveUpTo); no message can be sent there", out.Queue)
	case out.Topic != "" && !c.caps.PublishSubscribe:
		return unsupported("publish", "PublishSubscribe")
	case out.Topic == "" && len(out.BaseTopics) > 0:
		return fmt.Errorf("the message has the base topics %q, but no topic; empty BaseTopics", out.BaseTopics)
	case len(out.BaseTopics) > 0 && !c.caps.BaseTopics:
		return unsupported("publish to base topics", "BaseTopics")
	case out.Delay < 0:
		return fmt.Errorf("delay %v is negative", out.Delay)
	case out.Delay > 0 && !c.caps.DelayedDelivery:
		return unsupported("delay a message", "DelayedDelivery")
	case c.caps.MaxDelay > 0 && out.Delay > c.caps.MaxDelay:
		return fmt.Errorf("delay %v is longer than the transport's MaxDelay %v: %w", out.Delay, c.caps.MaxDelay, errors.ErrUnsupported)
	case out.TimeToBeReceived < 0:
		return fmt.Errorf("time to be received %v is negative", out.TimeToBeReceived)
	case out.TimeToBeReceived > 0 && !c.caps.TimeToBeReceived:
		return unsupported("limit the time to be received", "TimeToBeReceived")
	}
	if out.Topic == "" {
		return nil
	}
	if err := c.checkTopic(out.Topic); err != nil {
		return err
	}
	for _, topic := range out.BaseTopics {
		if err := c.checkTopic(topic); err != nil {
			return fmt.Errorf("base type %q: %w", topic, err)
		}
	}
	return nil
}

// checkTopic refuses a topic name that the transport does not accept.
func (c *composer) checkTopic(topic string) error {
	if c.topic == nil {
		return nil
	}
	return c.topic(topic)
}

// checkSize reserves room for failure headers: a message that could not be moved to the
// error queue with them is not sent in the first place (R24).
func (c *composer) checkSize(out *Outgoing) error {
	if c.caps.MaxMessageBytes == 0 {
		return nil
	}
	limit := max(c.caps.MaxMessageBytes-applicationReserve, c.caps.MaxMessageBytes/2)
	if size := len(out.Body) + out.Headers.Bytes(); size > limit {
		return fmt.Errorf("%w (%d bytes are kept free for failure headers)",
			&TooLargeError{Limit: "MaxMessageBytes", Max: limit, Size: size}, c.caps.MaxMessageBytes-limit)
	}
	return nil
}

func unsupported(action, capability string) error {
	return fmt.Errorf("cannot %s: the transport has no %s: %w", action, capability, errors.ErrUnsupported)
}

func firstNonEmpty(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// typeHeader returns the value of the header with the types of a message.
func typeHeader(messageType string, bases []string) string {
	if len(bases) == 0 {
		return messageType
	}
	return messageType + ";" + strings.Join(bases, ";")
}
