package suite

import (
	"cmp"
	"strings"
)

// guide returns the place in the documentation that explains a rule to adapter authors.
func guide(rule string) string {
	return "https://github.com/reprise-go/reprise/blob/main/docs/adapter-rules.md#" + strings.ToLower(rule)
}

// rules summarises each rule that an adapter can break in one sentence.
// docs/adapter-rules.md explains each under its own heading.
var rules = map[string]string{
	"C1":  "Capabilities are constant and true: a claimed capability works, and its methods are refused with errors.ErrUnsupported where it is not claimed",
	"C2":  "Send returns nil exactly when every message is durably accepted; else a *core.SendError has the outcome of each",
	"C3":  "Receive blocks until it has 1..len(dst) deliveries or its context ends, which loses nothing; no more than MaxInFlight are in flight",
	"C4":  "a message that cannot be parsed is delivered with Malformed set, and has no effect on other messages",
	"C5":  "a delivery is settled once; a second settlement is core.ErrSettled and changes nothing",
	"C6":  "settling after the lock was lost is core.ErrLockLost, and the message is redelivered",
	"C7":  "a completed message is never redelivered, and no other settlement loses one",
	"C8":  "Abandon returns a message to its queue at once with a delivery count one higher, Release with the same count",
	"C9":  "DeliveryCount is 1 at first; it is durable and shared exactly when NativeDeliveryCount",
	"C10": "headers and body arrive as sent; limits are checked before anything is sent",
	"C11": "every delivery has the original headers and body",
	"C12": "CompleteWith and ReplaceWith are all or nothing; Reset and ReplaceWith undo the handler's work, and a rollback to a savepoint a part of it",
	"C13": "a delayed message is never early, and late by no more than DelayPrecision",
	"C14": "Close unblocks Receive with core.ErrClosed, releases unsettled messages, and leaves no goroutine and no connection",
	"C15": "an outage is no error of Receive: it reconnects and tells the observer; an error that waiting cannot fix is returned at once",
	"C16": "no two receivers have one message in flight at the same time",
	"C17": "Renew moves LockedUntil forward; a lock that is not renewed is lost",
	"C18": "Provision is idempotent, safe from many instances, and alters nothing that exists",
	"C19": "an event reaches every subscribed queue once",
	"C20": "a message past its time to be received is never delivered",
	"C21": "no password, key or token appears in an error or a String",
	"C22": "DeadLetter moves the message, reason, description and headers to the broker's own queue",
	"C23": "Purge removes the deliverable messages of one queue, and Remove the given queues and topics: nothing else",
	"C24": "a queue that keeps groups delivers the messages of a group in their order, one at a time; Postpone returns one to its place",
	"C30": "a look at a queue changes nothing that a receiver could see",
	"C31": "a look shows each message that stays in the queue once, and no message twice",
	"C32": "a page has at most Limit messages, and its Next continues the look for any process, also after its message has left; other text is refused",
	"C33": "a message is shown as its next delivery has it, with the count until now",
	"C34": "Take consumes a message exactly if its replacements were accepted",
	"C35": "each message of a Take has its own true result; a locked one is not waited for",
	"C36": "Depth receives nothing, and tells true numbers: -1 for one that the broker does not tell",
	"C37": "ListQueues returns the addresses of the queues, and nothing that is no queue",
	"C38": "a return is dropped as a duplicate of the same return alone, has no limit of applications, and is delivered for the first time",
	"C39": "a look that receives messages and closes its receiver loses none, hides none afterwards, keeps groups in order, and counts once at most",

	"R1":  "a message is attempted (immediate + 1) x (delayed + 1) times",
	"R2":  "immediate retries are counted by DeliveryCount, and start again with each delayed retry",
	"R3":  "a delayed retry is made while fewer than configured were",
	"R4":  "each delayed retry waits longer by the configured increase",
	"R6":  "an unrecoverable failure goes to the error queue without a retry",
	"R7":  "a policy chooses between immediate retry, delayed retry, error queue and discard",
	"R8":  "an action that the transport cannot carry out becomes a move to the error queue",
	"R10": "New refuses a configuration that the transport cannot meet",
	"R11": "a policy gets the failure unchanged, and decides alone or together with the default policy",
	"R12": "a message whose policy panics or decides nothing goes to the error queue",
	"R20": "no message of a failed handler is sent",
	"R22": "a delayed retry is the original message with its retries counted",
	"R23": "a message in the error queue is the original with the failure's headers",
	"R24": "the error path always fits the transport's limits",
	"R25": "a message whose move fails is kept, and the move repeated without its handler",
	"R26": "a panic in a handler is a failure",
	"R27": "a shutdown releases messages, and does not count their deliveries",
	"R28": "a message whose settlement was lost is not handled again",
	"R29": "a handler's changes to its message reach neither retry nor error queue",
	"R30": "failed messages are decided in every transaction mode",
	"R31": "where a custom error queue does not exist, the default one is used",
	"R33": "a message in the error queue has the history of its attempts",
	"R34": "a message that kills its process is not attempted for ever",
	"R35": "a message that kills its process moves no other message to the error queue",
	"R40": "consecutive failures switch to one attempt at a time",
	"R41": "a rate-limited endpoint attempts one message, then waits",
	"R42": "one success ends rate limiting",
	"R45": "switching rate limiting loses and duplicates nothing",
	"R50": "an endpoint stops, or pauses, at its limit of failed messages, and loses nothing",
	"R51": "HandleFailed runs when retries are used up, and may consume the message",
	"R53": "middleware sees a message with its headers, and may give a verdict on it",
	"R62": "a failed message goes to the dead-letter queue that the endpoint names, with its reason",
	"R63": "an invalid message goes unchanged to the invalid queue that the endpoint names",
	"R64": "a message that is put back stays in its queue, loses no attempt, and is redelivered after its pause",
	"R65": "each final outcome of a returned message is reported, after it took effect, and the report decides nothing",
	"R66": "a message that is returned to be tried once is moved after one attempt, and its next return has all of them",
	"R67": "a message in an error queue has the fingerprint of its failure, which failures with one cause share",
	"R68": "the engine's own sends never decide about a message",
	"R61": "a message of a group that fails, or is deferred, blocks its group where the queue keeps groups",
}

// engineRules are the rules that only the engine can break: a fault of an adapter that
// breaks one of them breaks another rule too, which TestMutants_OfEngineRules checks.
// Adapters leave them to the in-memory transport.
var engineRules = []string{
	"R2", "R3", "R4", "R7", "R10", "R11", "R12", "R26", "R27", "R29", "R30", "R31", "R33",
	"R40", "R41", "R42", "R45", "R50", "R51", "R53", "R63",
}

// compareRules orders C1, C2, ... C24, R1, R2, ...
func compareRules(a, b string) int {
	return cmp.Or(cmp.Compare(a[:1], b[:1]), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
