package core

import (
	"encoding/json"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
)

// healthJSON is the JSON form of Health.
type healthJSON struct {
	Endpoint             string           `json:"endpoint"`
	Instance             string           `json:"instance"`
	Queue                string           `json:"queue,omitempty"`
	Starting             bool             `json:"starting"`
	Running              bool             `json:"running"`
	Draining             bool             `json:"draining"`
	Paused               bool             `json:"paused"`
	Parked               *Park            `json:"parked,omitempty"`
	RateLimited          bool             `json:"rateLimited"`
	Isolating            bool             `json:"isolating"`
	Connected            bool             `json:"connected"`
	ConnectionError      string           `json:"connectionError,omitempty"`
	DisconnectedSince    time.Time        `json:"disconnectedSince,omitzero"`
	SendError            string           `json:"sendError,omitempty"`
	SendsFailingSince    time.Time        `json:"sendsFailingSince,omitzero"`
	RunError             string           `json:"runError,omitempty"`
	Middleware           []middlewareJSON `json:"middleware,omitempty"`
	Concurrency          int              `json:"concurrency"`
	InFlight             int              `json:"inFlight"`
	OldestAttempt        string           `json:"oldestAttempt,omitempty"`
	Undelivered          int              `json:"undelivered"`
	UnreachableSince     time.Time        `json:"unreachableSince,omitzero"`
	Unsettled            int              `json:"unsettled"`
	Stalled              bool             `json:"stalled"`
	PutBack              int              `json:"putBack"`
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

// MarshalJSON writes the state with keys in camel case, errors and durations as text.
func (h Health) MarshalJSON() ([]byte, error) {
	j := healthJSON{
		Endpoint: h.Endpoint, Instance: h.Instance, Queue: h.Queue,
		Starting: h.Starting, Running: h.Running, Draining: h.Draining, Paused: h.Paused, Parked: h.Parked, RateLimited: h.RateLimited, Isolating: h.Isolating,
		Connected: h.Connected, ConnectionError: calls.ErrorText(h.ConnectionError), DisconnectedSince: h.DisconnectedSince,
		SendError: calls.ErrorText(h.SendError), SendsFailingSince: h.SendsFailingSince, RunError: calls.ErrorText(h.RunError),
		Concurrency: h.Concurrency, InFlight: h.InFlight,
		Undelivered: h.Undelivered, UnreachableSince: h.UnreachableSince, Unsettled: h.Unsettled, Stalled: h.Stalled,
		PutBack: h.PutBack, PutBackUntil: h.PutBackUntil,
		Retrying: h.Retrying, CriticalErrors: h.CriticalErrors, NotificationsDropped: h.NotificationsDropped,
	}
	for _, m := range h.Middleware {
		j.Middleware = append(j.Middleware, middlewareJSON(m))
	}
	if h.OldestAttempt > 0 {
		j.OldestAttempt = h.OldestAttempt.String()
	}
	if h.LastCritical != nil {
		j.LastCritical = &criticalJSON{calls.ErrorText(h.LastCritical.Err), h.LastCritical.At}
	}
	return json.Marshal(j)
}
