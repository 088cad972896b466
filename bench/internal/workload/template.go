package workload

import "strings"

// Placeholder marks the place of the sequence in a message from which a [Template] is made.
const Placeholder = "@sequence@"

// Template has the parts of a message between the places of its sequence.
type Template []string

// NewTemplate returns the parts of a message whose sequence is [Placeholder].
func NewTemplate(s string) Template { return strings.Split(s, Placeholder) }

// With returns the message with a sequence.
func (t Template) With(sequence string) string { return strings.Join(t, sequence) }
