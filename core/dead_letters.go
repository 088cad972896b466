package core

import "github.com/reprise-go/reprise/core/headers"

// DeadLetter is for authors of adapters: the reason and headers with which a message is
// dead-lettered.
type DeadLetter struct {
	// Reason is one word, and Description a text of at most 4 KiB.
	Reason      headers.Failure
	Description string

	// Headers are all headers of the dead letter: those of the message and those of its
	// failure. A broker that can only add headers to a message keeps the headers that are
	// not among them. If Headers is empty, the message keeps its own.
	Headers Headers
}
