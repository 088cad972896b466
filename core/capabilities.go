// For authors of adapters. This file has the facts that an adapter declares about its
// broker.

package core

import (
	"fmt"
	"slices"
	"time"
)

// Capabilities lists the abilities, limits and guarantees of a transport. The zero value
// is the least able transport. Package conformance checks that the fields agree with the
// optional interfaces and with the transport's behaviour.
type Capabilities struct {
	// Transactions lists the modes that [Transport.OpenReceiver] accepts. No mode implies
	// another.
	Transactions []TransactionMode

	Abilities
	Limits
	Guarantees
}

// Abilities are the operations of which a transport may be capable. The engine does not
// ask for one that is not claimed, and an adapter refuses it.
type Abilities struct {
	// DelayedDelivery: [Outgoing.Delay] works.
	DelayedDelivery bool
	// PublishSubscribe: [Outgoing.Topic] works and the [Transport] is a [Subscriber].
	PublishSubscribe bool
	// BaseTopics: [Outgoing.BaseTopics] works. Without it an event reaches the
	// subscribers to its own topic alone. It needs PublishSubscribe.
	BaseTopics bool
	// TimeToBeReceived: [Outgoing.TimeToBeReceived] works.
	TimeToBeReceived bool
	// DeadLetter: the broker has its own dead-letter queue, and [Delivery.DeadLetter] works.
	DeadLetter bool
	// Savepoints: in [TransactionSendsAtomicWithReceive] a part of the work done through
	// [Delivery.BindContext] can be undone alone, and [Delivery.Savepoint] works.
	Savepoints bool
	// GroupOrder: there are queues that keep groups ([Describer.KeepsGroups]). From such a
	// queue the messages with one GroupKey, unless it is empty, come in the order in
	// which they were sent, and one at a time: the next when the one before it has been
	// consumed, or has expired. A message that is given back by any means is redelivered
	// before later messages of its group, and [Delivery.Postpone] works. A delayed
	// message takes its place when it is due. In [TransactionNone], in which no message is
	// given back, messages come in order, but without waiting for each other.
	GroupOrder bool
	// Prefetch: deliveries are leased, so that the engine may fetch more of them than it has
	// free slots. It does not apply to [TransactionSendsAtomicWithReceive] without
	// AtomicLeases.
	Prefetch bool
	// AtomicLeases: in [TransactionSendsAtomicWithReceive] a delivery is leased as in
	// [TransactionReceiveOnly]. It takes no connection before the native transaction is
	// first used, which the adapter reports to the engine ([TransactionBegun]). With
	// NativeDeliveryCount, a delivery that ended with its process is counted.
	AtomicLeases bool
	// Browse: the [Transport] is a Browser of package queues.
	Browse bool
	// Take: the [Transport] is a Taker of package queues.
	Take bool
}

// Limits are the limits of a transport. Zero means that there is none.
type Limits struct {
	// MaxDelay is the longest [Outgoing.Delay] that the transport accepts. Zero accepts
	// years too.
	MaxDelay time.Duration
	// DelayPrecision is how much later than due a delayed message may arrive
	// on an idle system; more than 0 with DelayedDelivery. It is never early.
	DelayPrecision time.Duration
	// SubscriptionDelay is the longest time between the return of Subscribe and the start of
	// the subscription.
	SubscriptionDelay time.Duration
	// DeliveryCountLag is the longest time for which the broker may keep a change of a
	// [Incoming.DeliveryCount] in memory alone. If the broker dies (kill -9, not a power
	// failure), newer changes are lost and those messages are attempted more often. With
	// NativeDeliveryCount and Durable, 0 means that no change is lost.
	DeliveryCountLag time.Duration
	// MaxLockTime is the longest time that a delivery may stay unsettled, renewals included:
	// after it the broker redelivers the message, even if [Delivery.LockedUntil] is later.
	// The engine gives a message back well before that.
	MaxLockTime time.Duration
	// MaxReceiveBatch is the most deliveries that one Receive can return.
	MaxReceiveBatch int
	// MaxUnsettled is the most deliveries of one queue that may be unsettled at a time, at
	// all receivers together: the broker then delivers no more.
	MaxUnsettled int

	// MaxQueueName and MaxTopicName are the lengths of the longest names of a queue and a
	// topic, as the broker counts: in bytes or in characters, which are the same for a name
	// in ASCII. A longer name is refused with a [*NameError].

	// MaxQueueName is the length of the longest name of a queue.
	MaxQueueName int
	// MaxTopicName is the length of the longest name of a topic.
	MaxTopicName int

	// MaxMessageBytes, MaxHeaderBytes and MaxHeaderKeyBytes limit the messages of
	// applications. A copy that the engine makes of a received message ([SendReason.IsCopy])
	// is refused only if the broker would refuse it (C10).

	// MaxMessageBytes bounds body and headers together.
	MaxMessageBytes int
	// MaxHeaderBytes bounds all header keys and values together.
	MaxHeaderBytes int
	// MaxHeaderKeyBytes bounds one header key.
	MaxHeaderKeyBytes int
}

// Guarantees are facts about deliveries and settlements that the engine relies on.
type Guarantees struct {
	// NativeDeliveryCount: [Incoming.DeliveryCount] is durable and shared by all instances,
	// exactly when this is set. Without it an adapter counts in the memory of its
	// process, and attempts multiply by the number of instances. A delivery that ended with
	// its process counts too, but need not in [TransactionSendsAtomicWithReceive] without
	// AtomicLeases, where a crash may roll it back.
	NativeDeliveryCount bool
	// Durable: sent messages survive a restart of the broker.
	Durable bool
	// CountsReleases: [Incoming.DeliveryCount] also rises when a message that has not failed
	// is given back, as by Release. So that each attempt counts once, the engine then
	// releases messages only at a shutdown or when all handlers hang. It needs
	// NativeDeliveryCount.
	CountsReleases bool
	// ConfirmsSettlement: a settlement that returned nil took effect.
	ConfirmsSettlement bool
	// MayDuplicate: the broker itself may deliver a message twice.
	MayDuplicate bool
}

// Supports reports whether Transactions lists mode.
func (c Capabilities) Supports(mode TransactionMode) bool {
	return slices.Contains(c.Transactions, mode)
}

// HighestTransaction returns the most protective mode of Transactions, or
// [TransactionDefault] if there is none.
func (c Capabilities) HighestTransaction() TransactionMode {
	if len(c.Transactions) == 0 {
		return TransactionDefault
	}
	return slices.Max(c.Transactions)
}

// TransactionMode says which of receiving, handling and sending are committed together.
type TransactionMode int

const (
	// TransactionDefault in a [Config] means the highest mode that the transport
	// has. A transport never lists it.
	TransactionDefault TransactionMode = iota

	// TransactionNone consumes a message before its handler runs. A failure
	// cannot give it back: there are no retries, and a crash loses it.
	TransactionNone

	// TransactionReceiveOnly consumes a message after its handler succeeded and
	// its outgoing messages were sent. A crash in between repeats both.
	TransactionReceiveOnly

	// TransactionSendsAtomicWithReceive (sends atomic with receive) commits the receive, the
	// outgoing messages and the handler's work in the native transaction together, or none
	// of them.
	TransactionSendsAtomicWithReceive
)

// String returns the mode's name as a configuration file writes it.
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

// isAtomic reports whether a message's sends and settlement are one transaction.
func (m TransactionMode) isAtomic() bool { return m == TransactionSendsAtomicWithReceive }
