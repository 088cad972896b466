// Package queues has the optional interfaces of a transport through which a tool lists queues,
// counts their messages, looks at them and takes some of them, all without a receiver.
//
// These comments are the contract of an adapter, as those of [core.Transport] are. An adapter
// implements those that its broker can serve. A wrapper for any adapter implements all of them, and
// returns an error matching errors.ErrUnsupported if the wrapped transport lacks an interface;
// transport.Wrapper does that. All methods are safe for concurrent use, and return
// [core.ErrClosed] after Close of the transport, and an error matching [core.ErrUnavailable] in
// an outage.
package queues

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Browser is implemented by a [core.Transport] that has Browse among its [core.Abilities]: its
// queues can be read without receiving.
type Browser interface {
	// Browse returns a page of the messages of a queue: waiting, delayed and locked ones. It
	// changes nothing: no lock, no count, no order, no due time, nothing that a receiver could
	// see (C30). A message that is in the queue from the first page to the last is returned
	// exactly once; one that arrives, leaves or comes back during the look, at most
	// once (C31). A queue that does not exist is [core.ErrQueueNotFound].
	Browse(ctx context.Context, r Request) (Page, error)
}

// Request asks a [Browser] for a page.
type Request struct {
	// Queue is a name or address, also of the broker's own dead-letter queue.
	Queue string
	// After is the Next of an earlier page of this queue, or "" for the first page. It stays
	// usable when its message has left the queue, in another process, and after a restart of
	// the broker. Any other text is an error (C32).
	After string
	// Limit is the most messages of the page, at least 1. A page may have fewer, and is
	// empty only if nothing follows.
	Limit int
	// MaxBytes bounds the bytes of headers and bodies, which a page may exceed by one
	// message; 0 means 16 MiB.
	MaxBytes int
	// WithoutBody leaves Body nil; BodyBytes has its size.
	WithoutBody bool
	// Keys asks for the messages with these keys instead of a range: at most Limit keys, and no
	// After. Those that have left the queue are missing, and so is a text that is no key. If
	// the messages are more than MaxBytes allows, there is no page, but an error.
	Keys []string
}

// Page is a part of a queue.
type Page struct {
	// Messages belong to the caller. Their order is that of the queue, as far as it has one.
	Messages []Message
	// Next continues the look ([Request.After]). It is "" on the last page, and where
	// keys were asked for.
	Next string
}

// Message is a message that was looked at.
type Message struct {
	// Incoming is as the next delivery would have it, with the same NativeID or Malformed
	// (C33), but for DeliveryCount: it is that until now, so 0 before the first delivery, and
	// 0 if the transport has no [core.Guarantees.NativeDeliveryCount].
	core.Incoming
	// Key names this stored copy in its queue; no other copy ever has it.
	Key string
	// State says whether a receiver could get the message now.
	State State
	// DueAt is when a delayed message is due, or the zero time.
	DueAt time.Time
	// BodyBytes is the size of the body.
	BodyBytes int
}

// State is the state of a message in its queue.
type State int

const (
	// Ready is a message that waits for a receiver.
	Ready State = iota
	// Locked is a message that a receiver has. If the broker does not tell that, it is Ready,
	// and [Depth.Locked] is -1.
	Locked
	// Delayed is a message that is not due.
	Delayed
	// Parked is a message that the broker delivers only to a receiver that asks for it by its
	// key, such as a deferred one of Azure Service Bus.
	Parked
)

var states = [...]string{"ready", "locked", "delayed", "parked"}

// String returns the state in a word.
func (s State) String() string {
	if s >= 0 && int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Taker is implemented by a [core.Transport] that has Take among its [core.Abilities]: single
// messages can be replaced atomically.
type Taker interface {
	// Take consumes messages by key, whether they are ready or delayed, and sends their
	// replacements in one step: each message is consumed exactly if its Out was accepted,
	// also if this process or the broker dies (C34). It waits for no receiver. Messages are
	// independent of each other: one that is gone, locked or refused prevents no other
	// (C35). The results are in the order of takes. With an error, the states of the messages
	// without a result are unknown. A queue that does not exist is [core.ErrQueueNotFound].
	Take(ctx context.Context, queue string, takes []Take) ([]TakeResult, error)
}

// Take names a message to take, and its replacements.
type Take struct {
	// Key is the [Message.Key]. With a NativeID that is not "", a copy with another one is
	// not taken, and counts as gone.
	Key, NativeID string
	// Out is sent instead of the message, to any queue. Without it the message is removed.
	Out []core.Outgoing
}

// TakeResult is the result of one [Take].
type TakeResult struct {
	State TakeState
	// Err is why the message was refused.
	Err error
}

// TakeState is the outcome of one [Take].
type TakeState int

const (
	// TakeUnknown: the message may have been taken or not.
	TakeUnknown TakeState = iota
	// TakeDone: the message was consumed, and its replacements were sent.
	TakeDone
	// TakeGone: there was no message with this key any more.
	TakeGone
	// TakeLocked: a receiver has the message.
	TakeLocked
	// TakeRefused: a replacement was refused. The message stays in its queue.
	TakeRefused
)

var takeStates = [...]string{"unknown", "done", "gone", "locked", "refused"}

// String returns the state in a word.
func (s TakeState) String() string {
	if s >= 0 && int(s) < len(takeStates) {
		return takeStates[s]
	}
	return fmt.Sprintf("TakeState(%d)", int(s))
}

// DepthReader is implemented by a [core.Transport] whose broker counts the messages of a queue.
type DepthReader interface {
	// Depth counts without receiving, with one request where the broker has one (C36). A
	// queue that does not exist is [core.ErrQueueNotFound].
	Depth(ctx context.Context, queue string) (Depth, error)
}

// Depth has the numbers of messages in a queue, by state. A number that the broker
// does not tell is -1, never 0.
type Depth struct {
	Ready     int // waiting for a receiver; in an estimate without Locked it may include these
	Locked    int // received and not settled
	Delayed   int // waiting until they are due
	Receivers int // of this queue, of all processes
	// Exact: the numbers were all true at one moment. Otherwise they are estimates.
	Exact bool
	// Oldest is when the oldest of the messages was sent, or the zero time if that is not
	// known.
	Oldest time.Time
}

// Lister is implemented by a [core.Transport] whose broker lists queues.
type Lister interface {
	// ListQueues returns the addresses of the queues that this user may look into (C37), in
	// order, without the broker's own dead-letter queues.
	ListQueues(ctx context.Context) ([]string, error)
}
