package core

import (
	"fmt"

	"github.com/reprise-go/reprise/core/health"
	"github.com/reprise-go/reprise/core/internal/pump"
)

// Health returns the endpoint's state. Package core/health/probes answers probes from
// it.
func (ep *Endpoint) Health() health.State {
	states := ep.registry.middlewareStates() // their code may call the endpoint
	ep.mu.Lock()
	defer ep.mu.Unlock()
	h := health.State{
		Endpoint: ep.name, Instance: ep.instance, Queue: ep.address,
		Middleware: states,
		Paused:     ep.paused, Concurrency: ep.concurrency,
		Waiting:        health.Waiting{Undelivered: ep.undelivered(), UnreachableSince: ep.unreachable.OldestOutage()},
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
	h.EventsWithoutSubscriber, h.UnreachableSubscribers = ep.sender.unsubscribed.totals()
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

// Ready returns a channel that is closed once [Endpoint.Run] receives messages, and stays
// open if Run fails before. After Run has returned, call Ready again for the next one.
func (ep *Endpoint) Ready() <-chan struct{} {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.ready
}

// SetConcurrency changes the number of messages handled at the same time, also while the
// endpoint runs. Messages being handled are not interrupted; unstarted ones without a slot
// are given back, as by [Endpoint.Pause].
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

// Pause stops receiving until [Endpoint.Resume], over several Runs. Messages being handled
// are finished; unstarted ones are given back or, if the broker would count that as an
// attempt ([Guarantees.CountsReleases]), handled.
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
