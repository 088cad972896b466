// For authors of adapters. This file has the messages that an adapter sends and receives.

package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

// Outgoing is a message on its way to a transport. An application developer
// seldom makes one: [Endpoint.Send] and the methods of [Message] compose it.
//
// It is a value: a copy may be kept. Headers is immutable; Body must not be written to
// after it was handed to Send.
type Outgoing struct {
	// ID is the message id, which the receiver gets as [Incoming.ID]. An empty one is
	// refused. The engine writes the header NServiceBus.MessageId with the same value. A
	// message without this header has its ID too: the adapter sends it in a field of the
	// broker, or as transport.PackHeaders does.
	ID string

	// Queue is the destination's name or address. Exactly one of Queue and
	// Topic is set.
	Queue string

	// Topic is the name that subscribers subscribed to.
	Topic string

	// BaseTopics are the topics of the types that the message's type is derived from
	// ([Config.BaseTypes]). Subscribers to any of them get the message as subscribers to
	// Topic do, and a queue with several of these subscriptions gets it once. BaseTopics is
	// only set with Topic and on a transport with [Abilities.BaseTopics]; other
	// transports refuse it. Neither side writes the slice after Send.
	BaseTopics []string

	// RequireSubscriber refuses a message to a topic that reaches no queue, with
	// [ErrNoSubscriber], where the transport can tell. Without it such a message is accepted,
	// and [ReportNoSubscriber] reports it. It is only set with Topic.
	RequireSubscriber bool

	// Headers are carried unchanged: keys and values may hold any UTF-8, NUL
	// included.
	Headers Headers

	// Body is carried unchanged.
	Body []byte

	// Delay is the time from now until the message becomes available; 0 means at once, and a
	// negative delay is refused.
	Delay time.Duration

	// TimeToBeReceived is the time from now until the message expires; 0 means never, and a
	// negative one is refused. It counts from the Send even if there is a Delay. The header
	// NServiceBus.TimeToBeReceived has no effect: it is the time that the sender gave, also
	// in a copy that has less, or never expires.
	TimeToBeReceived time.Duration

	// GroupKey groups the messages whose order matters; the adapter documents the Properties
	// that it uses. Every transport carries both, UTF-8 and without empty names, and hands
	// them back with each delivery, whether it knows a property or not. Neither side
	// writes the map after Send.
	GroupKey   string
	Properties map[string]string

	// Native is [Incoming.Native] of the received message that this one is a copy of, or
	// nil. An adapter that knows its type sends the copy with its native properties: with
	// those that no other field has as they are, and with the native type of each header
	// whose text is that in Headers. Headers, Body and the other fields are authoritative: a
	// header that Headers lacks is not sent, and the lifetime of the copy is
	// TimeToBeReceived. Any other adapter, and one that does not know the type, ignores it.
	// Send does not keep it.
	Native any

	// Reason says why the message is sent. It is not transmitted, and has no influence on
	// the received message. An adapter does not apply the size limits of its [Capabilities]
	// to the engine's copies of received messages ([SendReason.IsCopy]), and may use it
	// for its own limits, such as a quota for applications, and for diagnostics.
	Reason SendReason

	metadata *sendMetadata // nil as a rule
}

// SendReason says why a message is sent.
type SendReason int

// The reasons for a send. With every reason but [ReasonApplication] the message is a copy
// of a received message, or control traffic. The engine itself sends with all reasons but
// ReasonApplication, [ReasonForward] and [ReasonReturn].
const (
	// ReasonApplication is a send of the application: the zero value.
	ReasonApplication SendReason = iota
	// ReasonDelayedRetry is the copy of a failed message for a delayed retry.
	ReasonDelayedRetry
	// ReasonDeferral is the copy of a message that its handler deferred.
	ReasonDeferral
	// ReasonMoveToError is the move of a failed message to an error queue.
	ReasonMoveToError
	// ReasonAudit is the copy of a handled message for the audit queue.
	ReasonAudit
	// ReasonAcknowledgement tells an operator's tool that the message it returned from
	// the error queue was handled, or another outcome of it (headers.ReplayReport).
	ReasonAcknowledgement
	// ReasonUndelivered is a copy that waits in the endpoint's own queue because its
	// destination cannot be reached.
	ReasonUndelivered
	// ReasonForward is a copy of a message that its handler forwards ([Message.Forward]).
	ReasonForward
	// ReasonNewCopy is the one new copy of a message that was delivered too often,
	// perhaps without a handler.
	ReasonNewCopy
	// ReasonReturn is a failed message that an operator's tool sends back to its queue, or
	// moves to another one. The broker drops it as a duplicate only of a message with the
	// same [headers.RetryUniqueMessageID], which is the same return (C38). Its deliveries are
	// counted from 1. Headers count attempts too: the copies in error queues have none of them,
	// but of a message from a broker's own dead-letter queue the tool removes [headers.Retries],
	// [headers.RetriesTimestamp], [headers.Deferrals], [headers.Deliveries] and [headers.Failures].
	ReasonReturn
)

