// Package health has the state of an endpoint, for dashboards and alerts. Package probes
// answers the probes of Kubernetes from it.
package health

import (
	"encoding/json"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/internal/bounded"
)

// State is the state of an endpoint at one moment, as core.Endpoint.Health returns it.
// encoding/json writes it with errors and durations as text, times as RFC 3339, and
// without fields that are not set.
type State struct {
	// Endpoint and Instance are those of the endpoint, Queue is the address of its input
	// queue, or "" if it is send-only.
	Endpoint, Instance, Queue string

	// Starting: Run was called and does not receive yet. It creates and checks queues and
	// connects, and waits while the broker cannot be reached.
	Starting bool
	// Running: Run is receiving, or would if it were not Paused.
	Running bool
	// Draining: Run is ending and waits for handlers.
	Draining bool
	// Paused: Pause was called.
	Paused bool
	// RateLimited: one message is attempted at a time.
	RateLimited bool
	// Isolating: a message was delivered several times without a known end, so one message
	// is attempted at a time until a message comes that was not.
	Isolating bool
	// RunError is the error with which Run ends while it is Draining, then the error that it
	// returned. While the next Run is in progress it is nil.
	RunError error

	Connection
	Sends
	Waiting

	// Middleware has the states of middleware that has one (core.MiddlewareFacts), such as a
	// circuit breaker: first those of Config.Middleware, the outermost first, then those of
	// single handlers.
	Middleware []MiddlewareState

	Concurrency int // slots, as configured or set
	InFlight    int // messages being handled

	// OldestAttempt is the duration of the longest running attempt, or 0 if there is none.
	// If it grows without end, a handler hangs: see Config.HandlerTimeout.
	OldestAttempt time.Duration

	// CriticalErrors is the number of critical errors; LastCritical is the newest.
	CriticalErrors int64
	LastCritical   *CriticalError
	// NotificationsDropped is the number of events that recovery observers missed in this
	// Run because they were too slow.
	NotificationsDropped int64
}

// Connection is the connection to the broker.
type Connection struct {
	// Connected: while Run receives, the transport has reported no outage. Without a Run in
	// progress, as on a send-only endpoint: the broker has accepted the newest Send whose
	// result says something about the broker; false before the first.
	Connected bool
	// ConnectionError is the reason for not being connected, and DisconnectedSince its
	// beginning, if that is known.
	ConnectionError   error
	DisconnectedSince time.Time
}

// Sends is the outcome of sends.
type Sends struct {
	// SendError is the error of the newest call of the transport's Send, and
	// SendsFailingSince the time since which every call failed. Both are zero after a
	// successful call. Errors about a message (its size, its headers, a queue that does not
	// exist, a value that the broker refuses), cancelled contexts, and sends that are part of a settlement
	// (SendsAtomicWithReceive) do not count.
	SendError         error
	SendsFailingSince time.Time
	// EventsWithoutSubscriber is the number of published events that reached no queue, where
	// the transport can tell.
	EventsWithoutSubscriber int64
	// UnreachableSubscribers is the number of copies of published events that a subscriber did
	// not get, because its queue could not be reached, where the transport can tell.
	UnreachableSubscribers int64
}

// Waiting counts the messages that wait, by reason.
type Waiting struct {
	// Undelivered is the number of messages known to this process that wait because their
	// destination, such as the error queue, cannot be reached: they are stored in the
	// endpoint's own queue, or kept by this process.
	Undelivered int
	// UnreachableSince is the beginning of the longest outage of an error or audit queue, or
	// the zero time. A queue for which this process had no message in the last five minutes
	// does not count.
	UnreachableSince time.Time
	// Unsettled is the number of messages that this process keeps without a slot because
	// their settlement or decision has failed and is tried again. At 1,000 (in
	// SendsAtomicWithReceive without Abilities.AtomicLeases at Concurrency, but at least 10),
	// Stalled is set.
	Unsettled int
	// Stalled: Unsettled has reached its limit, so no more messages are fetched.
	Stalled bool
	// PutBackUntil is the end of the pause after a message that was put back, or the zero
	// time.
	PutBackUntil time.Time
	// Retrying is the number of messages that this process keeps for the pause before their
	// immediate retry (Immediate.Pause).
	Retrying int
}

// CriticalError is a failure of the endpoint's own work, or an error that the application
// raised (core.Endpoint.RaiseCritical).
type CriticalError struct {
	Err error
	At  time.Time
}

