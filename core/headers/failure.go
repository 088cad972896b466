package headers

// Failure is one word for why a message was given up: the value of the header
// [FailureReason], and the reason of a dead letter.
type Failure string

// The reasons.
const (
	FailureRejected         Failure = "Rejected"         // its handler gave it up to DeadLetterQueue
	FailureInvalid          Failure = "Invalid"          // its handler gave it up to InvalidQueue
	FailureMovedByHandler   Failure = "MovedByHandler"   // its handler gave it up to a queue that it named (GiveUpTo)
	FailureUnrecoverable    Failure = "Unrecoverable"    // an error that is not retried, or its handler gave it up (GiveUp)
	FailureRetriesExhausted Failure = "RetriesExhausted" // the retries were used up, or a Policy gave it up
	FailureRequeueLimit     Failure = "RequeueLimit"     // RequeueLimit was used up
	FailureDeliveryLimit    Failure = "DeliveryLimit"    // MaxDeliveries was used up
	FailureUndecodable      Failure = "Undecodable"      // its body cannot be decoded, or it names no type
	FailureMalformed        Failure = "Malformed"        // the transport cannot read it
	FailureNoHandler        Failure = "NoHandler"        // no handler is registered for its type
	FailureCommitRefused    Failure = "CommitRefused"    // messages that its handler has committed were refused (messagekit.Commit)
)