var sendReasons = [...]string{"send", "delayed retry", "deferral", "move to the error queue", "audit copy", "acknowledgement", "undelivered copy", "forwarded copy", "new copy", "return"}

// String returns the reason in words.
func (r SendReason) String() string {
	if r >= 0 && int(r) < len(sendReasons) {
		return sendReasons[r]
	}
	return fmt.Sprintf("SendReason(%d)", int(r))
}

// IsCopy reports whether the message is a copy that the engine or an operator's tool makes of
// a message that it received: for a delayed retry, a deferral, the error queue, the audit
// queue, a new copy, a return, or to wait until its destination can be reached. [Limits.MaxMessageBytes],
// [Limits.MaxHeaderBytes] and [Limits.MaxHeaderKeyBytes] limit all other
// messages, [Message.Forward] included: the broker has accepted this message once,
// perhaps from a sender with other limits, and it must not get stuck. A copy fails
// with [ErrTooLarge] only if the broker itself would refuse it.
func (r SendReason) IsCopy() bool {
	switch r {
	case ReasonDelayedRetry, ReasonDeferral, ReasonMoveToError, ReasonAudit, ReasonUndelivered, ReasonNewCopy, ReasonReturn:
		return true
	default:
		return false
	}
}

// copyTo returns a copy of the message that the engine sends to a queue: with other
// headers, and otherwise as the application sent it.
func (in *Incoming) copyTo(queue string, headers Headers, reason SendReason) Outgoing {
	return Outgoing{
		ID: in.ID, Queue: queue, Headers: headers, Body: in.Body,
		GroupKey: in.GroupKey, Properties: in.Properties, Native: in.Native, Reason: reason,
	}
}

// withNative returns messages in which the forwarded copies of in have a native message: that
// of in, or nil where they outlive the delivery. It does not change out.
func (in *Incoming) withNative(out []Outgoing, native any) []Outgoing {
	isCopy := func(o Outgoing) bool { return o.Reason == ReasonForward && o.ID == in.ID }
	if !slices.ContainsFunc(out, isCopy) {
		return out
	}
	out = slices.Clone(out)
	for i := range out {
		if isCopy(out[i]) {
			out[i].Native = native
		}
	}
	return out
}

// sanitize repairs the invalid metadata of a foreign producer (R24).
func (out *Outgoing) sanitize() {
	out.GroupKey = strings.ToValidUTF8(out.GroupKey, "\uFFFD")
	out.Headers, out.Properties = sanitizeHeaders(out.Headers), sanitizeProperties(out.Properties)
}

// strip leaves a copy of a received message only the metadata by which an operator recognises
// it, and that of the endpoint: any other may be the part that the transport refuses (R24).
func (out *Outgoing) strip(in *Incoming) {
	whole := out.Headers
	out.Headers, out.GroupKey, out.Properties, out.Native = bareCopy(whole), "", nil, nil
	in.writeID(&out.Headers)
	for _, key := range []string{headers.FailedQ, headers.ProcessingEndpoint, headers.Undelivered} {
		if value, ok := whole.Lookup(key); ok {
			out.Headers.Set(key, value)
		}
	}
	out.sanitize()
}