// MiddlewareState is the state of middleware at one moment.
type MiddlewareState struct {
	Kind, Name string // of its core.MiddlewareFacts
	State      string
	// MessageTypes are the types that it applies to; nil means all. "(others)" are the types
	// of core.HandleDefault.
	MessageTypes []string
	// Handlers are the names of the handlers in whose HandleOptions.Middleware it is; nil
	// means Config.Middleware.
	Handlers []string
	// OpensCircuit: State is that of a circuit, which refuses messages with
	// core.ErrCircuitOpen and lets them pass while it is "closed".
	OpensCircuit bool
}

// stateJSON is the JSON form of State.
type stateJSON struct {
	Endpoint             string           `json:"endpoint"`
	Instance             string           `json:"instance"`
	Queue                string           `json:"queue,omitempty"`
	Starting             bool             `json:"starting"`
	Running              bool             `json:"running"`
	Draining             bool             `json:"draining"`
	Paused               bool             `json:"paused"`
	RateLimited          bool             `json:"rateLimited"`
	Isolating            bool             `json:"isolating"`
	Connected            bool             `json:"connected"`
	ConnectionError      string           `json:"connectionError,omitempty"`
	DisconnectedSince    time.Time        `json:"disconnectedSince,omitzero"`
	SendError            string           `json:"sendError,omitempty"`
	SendsFailingSince    time.Time        `json:"sendsFailingSince,omitzero"`
	WithoutSubscriber    int64            `json:"eventsWithoutSubscriber,omitempty"`
	Unreachable          int64            `json:"unreachableSubscribers,omitempty"`
	RunError             string           `json:"runError,omitempty"`
	Middleware           []middlewareJSON `json:"middleware,omitempty"`
	Concurrency          int              `json:"concurrency"`
	InFlight             int              `json:"inFlight"`
	OldestAttempt        string           `json:"oldestAttempt,omitempty"`
	Undelivered          int              `json:"undelivered"`
	UnreachableSince     time.Time        `json:"unreachableSince,omitzero"`
	Unsettled            int              `json:"unsettled"`
	Stalled              bool             `json:"stalled"`
	PutBackUntil         time.Time        `json:"putBackUntil,omitzero"`
	Retrying             int              `json:"retrying"`
	CriticalErrors       int64            `json:"criticalErrors"`
	LastCritical         *criticalJSON    `json:"lastCritical,omitempty"`
	NotificationsDropped int64            `json:"notificationsDropped"`
}

type middlewareJSON struct {
	Kind         string   `json:"kind"`
	Name         string   `json:"name,omitempty"`
	State        string   `json:"state"`
	MessageTypes []string `json:"messageTypes,omitempty"`
	Handlers     []string `json:"handlers,omitempty"`
	OpensCircuit bool     `json:"opensCircuit,omitempty"`
}

type criticalJSON struct {
	Err string    `json:"error"`
	At  time.Time `json:"at"`
}

// maxText is the length in bytes of the longest text in the JSON form. Errors may contain
// texts that the senders of messages chose.
const maxText = 4 << 10

func errorText(err error) string { return bounded.Text(calls.ErrorText(err), maxText) }

// MarshalJSON writes the state with keys in camel case, errors and durations as text, of
// which the middle is left out beyond 4 KiB.
func (s State) MarshalJSON() ([]byte, error) {
	j := stateJSON{
		Endpoint: s.Endpoint, Instance: s.Instance, Queue: s.Queue,
		Starting: s.Starting, Running: s.Running, Draining: s.Draining, Paused: s.Paused, RateLimited: s.RateLimited, Isolating: s.Isolating,
		Connected: s.Connected, ConnectionError: errorText(s.ConnectionError), DisconnectedSince: s.DisconnectedSince,
		SendError: errorText(s.SendError), SendsFailingSince: s.SendsFailingSince, WithoutSubscriber: s.EventsWithoutSubscriber, Unreachable: s.UnreachableSubscribers, RunError: errorText(s.RunError),
		Concurrency: s.Concurrency, InFlight: s.InFlight,
		Undelivered: s.Undelivered, UnreachableSince: s.UnreachableSince, Unsettled: s.Unsettled, Stalled: s.Stalled,
		PutBackUntil: s.PutBackUntil, Retrying: s.Retrying, CriticalErrors: s.CriticalErrors, NotificationsDropped: s.NotificationsDropped,
	}
	for _, m := range s.Middleware {
		m.State = bounded.Text(m.State, maxText)
		j.Middleware = append(j.Middleware, middlewareJSON(m))
	}
	if s.OldestAttempt > 0 {
		j.OldestAttempt = s.OldestAttempt.String()
	}
	if s.LastCritical != nil {
		j.LastCritical = &criticalJSON{errorText(s.LastCritical.Err), s.LastCritical.At}
	}
	return json.Marshal(j)
}
