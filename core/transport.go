package core

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// This file is the seam: what an adapter implements. The engine owns time
// (goroutines, slots, retries, back-off, rate limiting, lock renewal, drain);
// an adapter translates: it fetches, settles, sends, and says what it can do.
//
// The C-numbers name the rules of the contract, which package conformance
// checks.

// Transport connects endpoints to one messaging system. It is safe for
// concurrent use, and any number of endpoints may share one. Whoever opened it
// closes it, after the endpoints that use it.
type Transport interface {
	// Capabilities says what the transport can do. The answer is the same for
	// the Transport's whole life, and true (C1): a claimed ability works, an
	// unclaimed one is refused with an error matching errors.ErrUnsupported
	// before anything is sent.
	Capabilities() Capabilities

	// Address returns the canonical form of a queue's name: what the headers
	// FailedQ and ReplyToAddress carry. It is idempotent, does no I/O, and
	// refuses a name that the broker would not accept.
	Address(queue string) (string, error)

	// Send hands messages to the broker. It returns nil only when every one is
	// durably accepted (C2); otherwise the error matches *SendError, which says
	// of each message whether it was accepted, refused, or is unknown. A message
	// to an unknown queue is refused with ErrQueueNotFound. What can be wrong
	// with a message itself, an ability that is not claimed or a limit, is
	// checked before anything is on the wire (C10): then all of the call is
	// refused, as it is after Close (ErrClosed) and when ctx had ended before. A
	// broker's own refusal of a message for its size is SendRefused with ErrTooLarge:
	// the engine then tries smaller forms of a message that it moves.
	// A message has a Queue or a Topic, and no negative duration. Send takes over
	// the messages' Body: neither side writes it afterwards. It keeps no
	// reference to msgs itself.
	Send(ctx context.Context, msgs ...Outgoing) error

	// OpenReceiver starts to receive from a queue. What waiting cannot mend (a
	// missing queue, refused credentials, a transaction mode that the transport
	// does not have, a MaxInFlight below 1) is returned here. In an outage it waits, until
	// ctx ends, or returns ErrUnavailable (C15). ctx is for opening alone: the receiver goes
	// on when it ends.
	OpenReceiver(ctx context.Context, cfg ReceiverConfig) (Receiver, error)

	// Close ends every connection and goroutine of the transport (C14). It is
	// idempotent. Receivers still open are closed. Afterwards every method but
	// Capabilities and Address returns ErrClosed.
	Close(ctx context.Context) error
}

// Receiver takes deliveries from one queue.
type Receiver interface {
	// Receive blocks until it has at least one delivery or ctx ends, fills
	// 1..len(dst) elements of dst and keeps no reference to dst. n > 0 means
	// err == nil. It may be called by several goroutines at once. The end of
	// ctx ends the waiting, not a fetch under way: no message is lost by it
	// (C3).
	//
	// A broker outage is not an error: Receive reconnects with back-off and
	// jitter for as long as it takes (C15). An error other than ctx's own is
	// permanent: the engine stops the endpoint with it. After Close it is
	// ErrClosed.
	Receive(ctx context.Context, dst []Delivery) (n int, err error)

	// SetMaxInFlight changes how many unsettled deliveries the receiver may
	// hold, live and without reconnecting. Deliveries already handed out are
	// not taken back. With 0 (the endpoint is paused, or waits) it fetches nothing
	// more, and releases the deliveries that it has prefetched. A receiver whose broker
	// counts them as attempts (CountsReleases) keeps those, also where n became
	// smaller, and hands them out in Receive, as n allows or all of them with 0: the
	// engine handles them, or releases them where that must be. It is called from any
	// goroutine, under a lock of the engine: it must neither block nor call the
	// observer.
	SetMaxInFlight(n int)

	// Close unblocks Receive with ErrClosed and gives every unsettled delivery
	// back (C14). It is idempotent.
	Close(ctx context.Context) error
}