// Incoming is a received message. It is read-only after Receive returned it.
type Incoming struct {
	// ID is the message id: the header NServiceBus.MessageId or, for a foreign
	// message, the broker's own field, or else NativeID. It is never empty.
	ID string

	// IDSent: the sender gave the message its ID, as [Outgoing.ID] or in a field of the
	// broker. It need not be set if the header NServiceBus.MessageId has the ID. Without
	// either, the adapter generated the ID, which then must not be used to recognize
	// duplicates (messagekit.SentID).
	IDSent bool

	// NativeID names one stored copy of the message. It is never empty, stable over the
	// copy's redeliveries and new for every Send. Where the broker names no copies, the
	// adapter does, and a redelivery that it does not recognise has another name: two
	// messages must never share one. It is the key under which the engine and the
	// adapters remember a message: it is short, and no part of a larger text, whose memory it
	// would keep.
	NativeID string

	// Headers are as they were sent: UTF-8, no empty key. A foreign message with other
	// headers is Malformed.
	Headers Headers

	// Body is as it was sent.
	Body []byte

	// DeliveryCount is 1 on the first delivery.
	DeliveryCount int

	// Redelivered: this copy was, or may have been, delivered before, as far as the broker
	// tells. A DeliveryCount above 1 implies it; it also shows deliveries that no count
	// shows, such as one whose lock expired.
	Redelivered bool

	// GroupKey and Properties are as they were sent; for a foreign message, the adapter
	// reads them from the broker's own fields if it can.
	GroupKey   string
	Properties map[string]string

	// LastError is the text of the previous failure that the adapter has kept, or "".
	LastError string

	// EnqueuedAt is when the message became available, by the broker's clock if the broker
	// tells it, or the zero time.
	EnqueuedAt time.Time

	// ExpiresAt is when the message expires, by the clock of this process: the end of its
	// [Outgoing.TimeToBeReceived], or of the lifetime that a foreign sender gave it in the
	// broker's own way. The zero time means never, or not known. A limit that the queue sets
	// for all its messages does not count. Each copy that is handled in the message's place
	// has the rest of the time.
	ExpiresAt time.Time

	// Malformed says why the message could not be parsed. Body is then the received bytes,
	// and Headers are those that could be read.
	Malformed error

	// Native is the client library's own message, or nil: it gives access to features that
	// are not portable. The adapter documents its type. It is that of this delivery: a delayed
	// retry, and a message that comes from an error queue, is a copy whose native properties
	// are those that were sent, as far as the adapter can set them ([Outgoing.Native]). The
	// copies are made from it, so nothing may write to it.
	Native any

	// earlier is for a message of a group, which has no headers about its earlier rounds.
	earlier earlierRounds
}

// Undeliverable is a failed try to put a delayed message into its queue, or its move to the
// error queue after the last one. With Topic it is an event that one of its subscribers does not
// get ([ReportUnreachableSubscriber]); there are no more tries.
type Undeliverable struct {
	// Topic is the topic of an event that Queue, which subscribed to it, does not get. It is
	// empty for a delayed message.
	Topic string
	// MessageID is the id of the message, or empty if Messages is set.
	MessageID string
	// Messages is the number of messages that the broker has moved to MovedTo by itself
	// since the last report, if it only tells that.
	Messages int
	// Queue is the address of the queue that the message is for, or empty if Messages is
	// set.
	Queue string
	// Err is the reason why the message cannot be put there.
	Err error
	// Tries is the number of failed tries, by all processes; it is 1 at the first.
	Tries int
	// RetryIn is when the next try is made. It is 0 if MovedTo is set.
	RetryIn time.Duration
	// MovedTo is the address of the queue that has the message now: the error queue, or one
	// of the adapter. It is empty while tries continue.
	MovedTo string
	// MoveErr is the reason why the message could not be moved after the last try. The move
	// is tried again in RetryIn.
	MoveErr error
}

// MoveHeaders returns the headers with which an adapter moves the message, whose own
// headers are h, to the error queue at a time. They have the reason
// (NServiceBus.ExceptionInfo) and name Queue as the queue at which the message failed
// (NServiceBus.FailedQ), so that an operator's retry sends it there. h is not changed.
func (e Undeliverable) MoveHeaders(h Headers, at time.Time) Headers {
	h.deleteFunc(isFailureHeader)
	h.Del(retryHeaders...)
	description := describe(e.Err)
	description.write(&h)
	h.Set(headers.TimeOfFailure, headers.FormatTime(at))
	h.Set(headers.FailedQ, e.Queue)
	return h
}
