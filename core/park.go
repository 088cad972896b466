package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/internal/timers"

	"github.com/reprise-go/reprise/core/internal/calls"
)

// This file stops or parks an endpoint when too many of its messages failed permanently
// (R50).

// LimitAction is the action when [Recoverability.UnacceptableMessageLimit] is reached
// (R50).
type LimitAction int

const (
	// LimitAuto is [LimitStop] for an endpoint that runs alone ([Endpoint.Run]), and
	// [LimitPark] for an endpoint that runs with others ([RunAll]), which a stop would
	// drain.
	LimitAuto LimitAction = iota
	// LimitStop lets [Endpoint.Run] drain and return an error that matches
	// [ErrUnacceptableMessageLimit]. [RunAll] then drains the other endpoints.
	LimitStop
	// LimitPark stops receiving for this endpoint only, as [Endpoint.Pause] does, until
	// [Endpoint.Resume] is called or [Recoverability.ParkFor] has passed. [Endpoint.Run]
	// does not return, other endpoints continue, and [Health.Parked] has the reason. Running
	// handlers finish and their messages are settled. Messages that were fetched and not
	// started are given back, even if the broker counts that as an attempt; in
	// [TransactionNone], in which that is impossible, they are handled.
	LimitPark
)

// limitActionNames are the names in configuration files.
var limitActionNames = [...]string{LimitAuto: "Auto", LimitStop: "Stop", LimitPark: "Park"}

// String returns the name as configuration files write it.
func (a LimitAction) String() string {
	if a >= 0 && int(a) < len(limitActionNames) {
		return limitActionNames[a]
	}
	return fmt.Sprintf("LimitAction(%d)", int(a))
}

// MarshalText writes the name.
func (a LimitAction) MarshalText() ([]byte, error) {
	if a < 0 || int(a) >= len(limitActionNames) {
		return nil, fmt.Errorf("core: there is no %v", a)
	}
	return []byte(a.String()), nil
}

// UnmarshalText reads the name that [LimitAction.String] writes.
func (a *LimitAction) UnmarshalText(text []byte) error {
	for i, name := range limitActionNames {
		if name == string(text) {
			*a = LimitAction(i)
			return nil
		}
	}
	return fmt.Errorf("unknown action at a limit %q; use Auto, Stop or Park", text)
}

// Park describes why an endpoint is parked: [Recoverability.UnacceptableMessageLimit]
// messages failed permanently. encoding/json can write and read it.
type Park struct {
	// Since is when the limit was reached.
	Since time.Time `json:"since"`
	// Until is when the endpoint resumes by itself ([Recoverability.ParkFor]). The zero time
	// means that it stays parked until [Endpoint.Resume] is called.
	Until time.Time `json:"until,omitzero"`
	// Failed is the number of counted messages.
	Failed int `json:"failed"`
	// MessageIDs are the ids of the messages that were counted last, at most 10, the newest
	// last.
	MessageIDs []string `json:"messageIDs"`
}

// isInForce reports whether an endpoint with this Park is still parked. p may be nil.
func (p *Park) isInForce() bool {
	return p != nil && (p.Until.IsZero() || time.Now().Before(p.Until))
}

// clone returns a copy, or nil.
func (p *Park) clone() *Park {
	if p == nil {
		return nil
	}
	other := *p
	other.MessageIDs = slices.Clone(p.MessageIDs)
	return &other
}

// ParkStore remembers for an application that an endpoint is parked, so that the next
// process starts parked, too: without one, a supervisor that restarts the process lets as
// many messages fail again. An application implements it with a database, a file on a
// volume, or other storage that survives its process.
//
// The instances of an endpoint that share a stored state are parked when they start, not
// when another instance is parked. They should share it: [ObservedEndpoint.Instance]
// differs from process to process unless [Config.Instance] is set.
type ParkStore interface {
	// LoadPark returns the Park that [ParkStore.SavePark] stored last, or nil if the
	// endpoint is not parked. [Endpoint.Run] calls it before it connects. An error counts as
	// an outage of the store: Run waits and calls again, as for its broker
	// ([Config.WaitForBroker]). ctx ends when Run is to end, or after Config.WaitForBroker.
	LoadPark(ctx context.Context, e ObservedEndpoint) (*Park, error)
	// SavePark stores that the endpoint is parked, or with nil that it is not. An error is
	// raised as a critical error; the endpoint is still parked, or resumed. Calls of one
	// endpoint are made one after the other, on a separate goroutine while [Endpoint.Run] is
	// in progress, and by [Endpoint.Resume] otherwise. ctx ends after 10 s.
	SavePark(ctx context.Context, e ObservedEndpoint, p *Park) error
}

const (
	parkSaveTimeout = 10 * time.Second
	maxParkIDs      = 10
)