// Delivery is one message, locked for this receiver until it is settled or its
// lock is lost. It is settled exactly once, by Complete, Abandon, Release, Postpone,
// CompleteWith, ReplaceWith or DeadLetter: a second settlement is ErrSettled and
// changes nothing (C5), a settlement after the lock was lost, or its receiver
// closed, is ErrLockLost (C6) and changes nothing for the receiver that has the
// message by then. A settlement that failed with any other error left the
// delivery unsettled, as far as the adapter can tell; another may be tried. Where
// ctx has ended it happens wholly or not at all, and nil says that it did.
//
// Every delivery has every method, so that a wrapper is one type. A method for an
// ability that the transport does not claim, or that the receiver's mode does not
// have, returns an error matching errors.ErrUnsupported and changes nothing: the
// delivery is still unsettled (C1). An adapter embeds UnsupportedDelivery of package
// transport, which has these methods.
//
// Settlements are never called concurrently for one delivery, but are for
// different ones. Renew may run while its delivery is being settled.
type Delivery interface {
	// Incoming returns the message. It is the same pointer at every call, and
	// neither side writes to the message.
	Incoming() *Incoming

	// Complete consumes the message: it is never delivered again (C7). In
	// TransactionNone the message is gone already, and Complete, Abandon and
	// Release do nothing but to count as the one settlement.
	Complete(ctx context.Context) error

	// Abandon gives back a message whose handling failed: it is available at
	// once, at no particular position, with a DeliveryCount one higher (C8).
	// The cause may be nil. Its text, of any length and content, may be kept for
	// the next delivery's LastError. Where the broker cannot note the failure in the
	// count, the message is given back as it was, with an error that matches
	// ErrLockLost and ErrUncounted.
	Abandon(ctx context.Context, cause error) error

	// Release gives back a message that has not failed: it is available at
	// once, and its DeliveryCount is unchanged unless CountsReleases (C8).
	Release(ctx context.Context) error

	// Postpone gives back a message of a group from a queue that keeps groups
	// (Capabilities.GroupOrder), to be available after a delay, which may be 0 (C24). It is
	// never early, and late by DelayPrecision at most; no later message of its group is
	// delivered before. With a cause it counts as Abandon does, without one as
	// Release does. A delay that would keep it for longer than MaxLockTime, counted from
	// the delivery, is an error matching errors.ErrUnsupported.
	Postpone(ctx context.Context, delay time.Duration, cause error) error

	// The methods of TransactionSendsAtomicWithReceive (C12), in which Abandon
	// and Release undo the work done through BindContext, and Complete commits it.

	// BindContext returns a context that carries the native transaction, for
	// the handler. Without one it returns ctx itself.
	BindContext(ctx context.Context) context.Context

	// CompleteWith commits the work done through BindContext, sends out and
	// consumes the message: all or nothing. It takes over out and the bodies
	// in it. Where messages were refused, its error matches *SendError, as
	// that of Send does, in which every message is refused; ReplaceWith's too.
	// Where the handler's work has broken the transaction it is an error, like
	// Complete, and the delivery is still held.
	CompleteWith(ctx context.Context, out []Outgoing) error

	// Reset undoes the work done through BindContext, also when that has
	// broken the transaction, and keeps the lock. The context that BindContext
	// returned stays usable.
	Reset(ctx context.Context) error

	// Savepoint marks the state of the work done through BindContext. rollback undoes
	// the work done since, also where that has broken the transaction, and keeps what
	// was done before; the context that BindContext returned stays usable. It may be
	// called several times, until an earlier savepoint is rolled back, Reset or a
	// settlement: then it is an error and changes nothing. After any other error of
	// rollback, as after a broken connection, the work cannot be committed before a
	// Reset. It is not called at the same time as a settlement or Reset. Without
	// Capabilities.Savepoints it is unsupported.
	Savepoint(ctx context.Context) (rollback func(ctx context.Context) error, err error)

	// ReplaceWith undoes all work done through BindContext, sends out and
	// consumes the message, atomically. It takes over out and the bodies in it.
	ReplaceWith(ctx context.Context, out []Outgoing) error

	// The methods of a lock that ends by itself (C17). The engine renews every
	// delivery that it has, started or not.

	// LockedUntil returns when the lock ends, by the clock of this process. The
	// zero time means that it does not end by itself; such a delivery is not
	// renewed.
	LockedUntil() time.Time

	// Renew moves LockedUntil forward, but not beyond MaxLockTime, or returns
	// ErrLockLost; after the settlement it may return ErrSettled as well. With any
	// other error, as that of ctx, the lock is as it was. ctx ends with the lock.
	Renew(ctx context.Context) error

	// DeadLetter moves the message with reason, description and headers to the
	// broker's own dead-letter queue and consumes it, atomically (C22). Any text will
	// do; of a long one the beginning is kept. Headers that are more than the broker
	// takes are ErrTooLarge, or ErrInvalidHeader, and the delivery is still unsettled.
	// In TransactionSendsAtomicWithReceive it commits the work done through
	// BindContext since the last Reset. In TransactionNone, where the broker
	// has the message no more, it may be unsupported.
	DeadLetter(ctx context.Context, letter DeadLetter) error
}

