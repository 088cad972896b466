// For authors of adapters. This file has the interfaces that an adapter implements. The
// engine owns time (goroutines, slots, retries, back-off, rate limiting, lock renewal,
// drain); an adapter translates: it fetches, settles, sends, and lists its abilities.

package core

import (
	"context"
	"time"
)

// Transport connects endpoints to one messaging system. It is safe for concurrent use,
// and any number of endpoints may share one. The application that opened it closes it,
// after the endpoints that use it have ended.
//
// These comments are the contract of an adapter. Its [rules] have more, and package
// conformance checks them.
//
// [rules]: https://github.com/reprise-go/reprise/blob/main/docs/adapter-rules.md
type Transport interface {
	// Capabilities lists the abilities and limits of the transport. The answer is the same
	// for the Transport's whole life, and true: a claimed ability works, an unclaimed
	// one is refused with an error matching errors.ErrUnsupported before anything is sent.
	Capabilities() Capabilities

	// Address returns the canonical form of a queue's name: the value of the headers FailedQ
	// and ReplyToAddress. It is idempotent, does no I/O, and refuses a name that the broker
	// would not accept with a [*NameError].
	Address(queue string) (string, error)

	// Send hands messages to the broker. It returns nil only when every one is durably
	// accepted; otherwise the error matches [*SendError], which says of each message
	// whether it was accepted, refused, or is unknown. A message to an unknown queue is
	// refused with [ErrQueueNotFound]. Send checks the messages themselves (limits,
	// abilities that are not claimed) before it transmits any, and refuses the whole
	// call if one is wrong, as it does after [Transport.Close] ([ErrClosed]) and when ctx
	// had ended before. If the broker itself refuses a message for its size, the state is
	// [SendRefused] with [ErrTooLarge]; the engine then tries to move the message in a
	// smaller form. In an outage the messages' errors match [ErrUnavailable]. A message
	// has a Queue or a Topic, and no negative duration. Send takes
	// over the messages' Body: neither side writes to it afterwards. Send keeps no reference
	// to msgs.
	Send(ctx context.Context, msgs ...Outgoing) error

	// OpenReceiver starts to receive from a queue. It returns the errors that waiting cannot
	// fix: a missing queue, refused credentials, a transaction mode that the transport does
	// not have, a [ReceiverConfig.MaxInFlight] below 1. In an outage it waits until ctx
	// ends, and then returns an error that matches [ErrUnavailable] and wraps the cause. ctx
	// applies to the opening alone: the receiver continues after ctx ends.
	OpenReceiver(ctx context.Context, cfg ReceiverConfig) (Receiver, error)

	// Close ends every connection and goroutine of the transport. It is
	// idempotent. Receivers still open are closed. Afterwards every method but
	// [Transport.Capabilities] and [Transport.Address] returns [ErrClosed].
	Close(ctx context.Context) error
}

// Receiver takes deliveries from one queue.
type Receiver interface {
	// Receive blocks until it has at least one delivery or ctx ends, fills 1..len(dst)
	// elements of dst and keeps no reference to dst. n > 0 means err == nil. It may be
	// called by several goroutines at once. When ctx ends, Receive stops waiting, but a
	// fetch in progress is completed, so that no message is lost.
	//
	// A broker outage is not an error: Receive reconnects with back-off and jitter for as
	// long as it takes. An error other than ctx's own is permanent: the engine stops
	// the endpoint with it. After [Receiver.Close] it is [ErrClosed].
	Receive(ctx context.Context, dst []Delivery) (n int, err error)

	// SetMaxInFlight changes the limit of unsettled deliveries of a running receiver,
	// without reconnecting. Deliveries already handed out are not taken back. With 0 (the
	// endpoint is paused, or waits) the receiver fetches no more messages and releases its
	// prefetched deliveries. A receiver whose broker counts releases as attempts
	// ([Guarantees.CountsReleases]) keeps its prefetched deliveries, also when n becomes
	// smaller, and hands them out in [Receiver.Receive]: as many as n allows, or all of them
	// with 0. The engine handles them, or releases them if it must. SetMaxInFlight is called
	// from any goroutine, under a lock of the engine: it must neither block nor call the
	// observer.
	SetMaxInFlight(n int)

	// Close unblocks [Receiver.Receive] with [ErrClosed] and gives every unsettled delivery
	// back. It is idempotent.
	Close(ctx context.Context) error
}

// Provisioner, Checker, Subscriber, Remover and Describer, and those of package queues, are
// optional interfaces of an adapter. A wrapper for any adapter implements all of them, and
// returns an error matching errors.ErrUnsupported if the wrapped transport lacks an interface:
// the engine then treats the wrapper as a transport that does not implement it. A wrapper can
// embed transport.Wrapper.

