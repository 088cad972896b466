package core

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/pump"
)

// Health is the state of an endpoint at one moment. encoding/json writes it with errors
// and durations as text, times as RFC 3339, and without fields that are not set.
type Health struct {
	// Endpoint and Instance are those of the endpoint, Queue is the address of its input
	// queue, or "" if it is send-only.
	Endpoint, Instance, Queue string

	// Starting: [Endpoint.Run] was called and does not receive yet. It creates and checks
	// queues and connects, and waits while the broker cannot be reached
	// ([Config.WaitForBroker]).
	Starting bool
	// Running: [Endpoint.Run] is receiving, or would if it were not Paused.
	Running bool
	// Draining: [Endpoint.Run] is ending and waits for handlers.
	Draining bool
	// Paused: Pause was called.
	Paused bool
	// RateLimited: one message is attempted at a time (R41).
	RateLimited bool
	// Isolating: a message was delivered several times without a known end, so one message
	// is attempted at a time until a message comes that was not (R35).
	Isolating bool
	// Connected: while [Endpoint.Run] receives, the transport has reported no outage.
	// Without a Run in progress, as on a send-only endpoint: the broker has accepted the
	// newest Send whose result says something about the broker; false before the first.
	Connected bool
	// ConnectionError is the reason for not being connected, and DisconnectedSince its
	// beginning, if that is known.
	ConnectionError   error
	DisconnectedSince time.Time
	// SendError is the error of the newest call of the transport's Send, and
	// SendsFailingSince the time since which every call failed. Both are zero after a
	// successful call. Errors about a message (its size, its headers, a queue that does not
	// exist), cancelled contexts, and sends that are part of a settlement
	// (SendsAtomicWithReceive) do not count.
	SendError         error
	SendsFailingSince time.Time
	// RunError is the error with which Run ends while it is Draining, then the error that it
	// returned. While the next Run is in progress it is nil.
	RunError error

	// Middleware has the states of middleware that has one
	// ([MiddlewareFacts.State]), such as a circuit breaker: first those of [Config.Middleware], the
	// outermost first, then those of single handlers ([HandleOptions.Middleware]).
	Middleware []MiddlewareState

	Concurrency int // slots, as configured or set
	InFlight    int // messages being handled

	// OldestAttempt is the duration of the longest running attempt, or 0 if there is none.
	// If it grows without end, a handler hangs: see [Config.HandlerTimeout] and
	// [Config.SlowHandler].
	OldestAttempt time.Duration

	// Undelivered is the number of messages known to this process that wait because their
	// destination, such as the error queue, cannot be reached: they are stored in the
	// endpoint's own queue, or kept by this process (R25).
	Undelivered int
	// UnreachableSince is the beginning of the longest outage of an error or audit queue, or
	// the zero time. A queue for which this process had no message in the last five minutes
	// does not count.
	UnreachableSince time.Time
	// Unsettled is the number of messages that this process keeps without a slot because
	// their settlement or decision has failed and is tried again. At 1,000 (in
	// SendsAtomicWithReceive without [Abilities.AtomicLeases] at Concurrency, but at
	// least 10), Stalled is set.
	Unsettled int
	// Stalled: Unsettled has reached its limit, so no more messages are fetched.
	Stalled bool
	// PutBackUntil is the end of the pause after a message that was put back ([PutBack]), or
	// the zero time.
	PutBackUntil time.Time
	// Retrying is the number of messages that this process keeps for the pause before their
	// immediate retry ([Immediate.Pause]).
	Retrying int
	// CriticalErrors is the number of critical errors; LastCritical is the newest.
	CriticalErrors int64
	LastCritical   *CriticalError
	// NotificationsDropped is the number of events that recovery observers missed in this
	// Run because they were too slow (R32).
	NotificationsDropped int64
}

// Health returns the endpoint's state.
func (ep *Endpoint) Health() Health {
	states := ep.registry.middlewareStates() // their code may call the endpoint
	ep.mu.Lock()
	defer ep.mu.Unlock()
	h := Health{
		Endpoint: ep.name, Instance: ep.instance, Queue: ep.address,
		Middleware: states,
		Paused:     ep.paused, Concurrency: ep.concurrency,
		Undelivered: ep.undelivered(), UnreachableSince: ep.unreachable.OldestOutage(),
		CriticalErrors: ep.criticals.count.Load(), LastCritical: ep.criticals.last.Load(),
	}
	if r := ep.current; r != nil && r.pump != nil {
		h.Draining = r.fetchCtx.Err() != nil
		h.Running = !h.Draining
		h.RateLimited = r.limiter.IsLimited()
		h.Isolating = r.pump.IsIsolating()
		h.InFlight = r.pump.InFlight()
		h.OldestAttempt = r.pump.OldestAttempt()
		h.Unsettled = ep.unfinished.kept.Size()
		h.Stalled = h.Unsettled >= ep.unfinished.kept.Limit()
		h.Retrying = ep.unfinished.paused.Size()
		h.PutBackUntil = r.pump.WaitsUntil(pump.WaitPutBack)
		h.NotificationsDropped = r.recoveryCalls.Dropped()
	}
	failing, accepted := ep.sender.health.state()
	if failing != nil {
		h.SendError, h.SendsFailingSince = failing.err, failing.since
	}
	if r := ep.current; r == nil {
		h.RunError = ep.runErr
		h.Connected = accepted
		h.ConnectionError, h.DisconnectedSince = h.SendError, h.SendsFailingSince
	} else {
		h.RunError = r.wrapRunError(r.endError())
		h.Starting = r.pump == nil && r.fetchCtx.Err() == nil
		h.Connected = r.pump != nil
		if c := r.connection.Load(); c != nil && !c.Connected {
			h.Connected = false
			h.ConnectionError, h.DisconnectedSince = c.Err, c.Since
		}
	}
	return h
}