// Provisioner, Subscriber, Checker, Purger, Warner, TopicChecker, GroupKeeper and Describer are abilities that an adapter has
// or has not. A wrapper of any adapter implements all of them, and returns an error matching
// errors.ErrUnsupported where the wrapped one lacks an interface: the engine takes
// that for a transport that does not implement it. transport.Wrapper is one to embed.

// Provisioner is implemented by a Transport that can create the queues of an
// endpoint.
type Provisioner interface {
	// Provision creates what is missing of t. It is idempotent and safe from
	// many instances at once. It never alters or deletes what exists: a
	// mismatch is an error that names the queue and both values (C18).
	Provision(ctx context.Context, t Topology) error
}

// Topology is what an endpoint needs to exist.
type Topology struct {
	// Queues are created if they do not exist. The endpoint receives from InputQueue and
	// InstanceQueue, and sends to the others.
	Queues []string
	// InputQueue is the one of Queues that all instances of the endpoint receive from, or
	// "".
	InputQueue string
	// InstanceQueue is the one of Queues that a single instance of the endpoint
	// receives from (Config.InstanceQueue), or "". Where a broker can delete a
	// queue by itself, it is created so that this happens some time, which the
	// adapter documents, after its last receiver left: no other instance
	// receives from it.
	InstanceQueue string
	// Transactions is the mode in which the endpoint receives, or TransactionDefault
	// where that is not known. A Checker may ask for what only this mode needs.
	Transactions TransactionMode
}

// ReceivesFrom reports whether the endpoint receives from a queue, as it is named in
// Queues: a Checker then asks for more than to send to it.
func (t Topology) ReceivesFrom(queue string) bool {
	return queue != "" && (queue == t.InputQueue || queue == t.InstanceQueue)
}

// Subscriber is implemented by a Transport that has PublishSubscribe. One that
// implements it without the capability (because it can be switched off) returns
// errors matching errors.ErrUnsupported.
type Subscriber interface {
	// Subscribe lets queue receive a copy of what is published to each topic, a
	// name that is compared as it is, without patterns.
	// From Capabilities.SubscriptionDelay after it returned, every published message
	// reaches the queue once (C19), as a copy with a NativeID of its own. It is
	// idempotent. A queue that does not exist is ErrQueueNotFound.
	Subscribe(ctx context.Context, queue string, topics ...string) error

	// Unsubscribe ends that. Unsubscribing what is not subscribed is no error.
	Unsubscribe(ctx context.Context, queue string, topics ...string) error
}

// Checker is implemented by a Transport that can tell before the first message
// whether an endpoint can run.
type Checker interface {
	// Check reaches the broker and verifies what the transport relies on, and
	// that the queues of t exist: one that does not is named in an error
	// matching ErrQueueNotFound, and not created. Its error says what is wrong
	// and how to mend it.
	Check(ctx context.Context, t Topology) error
}

// Purger is implemented by a Transport that can empty a queue.
type Purger interface {
	// Purge removes the messages that could be delivered from a queue now, for ever,
	// and returns how many there were, or -1 if the broker does not tell (C23). Messages that
	// a receiver has, delayed ones that are not due, other queues and the queue itself
	// stay as they are. What is sent at the same time is removed or not. A queue that does
	// not exist is ErrQueueNotFound.
	Purge(ctx context.Context, queue string) (removed int, err error)
}

// Warner is implemented by a Transport that can work as it is configured, and should not:
// its connections do not verify the server, for example.
type Warner interface {
	// Warnings returns what operators should know and how to fix it, one sentence each and
	// without secrets, or nil. It does no I/O. Several endpoints may share a transport:
	// what it returned once it does not return again. [New] logs each as a warning,
	// and Run those that Provision, Check, Subscribe and OpenReceiver have added.
	Warnings() []string
}

// TopicChecker is implemented by a Transport whose broker does not have topics of all
// names, as every Transport's Address does for queues.
type TopicChecker interface {
	// CheckTopic returns an error that says why there cannot be a topic of this name, or
	// nil. It does no I/O. Publish returns its error, [Endpoint.Err] that of a topic of
	// [HandleEvent]; Subscribe and Send refuse such a topic too.
	CheckTopic(topic string) error
}

