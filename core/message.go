package core

import "time"

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

	// GroupKey and Properties (ordering and broker specifics) are carried, and
	// used where the broker can.
	GroupKey   string
	Properties map[string]string
}

// Incoming is a message as it was received. Nobody writes to it after Receive
// returned it.
type Incoming struct {
	// ID is the message id: the header NServiceBus.MessageId or, for a foreign
	// message, the broker's own field, or else NativeID. It is never empty.
	ID string

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
}