// Provisioner is implemented by a [Transport] that can create the queues of an endpoint.
type Provisioner interface {
	// Provision creates the missing parts of t. It is idempotent and safe from many
	// instances at once. It never alters or deletes an existing queue: a mismatch is an
	// error that names the queue and both values.
	Provision(ctx context.Context, t Topology) error
}

// Topology lists the queues that an endpoint needs.
type Topology struct {
	// Queues are created if they do not exist. The endpoint receives from InputQueue, and
	// sends to the others: a [Checker] requires more rights for InputQueue than for them.
	Queues []string
	// InputQueue is the element of Queues that the endpoint receives from, or "".
	InputQueue string
	// QueueExpiry is the time without a receiver after which the broker deletes InputQueue
	// ([Config.QueueExpiry]); 0 means never. Provision creates the queue with it. If the
	// broker cannot delete unused queues, Provision and Check return an error that says so
	// and does not match errors.ErrUnsupported.
	QueueExpiry time.Duration
	// Transactions is the mode in which the endpoint receives, or [TransactionDefault] if
	// that is not known. A [Checker] may check requirements of this mode.
	Transactions TransactionMode
}

// Subscriber is implemented by a [Transport] that has [Abilities.PublishSubscribe]. A
// transport that implements it without the capability (because it can be switched off)
// returns errors matching errors.ErrUnsupported.
type Subscriber interface {
	// Subscribe lets queue receive a copy of every message published to each topic. Topic
	// names are compared literally, without patterns. From [Limits.SubscriptionDelay]
	// after it returned, every published message reaches the queue once, as a copy
	// with its own NativeID. Subscribe is idempotent. A queue that does not exist is
	// [ErrQueueNotFound].
	Subscribe(ctx context.Context, queue string, topics ...string) error

	// Unsubscribe ends subscriptions. A subscription that does not exist is no error.
	Unsubscribe(ctx context.Context, queue string, topics ...string) error

	// CheckTopic returns a [*NameError] if a topic cannot have this name, or nil: the
	// check that [Transport.Address] does for queues. It does no I/O. Publish returns its
	// error, [Endpoint.Err] that of a topic of [HandleEvent]; Subscribe and Send refuse such a
	// topic too.
	CheckTopic(topic string) error
}

// Checker is implemented by a [Transport] that can tell before the first message
// whether an endpoint can run.
type Checker interface {
	// Check connects to the broker and verifies the requirements of the transport and that
	// the queues of t exist. A missing queue is named in an error matching
	// [ErrQueueNotFound], and is not created. The error names the problem and the way to fix
	// it.
	Check(ctx context.Context, t Topology) error
}

// Remover is implemented by a [Transport] that can empty and remove queues. The engine
// removes nothing by itself: the owner of a queue or topic asks for it.
type Remover interface {
	// Purge permanently removes the messages that could be delivered from a queue now, and
	// returns their number, or -1 if the broker does not tell it. Messages that a
	// receiver has locked, delayed messages that are not due, other queues and the queue
	// itself are not changed. A message that is sent at the same time may be removed or not.
	// A queue that does not exist is [ErrQueueNotFound].
	Purge(ctx context.Context, queue string) (removed int, err error)

	// Remove permanently removes queues, with their messages and subscriptions, and topics,
	// with all subscriptions to them. The other parts that Provision and Subscribe
	// created for them are removed too; other queues and topics are not changed. One that does
	// not exist is no error. After Remove a queue can be created again, and has no messages and no
	// subscriptions. Delayed messages that a broker stores outside of the queue may stay until
	// they are due, if the adapter's documentation says so. A receiver of a removed queue behaves
	// as if an operator had deleted the queue. A broker may deliver a removed message that a
	// receiver has prefetched. An adapter that cannot find the subscriptions to a topic refuses
	// topics with an error matching errors.ErrUnsupported, before it removes anything.
	Remove(ctx context.Context, queues, topics []string) error
}