// GroupKeeper is implemented by a Transport that has GroupOrder for some queues only. Without
// it all queues keep groups.
type GroupKeeper interface {
	// KeepsGroups reports whether the queue with this name or address keeps groups in order,
	// if it exists. The answer is the same for the Transport's whole life. It does no I/O.
	KeepsGroups(queue string) bool
}

// TransactionMode says how receiving, handling and sending hang together.
type TransactionMode int

const (
	// TransactionDefault in a Config means the highest mode that the transport
	// has. A transport never lists it.
	TransactionDefault TransactionMode = iota

	// TransactionNone consumes a message before its handler runs. A failure
	// cannot give it back: there are no retries, and a crash loses it.
	TransactionNone

	// TransactionReceiveOnly consumes a message after its handler succeeded and
	// its outgoing messages were sent. A crash in between repeats both.
	TransactionReceiveOnly

	// TransactionSendsAtomicWithReceive (sends atomic with receive) commits the receive, the
	// outgoing messages and what the handler did in the native transaction
	// together, or none of them.
	TransactionSendsAtomicWithReceive
)

// String returns the mode's name as configuration files write it.
func (m TransactionMode) String() string {
	switch m {
	case TransactionDefault:
		return "Default"
	case TransactionNone:
		return "None"
	case TransactionReceiveOnly:
		return "ReceiveOnly"
	case TransactionSendsAtomicWithReceive:
		return "SendsAtomicWithReceive"
	default:
		return fmt.Sprintf("TransactionMode(%d)", int(m))
	}
}

