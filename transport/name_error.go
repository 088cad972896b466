package transport

import (
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// BadName returns the [core.NameError] of a queue or a topic whose name is refused. limit is
// the limit of the name's length, if it is exceeded, or 0. The format and its arguments make
// the text, which says how to fix the name.
func BadName(kind, name string, limit int, format string, args ...any) error {
	return &core.NameError{Kind: kind, Name: name, Max: limit, Reason: fmt.Sprintf(format, args...)}
}
