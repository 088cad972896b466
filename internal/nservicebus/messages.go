package nservicebus

import "github.com/reprise-go/reprise/core"

// The messages.
var (
	delayedToGoType  = core.NewMessageType[Note]("Interop.DelayedToGo")
	failInGoType     = core.NewMessageType[Note]("Interop.FailInGo")
	failInNetType    = core.NewMessageType[Note]("Interop.FailInNet")
	netHappenedEvent = core.NewEvent[Note]("Interop.NetHappened")
	pingGoType       = core.NewMessageType[Note]("Interop.PingGo")
	pingNetType      = core.NewMessageType[Note]("Interop.PingNet")
	pongFromNetType  = core.NewMessageType[Note]("Interop.PongFromNet")
)
