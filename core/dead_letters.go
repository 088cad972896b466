package core

import (
	"fmt"

	"github.com/reprise-go/reprise/core/headers"
)

// DeadLetters selects the failed messages that go to a dead-letter queue instead of the
// error queue (R62).
type DeadLetters int

// The messages that are dead-lettered.
const (
	// DeadLettersNone: no message is. The default.
	DeadLettersNone DeadLetters = iota
	// DeadLettersRejected: messages that a handler rejected ([Reject]).
	DeadLettersRejected
	// DeadLettersAll: every message that would go to the error queue. Messages that [MoveTo]
	// or a [Policy] moves to a named queue go to that queue.
	DeadLettersAll
)

// deadLettersNames are the names in a configuration file.
var deadLettersNames = [...]string{DeadLettersNone: "None", DeadLettersRejected: "Rejected", DeadLettersAll: "All"}

// String returns the name as a configuration file writes it.
func (d DeadLetters) String() string {
	if d >= 0 && int(d) < len(deadLettersNames) {
		return deadLettersNames[d]
	}
	return fmt.Sprintf("DeadLetters(%d)", int(d))
}

// DeadLetter has the reason and headers with which a message is dead-lettered.
type DeadLetter struct {
	// Reason is one word, and Description a text of at most 4 KiB.
	Reason      headers.Failure
	Description string

	// Headers are all headers of the dead letter: those of the message and those of its
	// failure. A broker that can only add headers to a message keeps the headers that are
	// not among them. If Headers is empty, the message keeps its own.
	Headers Headers
}
