package core

import (
	"fmt"
	"time"
)

// Outgoing is a message on its way to a transport. An application developer
// seldom makes one: Endpoint.Send and the methods of Message compose it.
//
// It is a value: a copy may be kept. Headers is an immutable snapshot by its
// own nature, Body must not be written after it was handed to Send.
type Outgoing struct {
	// ID is the message id. The engine always sets it, and writes the header
	// NServiceBus.MessageId with the same value; an adapter may use it where the
	// broker has a field for it.
	ID string

	// Queue is the destination's name or address. Exactly one of Queue and
	// Topic is set.
	Queue string

	// Topic is what subscribers subscribed to.
	Topic string

	// BaseTopics are the topics of the types that the message's type is derived from
	// (Config.BaseTypes). Subscribers to any of them get the message as those to Topic do,
	// and a queue that several of them lead to gets it once. It is only set with Topic and
	// on a transport with Capabilities.BaseTopics; others refuse it. Neither side
	// writes the slice after Send.
	BaseTopics []string

	// Headers are carried unchanged: keys and values may hold any UTF-8, NUL
	// included.
	Headers Headers

	// Body is carried unchanged.
	Body []byte

	// Delay is how long after now the message becomes available; 0 is at once,
	// and a negative one is refused.
	Delay time.Duration

	// TimeToBeReceived is how long after now the message is worth delivering; 0
	// is for ever, and a negative one is refused. It counts from the Send also where there is a Delay, unless
	// the transport refuses the two together with errors.ErrUnsupported (C20).
	TimeToBeReceived time.Duration

	// GroupKey names the messages among which order matters, and Properties are
	// those that the adapter documents. Every transport carries both, UTF-8 and no
	// empty name, and hands them back with each delivery (C10), whether it knows a
	// property or not; one that has a use for them uses them. Neither side writes
	// the map after Send.
	GroupKey   string
	Properties map[string]string

	// Reason says why the message is sent. It is not transmitted, and what arrives
	// does not depend on it. An adapter does not apply the size limits of its
	// Capabilities to the engine's copies of received messages ([SendReason.IsCopy],
	// C10), and may use it for limits of its own, such as a quota for applications, and
	// for diagnostics.
	Reason SendReason

	origin *sendOrigin // nil as a rule
}

// SendReason says why a message is sent.
type SendReason int

// The reasons for a send. With all but ReasonApplication the message is a copy of one
// that was received, or control traffic; all but it and ReasonForward are the engine's
// own.
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
	// the error queue was handled.
	ReasonAcknowledgement
	// ReasonUndelivered is a copy that waits in the endpoint's own queue because its
	// destination cannot be reached (R25).
	ReasonUndelivered
	// ReasonForward is a copy of a message that its handler forwards (Message.Forward).
	ReasonForward
	// ReasonNewCopy is the one new copy of a message that was delivered too often,
	// perhaps without a handler (R34).
	ReasonNewCopy
)

var sendReasons = [...]string{"send", "delayed retry", "deferral", "move to the error queue", "audit copy", "acknowledgement", "undelivered copy", "forwarded copy", "new copy"}

// String returns the reason in words.
func (r SendReason) String() string {
	if r >= 0 && int(r) < len(sendReasons) {
		return sendReasons[r]
	}
	return fmt.Sprintf("SendReason(%d)", int(r))
}

// IsCopy reports whether the message is a copy that the engine makes of a message that it
// received: for a delayed retry, a deferral, the error queue, the audit queue, a new copy,
// or to wait until its destination can be reached. MaxMessageBytes, MaxHeaderBytes and
// MaxHeaderKeyBytes are for all others, Message.Forward included: the broker has accepted
// this message once, perhaps from a sender with other limits, and it must not get stuck
// (C10). It is ErrTooLarge only where the broker itself would refuse it.
func (r SendReason) IsCopy() bool {
	switch r {
	case ReasonDelayedRetry, ReasonDeferral, ReasonMoveToError, ReasonAudit, ReasonUndelivered, ReasonNewCopy:
		return true
	default:
		return false
	}
}

// copyTo returns a copy of the message that the engine sends to a queue: with
// other headers, and with all else that the application sent.
func (in *Incoming) copyTo(queue string, headers Headers, reason SendReason) Outgoing {
	return Outgoing{
		ID: in.ID, Queue: queue, Headers: headers, Body: in.Body,
		GroupKey: in.GroupKey, Properties: in.Properties, Reason: reason,
	}
}

// Incoming is a message as it was received. Nobody writes to it after Receive
// returned it.
type Incoming struct {
	// ID is the message id: the header NServiceBus.MessageId or, for a foreign
	// message, the broker's own field, or else NativeID. It is never empty.
	ID string

	// IDSent: the sender gave the message its ID, in a field of the broker. It need not
	// be set where the header NServiceBus.MessageId has the ID. Without either the adapter
	// generated the ID, which then does not tell two messages of the sender apart
	// ([Message.SentID]).
	IDSent bool

	// NativeID names one stored copy of the message. It is stable over the
	// copy's redeliveries and new for every Send. It keys the engine's and the
	// adapters' memories.
	NativeID string

	// Headers are as they were sent: UTF-8, no empty key. A foreign message with
	// others is Malformed.
	Headers Headers

	// Body is as it was sent.
	Body []byte

	// DeliveryCount is 1 on the first delivery.
	DeliveryCount int

	// Redelivered: this copy was, or may have been, delivered before, as far as
	// the broker tells. It is implied by a DeliveryCount above 1; what it adds
	// are deliveries that no count shows, such as one whose lock ran out.
	Redelivered bool

	// GroupKey and Properties are as they were sent; of a foreign message, what
	// the adapter finds of them in the broker's own fields.
	GroupKey   string
	Properties map[string]string

	// LastError is what the adapter remembers of the previous failure, or "".
	LastError string

	// EnqueuedAt is when the message became available, by the broker's clock
	// where it tells, or the zero time.
	EnqueuedAt time.Time

	// Malformed says why the message could not be parsed. Body is then what was
	// received, Headers are what could be read of them (C4).
	Malformed error

	// Native is the client library's own message, or nil: the way to what is
	// not portable. Its type is documented by the adapter.
	Native any

	// earlier is for a message of a group, which has no headers about its earlier rounds.
	earlier earlierRounds
}
