package main

import (
	"github.com/reprise-go/reprise/core"
)

// The messages.
var (
	rowRow = core.NewMessageType[row]("soak.row")
)
