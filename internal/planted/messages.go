package planted

import (
	"github.com/reprise-go/reprise/core"
)

// The messages.
var (
	placeType = core.NewMessageType[[]byte]("place")
)
