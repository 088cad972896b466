package sqlserver

import (
	"time"

	"github.com/reprise-go/reprise/core"
)

// NextPause returns how long the receiver waits after a look at the queue that found
// nothing.
func NextPause(of core.Receiver) time.Duration { return of.(*receiver).nextPause() }
