// Package plan knows the ways of a message that failed: for each decision the steps that
// carry it out, and the next after each of them. It is pure: it does nothing, and knows no
// message and no broker. Package core performs the steps.
//
// A [Walk] is the way of one message. It plans a ladder of steps, [Failed] or [Stored], and
// a table, [After], says what follows each step, for each [Class] of its outcome:
// the next step, another form of the same copy, another place, a later try, the end. A
// later try is planned again, from the [Progress] of those before.
package plan

// Verb is the kind of a step.
type Verb uint8

// The verbs.
const (
	// Undo undoes the failed work, before users' code runs in the same transaction.
	Undo Verb = iota
	// RunHook runs HandleFailed, and TakeOver sends its messages instead of moving the
	// message. SendAhead sends them before a move that they cannot be one with.
	RunHook
	TakeOver
	SendAhead
	// SendCommitted sends the messages that handlers committed.
	SendCommitted
	// EditCopy lets the application edit the headers of the copy.
	EditCopy
	// DeadLetter moves the message to the broker's own queue.
	DeadLetter
	// Copy sends a copy to another queue, and Store one to the own queue with a note of its
	// destination.
	Copy
	Store
	// Resend sends a copy to the own queue, to be handled again.
	Resend
	// Postpone gives the message back, to be available later.
	Postpone
	// Pause keeps it for a while, before an immediate retry or the copy of a PutBack.
	Pause
	// Consume, Abandon and Release settle the delivery.
	Consume
	Abandon
	Release
	// Keep lets this process keep the delivery, and try again.
	Keep
	// Lose ends a message that cannot be given back (TransactionNone).
	Lose
	// SendAll sends the messages of handlers that succeeded, and Commit consumes the message
	// too, as one.
	SendAll
	Commit
	verbs // their number
)

// Place is where a step puts something.
type Place uint8

// The places.
const (
	Here           Place = iota // nowhere: the step is about the delivery itself
	HookPlace                   // HandleFailed, and the steps that belong to it
	CommittedPlace              // the queues of committed messages
	AheadPlace                  // the queues of HandleFailed's messages
	BrokerQueue                 // the broker's own dead-letter queue
	NamedQueue                  // the endpoint's dead-letter or invalid queue
	CustomQueue                 // a queue that a verdict or a policy named
	ErrorQueue
	StoredQueue // the destination of a stored message
	OwnQueue
	places // their number
)

// Form is how much of the message's headers a copy has.
type Form uint8

// The forms. Not every verb has each.
const (
	Full   Form = iota
	Clean       // invalid headers of the sender are repaired
	Small       // the headers of the sender and FailedQ
	Sender      // the headers of the sender alone, without those of a failure at another queue
	Bare        // the fewest: those that an operator needs; of a retry all but the trace, of which RetryAfter keeps a time; of a dead letter none
	Body        // the body alone
	forms       // their number
)

// Step is one rung of a ladder.
type Step struct {
	Verb  Verb
	Place Place
	For   Place // the destination that the step serves: a stored copy has it in its note
	Form  Form
	With  With

	Atomic   bool // the step consumes the message too, as one
	Patient  bool // a place that cannot be reached is waited for, not left
	Optional bool // where the plan would wait or end it goes on
	Once     bool // there is no later try
	Last     bool // only for a message that its destination refuses in every form
}

// Class is the outcome of a step.
type Class uint8

// The classes. An error that fits no other class is Unreachable: it may last or not, and
// the step may have had its effect.
const (
	OK          Class = iota
	TooLarge          // refused for its size
	BadHeader         // refused for a header
	NoQueue           // refused, for there is no such queue
	Unsupported       // refused for good, for another reason
	Companion         // another message of the same call was refused for good
	Unreachable       // an outage, a timeout, a missing right
	Blocked           // not tried: another message's try has just failed
	TakenOver         // HandleFailed took the message over
	HookFailed        // HandleFailed or EditFailed failed
	Interrupted       // the shutdown cut them off
	Lost              // the lock: the broker delivers the message again
	Settled           // by an earlier call whose answer was lost
	Classes           // their number
)