// terminalFailures counts messages that were moved to an error, dead-letter or invalid
// queue.
type terminalFailures struct {
	mu      sync.Mutex
	reached bool // the limit was reached, so that no more are counted
	times   []time.Time
	newest  []string // ids
}

// count counts a message. If that reaches the limit it returns the Park, otherwise nil.
func (t *terminalFailures) count(messageID string, at time.Time, c *Recoverability) *Park {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached {
		return nil
	}
	t.times = append(t.times, at)
	if window := c.UnacceptableMessageWindow; window > 0 {
		t.times = slices.DeleteFunc(t.times, func(other time.Time) bool { return at.Sub(other) > window })
	}
	if len(t.newest) == maxParkIDs {
		t.newest = slices.Delete(t.newest, 0, 1)
	}
	t.newest = append(t.newest, messageID)
	n := len(t.times)
	if n < c.UnacceptableMessageLimit {
		return nil
	}
	park := &Park{Since: time.Now(), Failed: n, MessageIDs: t.newest[max(0, len(t.newest)-n):]}
	if c.ParkFor > 0 {
		park.Until = park.Since.Add(c.ParkFor)
	}
	t.reached, t.times, t.newest = true, nil, nil
	return park
}

// begin starts the count at 0 or, if the limit was reached, not at all.
func (t *terminalFailures) begin(reached bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reached, t.times, t.newest = reached, nil, nil
}

// countTerminalFailure counts a message that was moved permanently, and stops or parks
// the endpoint at the limit (R50).
func (r *runner) countTerminalFailure(messageID string, at time.Time) {
	c := &r.ep.config.Recoverability
	if c.UnacceptableMessageLimit == 0 {
		return
	}
	park := r.terminalFailures.count(messageID, at, c)
	if park == nil {
		return
	}
	err := fmt.Errorf("%w: %d messages failed for good%s, the newest: %q", ErrUnacceptableMessageLimit, park.Failed, withinText(c.UnacceptableMessageWindow), park.MessageIDs)
	stops := r.limitAction() == LimitStop
	switch {
	case stops && c.ParkStore == nil:
		r.end(err)
		return
	case stops:
		err = fmt.Errorf("%w; the next Run starts parked %s", err, park.untilText())
	default:
		err = fmt.Errorf("%w; the endpoint is parked %s", err, park.untilText())
	}
	r.park(park)
	if stops {
		r.end(err)
		return
	}
	r.raiseCritical(err)
}

func withinText(window time.Duration) string {
	if window == 0 {
		return ""
	}
	return " within " + window.String()
}

func (p *Park) untilText() string {
	if p.Until.IsZero() {
		return "until Endpoint.Resume is called"
	}
	return "until " + p.Until.UTC().Format(time.RFC3339) + " or until Endpoint.Resume is called"
}

// limitAction is LimitStop or LimitPark.
func (r *runner) limitAction() LimitAction {
	action := r.ep.config.Recoverability.UnacceptableMessageAction
	switch {
	case action != LimitAuto:
		return action
	case r.inRunAll:
		return LimitPark
	}
	return LimitStop
}

// park stops receiving.
func (r *runner) park(p *Park) {
	ep := r.ep
	ep.mu.Lock()
	ep.parked = p
	r.startParkedLocked()
	r.notifyParkLocked(true, p)
	ep.mu.Unlock()
}

// notifyParkLocked queues the calls of observers and the ParkStore, in the order of the
// changes. It is called with Endpoint.mu held.
func (r *runner) notifyParkLocked(parked bool, p *Park) {
	r.hookCalls.Add(func() { r.ep.notifyPark(r.valuesCtx, parked, p) })
	if r.parkStoreCalls == nil {
		return
	}
	stored := p
	if !parked {
		stored = nil
	}
	r.parkStoreCalls.Add(func() { r.ep.savePark(r.valuesCtx, stored) })
}

// startParkedLocked applies Endpoint.parked to this Run. It is called with Endpoint.mu
// held.
func (r *runner) startParkedLocked() {
	p := r.ep.parked
	if p == nil {
		return
	}
	r.terminalFailures.begin(true)
	r.pump.SetParked(true)
	if !p.Until.IsZero() {
		r.parkTimer = time.AfterFunc(time.Until(p.Until), func() { r.ep.unpark(p) })
	}
}

// unpark ends this parking, or any if only is nil.
func (ep *Endpoint) unpark(only *Park) {
	ep.mu.Lock()
	p, r := ep.parked, ep.current
	if p == nil || only != nil && only != p {
		ep.mu.Unlock()
		return
	}
	ep.parked = nil
	if r != nil {
		timers.Stop(&r.parkTimer)
		r.terminalFailures.begin(false)
		if r.pump != nil {
			r.pump.SetParked(false)
		}
		r.notifyParkLocked(false, p)
	}
	ep.mu.Unlock()
	ep.log.endpoint.Info("endpoint is no longer parked; it receives again, and counts failed messages from 0", "parked_since", p.Since)
	if r == nil {
		ep.notifyPark(context.Background(), false, p)
		ep.savePark(context.Background(), nil)
	}
}