// undelivered returns the number of messages known to this process that wait for their
// destination.
func (ep *Endpoint) undelivered() int {
	return ep.unfinished.undelivered() + ep.unreachable.StoredMessages()
}

// Ready returns a channel that is closed once [Endpoint.Run] receives messages. It stays
// open if Run fails before; wait for Run's return too. After Run has returned,
// call Ready again for the next one.
func (ep *Endpoint) Ready() <-chan struct{} {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.ready
}

// SetConcurrency changes the number of messages handled at the same time, while the
// endpoint runs or for its next Run. Messages being handled are not interrupted; if there
// are fewer slots, unstarted messages are given back, unless the broker would count that
// as an attempt ([Guarantees.CountsReleases]).
func (ep *Endpoint) SetConcurrency(n int) error {
	if n < 1 {
		return fmt.Errorf("core: endpoint %q: concurrency %d is below 1; use Pause to stop receiving", ep.name, n)
	}
	if n > maxConcurrency {
		return fmt.Errorf("core: endpoint %q: concurrency %d is above %d; use more instances", ep.name, n, maxConcurrency)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.concurrency = n
	if r := ep.current; r != nil && r.pump != nil {
		r.pump.SetLimit(n)
	}
	return nil
}

// Pause stops receiving: messages being handled are finished, unstarted ones are given
// back. If the broker would count that as an attempt ([Guarantees.CountsReleases]), the
// few prefetched messages are handled instead. It lasts until [Endpoint.Resume], over
// several Runs.
func (ep *Endpoint) Pause() { ep.setPaused(true) }

// Resume ends [Endpoint.Pause]. The count of [Recoverability.UnacceptableMessageLimit]
// starts from 0. On an endpoint that is not paused it does nothing.
func (ep *Endpoint) Resume() { ep.setPaused(false) }

func (ep *Endpoint) isPaused() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.paused
}

func (ep *Endpoint) setPaused(paused bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.paused == paused {
		return
	}
	ep.paused = paused
	r := ep.current
	if r == nil || r.pump == nil {
		return
	}
	if !paused {
		r.terminalFailures.restart(false)
	}
	r.pump.SetPaused(paused)
}

// connectionReporter observes the connection of one Run's receiver. An old one does not
// affect the next Run: Health reads the current runner, and the hooks of a Run that has
// ended ignore reports.
type connectionReporter struct{ r *runner }

// connectionChanged is ReceiverConfig.ConnectionChanged. It is called on a goroutine of
// the adapter, which users' code must not block: observers and the log have their own
// goroutine.
func (c connectionReporter) connectionChanged(e ConnectionChange) { c.record(&e) }

func (c connectionReporter) record(e *ConnectionChange) {
	r, ep := c.r, c.r.ep
	e.ObservedEndpoint = ep.observed
	r.connection.Store(e)
	r.outages.changed(*e)
	r.hookCalls.Add(func() { r.outageLog.write(ep.log.endpoint, e) })
	for _, o := range ep.observers.connection {
		r.hookCalls.Add(func() { o.ConnectionChanged(*e) })
	}
}

// healthJSON is the JSON form of Health.
type healthJSON struct {
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

// MarshalJSON writes the state with keys in camel case, errors and durations as text.
func (h Health) MarshalJSON() ([]byte, error) {
	j := healthJSON{
		Endpoint: h.Endpoint, Instance: h.Instance, Queue: h.Queue,
		Starting: h.Starting, Running: h.Running, Draining: h.Draining, Paused: h.Paused, RateLimited: h.RateLimited, Isolating: h.Isolating,
		Connected: h.Connected, ConnectionError: calls.ErrorText(h.ConnectionError), DisconnectedSince: h.DisconnectedSince,
		SendError: calls.ErrorText(h.SendError), SendsFailingSince: h.SendsFailingSince, RunError: calls.ErrorText(h.RunError),
		Concurrency: h.Concurrency, InFlight: h.InFlight,
		Undelivered: h.Undelivered, UnreachableSince: h.UnreachableSince, Unsettled: h.Unsettled, Stalled: h.Stalled,
		PutBackUntil: h.PutBackUntil, Retrying: h.Retrying, CriticalErrors: h.CriticalErrors, NotificationsDropped: h.NotificationsDropped,
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
