package core

import (
	"strings"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/plan"
)

// replay has the options of the header headers.Replay, by which an operator's tool follows the
// messages that it returns to their queue. Any sender can write them.
type replay struct {
	report bool // the final outcome is reported
	once   bool // a failure is not retried
}

// maxReplay limits the value that is read, in bytes.
const maxReplay = 64

// replayOf reads the header. Unknown options are ignored.
func replayOf(h Headers) (r replay) {
	value := h.Get(headers.Replay)
	if value == "" || len(value) > maxReplay {
		return r
	}
	for option := range strings.SplitSeq(value, ",") {
		switch strings.TrimSpace(option) {
		case headers.ReplayReport:
			r.report = true
		case headers.ReplayOnce:
			r.once = true
		}
	}
	return r
}

// giveUpRetry replaces a retry of a message that is to be tried once. It leaves postponements that
// are no retries, and the new copy of a message that no handler has received.
func (d *decision) giveUpRetry() {
	switch {
	case d.action.Kind == ActionImmediateRetry, d.action.Kind == ActionDelayedRetry && d.as != asNewCopy:
		d.action, d.as, d.target = MoveToError(""), asRetry, plan.ErrorQueue
	}
}