func (ep *Endpoint) notifyPark(ctx context.Context, parked bool, p *Park) {
	for _, o := range ep.observers.park {
		calls.Recover(ep.observerPanicked, func() { o.ParkChanged(ctx, ParkChange{ep.observed, parked, *p.clone()}) })
	}
}

// savePark tells the ParkStore, if there is one.
func (ep *Endpoint) savePark(ctx context.Context, p *Park) {
	store := ep.config.Recoverability.ParkStore
	if store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, parkSaveTimeout)
	defer cancel()
	err := errors.New("it panicked")
	calls.Recover(ep.observerPanicked, func() { err = store.SavePark(ctx, ep.observed, p.clone()) })
	if err != nil {
		ep.RaiseCritical(fmt.Errorf("whether the endpoint is parked (%t) could not be stored, so that the next process may start otherwise: SavePark: %w", p != nil, err))
	}
}

// loadPark reads the ParkStore, unless this process knows the state.
func (r *runner) loadPark(ctx context.Context) error {
	ep := r.ep
	store := ep.config.Recoverability.ParkStore
	ep.mu.Lock()
	if ep.parked != nil && !ep.parked.isInForce() {
		ep.parked = nil
	}
	known := ep.parked != nil
	ep.mu.Unlock()
	if known || store == nil {
		return nil
	}
	p, err := store.LoadPark(ctx, ep.observed)
	if err != nil {
		return fmt.Errorf("whether the endpoint is parked is unknown: LoadPark: %w", err)
	}
	if p.isInForce() {
		ep.mu.Lock()
		ep.parked = p.clone()
		ep.mu.Unlock()
	}
	return nil
}

// logLimit logs the effect of the limit at the start.
func (r *runner) logLimit(parked *Park) {
	c, log := &r.ep.config.Recoverability, r.ep.log.endpoint
	if c.UnacceptableMessageLimit == 0 {
		return
	}
	attrs := []any{
		slog.Int("limit", c.UnacceptableMessageLimit), slog.Duration("window", c.UnacceptableMessageWindow),
		slog.Bool("remembered", c.ParkStore != nil),
	}
	if r.limitAction() == LimitPark || c.ParkStore != nil {
		attrs = append(attrs, slog.Duration("park_for", c.ParkFor))
	}
	text := "Run ends when as many messages as the limit have failed for good"
	if r.limitAction() == LimitPark {
		text = "the endpoint is parked when as many messages as the limit have failed for good"
	}
	log.Info(text, attrs...)
	if parked != nil {
		log.Warn("the endpoint starts parked and receives nothing, because too many messages had failed for good; fix the cause, then call Resume",
			"parked_since", parked.Since, "parked_until", parked.Until, "failed", parked.Failed, "message_ids", parked.MessageIDs)
	}
}

// checkLimit checks the settings of UnacceptableMessageLimit.
func (r *resolvedConfig) checkLimit(errs *validationErrors) {
	c := &r.config.Recoverability
	const limit, window, action = "Recoverability.UnacceptableMessageLimit", "Recoverability.UnacceptableMessageWindow", "Recoverability.UnacceptableMessageAction"
	const parkFor, store = "Recoverability.ParkFor", "Recoverability.ParkStore"
	checkNotNegative(errs, limit, c.UnacceptableMessageLimit)
	checkNotNegative(errs, window, c.UnacceptableMessageWindow)
	checkNotNegative(errs, parkFor, c.ParkFor)
	if c.UnacceptableMessageAction < LimitAuto || c.UnacceptableMessageAction > LimitPark {
		errs.add("%s is %d, which is none of LimitAuto, LimitStop, LimitPark", action, int(c.UnacceptableMessageAction))
	}
	if c.UnacceptableMessageLimit == 0 {
		for _, field := range []struct {
			name  string
			isSet bool
		}{
			{window, c.UnacceptableMessageWindow > 0},
			{action, c.UnacceptableMessageAction > LimitAuto},
			{parkFor, c.ParkFor > 0},
			{store, c.ParkStore != nil},
		} {
			if field.isSet {
				errs.add("%s is set without UnacceptableMessageLimit; set the limit or remove it", field.name)
			}
		}
	}
	if c.UnacceptableMessageAction == LimitStop && c.ParkFor > 0 && c.ParkStore == nil {
		errs.add("%s is %v, but %s is Stop and there is no ParkStore, so that the endpoint is never parked; remove it, or use LimitPark", parkFor, c.ParkFor, action)
	}
	if c.ParkStore != nil && isNilPointer(c.ParkStore) {
		errs.add("%s is a nil pointer; remove it, or set one", store)
	}
}
