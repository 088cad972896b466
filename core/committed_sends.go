package core

import (
	"slices"

	"github.com/reprise-go/reprise/core/internal/calls"
)

// committedSends has the messages that are sent after any outcome of an attempt.
type committedSends struct {
	messages  []Outgoing
	callbacks []func() // called when they have been sent
}

// appendMissing returns out with the messages of more that it lacks.
func (*committedSends) appendMissing(out, more []Outgoing) []Outgoing {
	for i := range more {
		same := func(o Outgoing) bool {
			return o.ID == more[i].ID && o.Queue == more[i].Queue && o.Topic == more[i].Topic
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, more[i])
		}
	}
	return out
}

// withCommitted returns the messages to send with a success that collected out.
func (c *committedSends) withCommitted(out []Outgoing) []Outgoing {
	if c == nil {
		return out
	}
	return c.appendMissing(out, c.messages)
}

// notifySent calls the functions of Commit. c may be nil.
func (c *committedSends) notifySent(panicked func(any)) {
	if c == nil {
		return
	}
	for _, f := range c.callbacks {
		calls.Recover(panicked, f)
	}
}

// bytes returns the memory that the messages take. c may be nil.
func (c *committedSends) bytes() int {
	size := 0
	if c != nil {
		for i := range c.messages {
			size += len(c.messages[i].Body) + c.messages[i].Headers.Bytes()
		}
	}
	return size
}