// ReceiverConfig configures a [Receiver].
type ReceiverConfig struct {
	// Queue is the name or address of the queue.
	Queue string
	// Mode is one of [Capabilities.Transactions].
	Mode TransactionMode
	// MaxInFlight is the limit of unsettled deliveries, at least 1. In [TransactionNone]
	// there are none, and the receiver hands out as many as Receive asks for.
	MaxInFlight int
	// MaxReceiveBytes bounds the bytes, of headers and bodies, that one Receive fetches from
	// the broker; 0 means no limit. Receive may exceed it by one message, so that a larger
	// message is still delivered. An adapter cannot obey it if its broker does not tell
	// sizes beforehand, or pushes messages, as RabbitMQ does.
	MaxReceiveBytes int
	// MaxDeliveries is the engine's limit of deliveries of one copy of a message; 0 means no
	// limit. A broker's own limit must be above it, or [Transport.OpenReceiver] returns an
	// error with the command that fixes it. From a queue that keeps groups, where a
	// delayed retry makes no new copy, it counts the deliveries of all rounds.
	MaxDeliveries int
	// ConnectionChanged reports outages and their end. MessageUndeliverable reports
	// delayed messages that the adapter stores itself and cannot put into their queue when
	// they are due. The adapter calls them from any goroutine, and they do not block.
	// Either may be nil.
	ConnectionChanged    func(ConnectionChange)
	MessageUndeliverable func(Undeliverable)
	// Warn reports a problem that only a received message shows, such as a delay that its sender
	// has no right to ask for, in one sentence with its fix and without secrets. The endpoint logs it at
	// once, so the adapter calls Warn once for each kind of problem. Without it the text is
	// among the [Describer]'s Warnings.
	Warn func(text string)
	// ErrorQueue is the name or address of the endpoint's error queue: a delayed message
	// that an adapter stores itself and cannot put into its queue finally goes there.
	// If ErrorQueue is empty, the message stays stored.
	ErrorQueue string
}

// Describer is implemented by a [Transport] that states facts about itself. Its methods do
// no I/O. An adapter without one of these facts embeds transport.Undescribed.
type Describer interface {
	// Describe describes the connection for telemetry. It returns the same for the
	// [Transport]'s whole life, or the zero value if that is not known.
	Describe() TransportInfo

	// Warnings returns the problems that operators should know and their fixes, one sentence
	// each and without secrets, or nil: risky settings which do not prevent the transport
	// from working, such as connections that do not verify the server. Each warning is
	// returned once, also if several endpoints share the transport. [New] logs each as a
	// warning, and [Endpoint.Run] those that Provision, Check, Subscribe and OpenReceiver have
	// added.
	Warnings() []string

	// KeepsGroups reports whether the queue with this name or address keeps groups in order,
	// if it exists, on a transport that has [Abilities.GroupOrder]. For the name "" it
	// reports whether all queues do. The answer is the same for the [Transport]'s whole life.
	KeepsGroups(queue string) bool
}

// TransportInfo describes a transport for telemetry. It has no secrets: no user, and no
// part of a URL but host and port.
type TransportInfo struct {
	// System is the messaging system, as the attribute messaging.system of OpenTelemetry
	// names it: "rabbitmq", "aws_sqs", "servicebus"; for a database as db.system.name:
	// "postgresql"; for others a name in the same style.
	System string
	// ServerAddress is the host of the broker, or the first of several, or "" if there is
	// none or it is not known.
	ServerAddress string
	// ServerPort is the port there, or 0.
	ServerPort int
}

// TransactionBegun is called by an adapter with [Abilities.AtomicLeases] when the native
// transaction of a message begins, with the context in which it was requested. The message
// then keeps its slot until it is settled: an endpoint has no more transactions than slots.
// With any other context it does nothing.
func TransactionBegun(ctx context.Context) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.transactionBegun.Store(true)
	}
}

// ReportNoSubscriber is called by an adapter when an accepted message to a topic reached no
// queue. ctx is that of the send or the settlement. The endpoint logs the first one of each
// topic, and counts all. Without an endpoint it does nothing.
func ReportNoSubscriber(ctx context.Context, out *Outgoing) {
	if u, ok := ctx.Value(unsubscribedKey{}).(*unsubscribedEvents); ok {
		u.report(ctx, out)
	}
}

// ReportUnreachableSubscriber is called by an adapter for each subscriber that does not get an
// accepted message to a topic, because its queue does not exist or refuses the message (C19).
// queue is the queue's address, as far as it is known. ctx is that of the send or the settlement.
// The endpoint logs the first one of each subscription, counts all, and calls
// [Observer.MessageUndeliverable]. Without an endpoint it does nothing.
func ReportUnreachableSubscriber(ctx context.Context, out *Outgoing, queue string, err error) {
	if u, ok := ctx.Value(unsubscribedKey{}).(*unsubscribedEvents); ok {
		u.reportUnreachable(ctx, out, queue, err)
	}
}

// undescribed answers for a transport that is no Describer.
type undescribed struct{}

func (undescribed) Describe() (none TransportInfo) { return none }
func (undescribed) Warnings() []string             { return nil }
func (undescribed) KeepsGroups(string) bool        { return true }

// describerOf returns the transport's Describer.
func describerOf(t Transport) Describer {
	if d, ok := t.(Describer); ok {
		return d
	}
	return undescribed{}
}

// describeTransport returns nil if the transport does not describe itself.
func describeTransport(t Transport) *TransportInfo {
	info := describerOf(t).Describe()
	if info == (TransportInfo{}) {
		return nil
	}
	return &info
}