// MarshalText writes the mode's name.
func (m TransactionMode) MarshalText() ([]byte, error) {
	if m < TransactionDefault || m > TransactionSendsAtomicWithReceive {
		return nil, fmt.Errorf("core: there is no %v", m)
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads the name that String writes.
func (m *TransactionMode) UnmarshalText(text []byte) error {
	for mode := TransactionDefault; mode <= TransactionSendsAtomicWithReceive; mode++ {
		if mode.String() == string(text) {
			*m = mode
			return nil
		}
	}
	return fmt.Errorf("unknown transaction mode %q; use None, ReceiveOnly, SendsAtomicWithReceive or Default", text)
}

// Capabilities says what a transport can do and what to expect of it. The zero
// value is the least able transport. The suite proves that the fields agree
// with the optional interfaces and with what happens.
type Capabilities struct {
	// Transactions lists the modes that OpenReceiver accepts. One does not
	// imply another.
	Transactions []TransactionMode

	// DelayedDelivery: Outgoing.Delay works (C13).
	DelayedDelivery bool

	// NativeDeliveryCount: Incoming.DeliveryCount is durable and shared by all
	// instances (C9), exactly when this is set. Without it an adapter counts in
	// the memory of its process, and attempts multiply by the number of
	// instances. A delivery that ended with its process counts too, but need not
	// in TransactionSendsAtomicWithReceive without AtomicLeases, where a crash may roll it
	// back (R34).
	NativeDeliveryCount bool

	// PublishSubscribe: Outgoing.Topic works and the Transport is a Subscriber.
	PublishSubscribe bool

	// BaseTopics: Outgoing.BaseTopics works (C19). Without it an event reaches the
	// subscribers to its own topic alone. It needs PublishSubscribe.
	BaseTopics bool

	// TimeToBeReceived: Outgoing.TimeToBeReceived works (C20).
	TimeToBeReceived bool

	// DeadLetter: the broker has a dead-letter queue of its own, and
	// Delivery.DeadLetter works.
	DeadLetter bool

	// Savepoints: in TransactionSendsAtomicWithReceive a part of the work done through
	// BindContext can be undone alone, and Delivery.Savepoint works (C12).
	Savepoints bool

	// GroupOrder: there are queues that keep groups (all, or those of GroupKeeper). From such
	// a queue the messages with one GroupKey, unless it is empty, come in the order in
	// which they were sent, and one at a time: the next when the one before it has been consumed,
	// or has expired. One that is given back, by whatever means, is redelivered before those that
	// follow it, and Delivery.Postpone works (C24). A delayed message takes its place when it is due. It
	// does not concern TransactionNone, where nothing is given back: there they come
	// in order, but without waiting for each other.
	GroupOrder bool

	// Limits. Zero means none.

	// MaxDelay is the longest Outgoing.Delay. Without it any will do, years too.
	MaxDelay time.Duration
	// DelayPrecision is how much later than due a delayed message may arrive
	// on an idle system; more than 0 with DelayedDelivery. It is never early.
	DelayPrecision time.Duration
	// SubscriptionDelay is how long after Subscribe returned a subscription is sure
	// to be in force.
	SubscriptionDelay time.Duration
	// DeliveryCountLag is how long a broker that dies (kill -9, not a power failure) may
	// have kept a change of a DeliveryCount in memory alone: counts that are newer are
	// lower after its restart, and a message is attempted more often then. 0 with
	// NativeDeliveryCount and Durable: it forgets none.
	DeliveryCountLag time.Duration
	// MaxLockTime is how long one delivery may be kept unsettled at most, renewals
	// included: then the broker redelivers the message, whatever LockedUntil said.
	// The engine gives a message back well before that.
	MaxLockTime time.Duration
	// MaxReceiveBatch is the most deliveries that one Receive can return.
	MaxReceiveBatch int

	// MaxMessageBytes, MaxHeaderBytes and MaxHeaderKeyBytes are for what applications
	// send. A copy that the engine makes of a received message ([SendReason.IsCopy]) is
	// refused only where the broker would refuse it (C10).

	// MaxMessageBytes bounds body and headers together.
	MaxMessageBytes int
	// MaxHeaderBytes bounds all header keys and values together.
	MaxHeaderBytes int
	// MaxHeaderKeyBytes bounds one header key.
	MaxHeaderKeyBytes int

	// What to expect of it.

	// Durable: what was sent survives a restart of the broker.
	Durable bool
	// CountsReleases: DeliveryCount also rises on returns that were no
	// failure, Release among them. The engine then gives nothing back while it runs, so
	// that each attempt counts once, but at a shutdown, or when all handlers hang. It is
	// said of a NativeDeliveryCount.
	CountsReleases bool
	// ConfirmsSettlement: a settlement that returned nil did happen.
	ConfirmsSettlement bool
	// MayDuplicate: the broker itself may deliver a message twice.
	MayDuplicate bool
	// Prefetch: deliveries are leased, so that the engine may hold unstarted ones
	// beyond its free slots. It does not concern TransactionSendsAtomicWithReceive without
	// AtomicLeases.
	Prefetch bool
	// AtomicLeases: in TransactionSendsAtomicWithReceive a delivery is leased as in
	// TransactionReceiveOnly. It takes no connection before something asks for the native
	// transaction (C12), of which the adapter tells the engine (TransactionBegun), and with a
	// NativeDeliveryCount one that ended with its process is counted (R34).
	AtomicLeases bool
}

// Supports reports whether Transactions lists mode.
func (c Capabilities) Supports(mode TransactionMode) bool {
	return slices.Contains(c.Transactions, mode)
}

// HighestTransaction returns the most protective mode of Transactions, or
// TransactionDefault if there is none.
func (c Capabilities) HighestTransaction() TransactionMode {
	if len(c.Transactions) == 0 {
		return TransactionDefault
	}
	return slices.Max(c.Transactions)
}

// ReceiverConfig says what to receive and how.
type ReceiverConfig struct {
	// Queue is the name or address of the queue.
	Queue string
	// Mode is one of Capabilities.Transactions.
	Mode TransactionMode
	// MaxInFlight is how many unsettled deliveries the receiver may hold, at
	// least 1. In TransactionNone it holds none, and hands out what it is asked
	// for.
	MaxInFlight int
	// MaxReceiveBytes bounds the bytes, of headers and bodies, that one Receive fetches
	// from the broker; 0 is without bound. One message more may be fetched, so that a
	// message which is larger is still delivered. An adapter whose broker does not tell
	// sizes beforehand, or sends by itself, as RabbitMQ does, cannot obey it.
	MaxReceiveBytes int
	// MaxDeliveries is how often the engine lets one copy of a message be
	// delivered; 0 is without limit. A broker's own limit must be above it, or
	// OpenReceiver returns an error with the command that fixes it (R34). From a queue that
	// keeps groups, where a delayed retry makes no new copy, it counts those of all rounds.
	MaxDeliveries int
	// ConnectionChanged is told of outages and their end (C15), and MessageUndeliverable of
	// delayed messages that cannot be put into their queue when they are due, by an adapter
	// that stores them itself (C13). An adapter calls them from any goroutine, and is not held
	// up. Either may be nil.
	ConnectionChanged    func(ConnectionChange)
	MessageUndeliverable func(Undeliverable)
	// ErrorQueue is the name or address of the endpoint's error queue: a delayed
	// message that an adapter stores itself and cannot put into its queue goes
	// there in the end (C13). It may be empty; then the message stays stored.
	ErrorQueue string
}
