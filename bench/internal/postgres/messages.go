package postgres

import (
	"github.com/reprise-go/reprise/core"
)

// The messages.
var (
	placedType = core.NewMessageType[[]byte]("orders.placed")
)
