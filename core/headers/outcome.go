package headers

// Outcome is one word for the end of a message that an operator's tool has returned: the value
// of the header [ReplayOutcome].
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded    Outcome = "succeeded"     // it was handled
	OutcomeDuplicate    Outcome = "duplicate"     // it had been handled before, so that no handler ran
	OutcomeFailed       Outcome = "failed"        // it is in the queue that [ReplayQueue] names; without one it is lost
	OutcomeDeadLettered Outcome = "dead-lettered" // it failed and is in the broker's own dead-letter queue
	OutcomeDiscarded    Outcome = "discarded"     // its handler or a policy dropped it
	OutcomeTakenOver    Outcome = "taken-over"    // core.HandleFailed consumed it
)
