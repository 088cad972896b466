// Package asb runs the stand-in for Azure Service Bus, package sbserver, as a process that can be
// killed, stopped and made to fail. It builds and starts the command of that package, and talks
// to the command's control address.
package asb

import "time"

// Paths of the control address. POST to PathFaults arms a fault and DELETE clears all of
// them. PathCounts is read with GET; the others are called with POST.
const (
	PathFaults           = "/faults"
	PathDetachLinks      = "/detach-links"
	PathCloseConnections = "/close-connections"
	PathExpireLocks      = "/expire-locks"
	PathCounts           = "/counts"
)

// A Fault makes operations of clients fail. It is the body of a POST to PathFaults.
type Fault struct {
	// Ops are the names of the operations, such as "send". The default is all except
	// "connect" and "administration".
	Ops []string `json:",omitempty"`

	// Times is how many operations fail. The default is 1; a negative number means no limit.
	Times int `json:",omitempty"`

	// TakesEffect lets the operation take effect before the action.
	TakesEffect bool `json:",omitempty"`

	// Delay is the time before the action, in nanoseconds in JSON.
	Delay time.Duration `json:",omitempty"`

	// Action ends the operation. The default is Proceed.
	Action Action `json:",omitempty"`
}

// Action is the way in which a Fault ends an operation.
type Action string

// The actions.
const (
	Proceed         Action = ""                 // the operation continues after the delay
	Refuse          Action = "refuse"           // the answer is that the server is busy
	Silence         Action = "silence"          // there is no answer
	Detach          Action = "detach"           // the link is detached
	CloseConnection Action = "close-connection" // the connection is closed
	Cut             Action = "cut"              // the connection is reset
)

// Names of operations.
const (
	OpAttachSender   = "attach-sender"
	OpAttachReceiver = "attach-receiver"
	OpSend           = "send"
	OpComplete       = "complete"
	OpAbandon        = "abandon"
	OpDeadLetter     = "dead-letter"
	OpRenewLock      = "renew-lock"
	OpRenewSession   = "renew-session-lock"
	OpPeek           = "peek-message"
	OpAdministration = "administration"
)
