package sqlserver

import (
	"time"

	"github.com/reprise-go/reprise/core"
)

// NextPause returns how long the receiver waits after a look at the queue that found
// nothing.
func NextPause(r core.Receiver) time.Duration { return r.(*receiver).nextPause() }
