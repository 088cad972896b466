package otelreprise

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	corehealth "github.com/reprise-go/reprise/core/health"
)

// health observes gauges of the state of endpoints whenever a reader collects.
type health struct {
	mu      sync.Mutex
	runs    map[runKey]*run
	spans   map[trace.SpanID]int // spans around calls of Run, which attempts do not belong to
	senders map[runKey]*sender

	up, starting, connected, paused, rateLimited, sendsFailing, concurrency, inFlight, undelivered metric.Int64ObservableGauge
	circuitOpen                                                                                    metric.Int64ObservableGauge
	criticalErrors, notificationsDropped                                                           metric.Int64ObservableCounter
}

// runKey identifies an endpoint. Its counts continue when it runs again.
type runKey struct{ endpoint, instance string }

// run is an endpoint that is running, or was.
type run struct {
	key      runKey
	ep       *core.Endpoint // nil: it is not running now
	options  []metric.ObserveOption
	critical int64
	dropped  int64 // in all Runs that have ended
}

// sender is a send-only endpoint that has had a failed send. It has no Run.
type sender struct {
	options []metric.ObserveOption
	failing bool
}

// maxRuns is the most endpoints in runs, those that have stopped (up = 0) included, and
// the most senders.
const maxRuns = 100

func (h *health) register(m metric.Meter) {
	var problems [13]error
	gauge := func(problem *error, name, unit, description string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		*problem = err
		return g
	}
	counter := func(problem *error, name, unit, description string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		*problem = err
		return c
	}
	h.up = gauge(&problems[0], metricUp, "1", "1 while the endpoint receives messages, or would if it were not paused; 0 while it starts or drains, and afterwards.")
	h.starting = gauge(&problems[10], metricStarting, "1", "1 from the beginning of Run until the endpoint receives, also while it waits for its broker.")
	h.connected = gauge(&problems[1], metricConnected, "1", "0 during an outage that the transport reported, and until the first connection; of a send-only endpoint, while its sends fail.")
	h.paused = gauge(&problems[2], metricPaused, "1", "1 while the endpoint is paused.")
	h.sendsFailing = gauge(&problems[11], metricSendsFailing, "1", "1 since a send failed that says something of the broker, until one is accepted.")
	h.rateLimited = gauge(&problems[3], metricRateLimited, "1", "1 while one message is attempted at a time, after consecutive failures.")
	h.circuitOpen = gauge(&problems[12], metricCircuitOpen, "1", "1 while a circuit of the endpoint's middleware is open or half-open, 0 while it lets messages through.")
	h.concurrency = gauge(&problems[4], metricConcurrency, "{message}", "How many messages may be handled at the same time.")
	h.inFlight = gauge(&problems[5], metricInFlight, "{message}", "Messages that are being handled.")
	h.undelivered = gauge(&problems[6], metricUndelivered, "{message}", "Messages that wait because their destination, such as the error queue, cannot be reached.")
	h.criticalErrors = counter(&problems[7], metricCriticalErrors, "{error}", "Critical errors: operations that the endpoint must perform and could not.")
	h.notificationsDropped = counter(&problems[8], metricNotificationsDropped, "{event}", "Events that observers missed because they were too slow; recovery actions are counted from such events.")
	_, problems[9] = m.RegisterCallback(h.observe, h.up, h.starting, h.connected, h.paused, h.rateLimited, h.sendsFailing, h.circuitOpen, h.concurrency, h.inFlight, h.undelivered, h.criticalErrors, h.notificationsDropped)
	tell(problems[:]...)
}

// runStarted is the function RunStarted of core.Observer.
func (o *Observer) runStarted(ctx context.Context, ep *core.Endpoint) {
	o.bounds.messageTypes.reserve(ep.MessageTypes()...)
	h := &o.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs, h.spans = map[runKey]*run{}, map[trace.SpanID]int{}
	}
	key := runKey{ep.Name(), ep.Health().Instance}
	r := h.runs[key]
	if r == nil {
		h.forgetOne()
		r = &run{key: key, options: key.options()}
		h.runs[key] = r
	}
	r.ep = ep
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		h.spans[span.SpanID()]++
	}
}

func (k runKey) options() []metric.ObserveOption {
	return []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(keyEndpoint.String(k.endpoint), keyInstance.String(k.instance)))}
}

// connectionChanged is for send-only endpoints. The Health of running endpoints is queried
// instead.
func (o *Observer) connectionChanged(e core.ConnectionChange) {
	if e.Queue != "" {
		return
	}
	h := &o.health
	h.mu.Lock()
	defer h.mu.Unlock()
	key := runKey{e.Endpoint, e.Instance}
	s := h.senders[key]
	switch {
	case s != nil:
	case len(h.senders) >= maxRuns:
		return
	default:
		if h.senders == nil {
			h.senders = map[runKey]*sender{}
		}
		s = &sender{options: key.options()}
		h.senders[key] = s
	}
	s.failing = !e.Connected
}

// forgetOne makes room for another endpoint.
func (h *health) forgetOne() {
	if len(h.runs) < maxRuns {
		return
	}
	for key, r := range h.runs {
		if r.ep == nil {
			delete(h.runs, key)
			return
		}
	}
}

// runEnded is the function RunEnded of core.Observer.
func (o *Observer) runEnded(ctx context.Context, ep *core.Endpoint, _ error) {
	last := ep.Health()
	h := &o.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[runKey{last.Endpoint, last.Instance}]; r != nil && r.ep == ep {
		r.ep = nil
		r.critical = last.CriticalErrors
		r.dropped += last.NotificationsDropped
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		if h.spans[span.SpanID()]--; h.spans[span.SpanID()] <= 0 {
			delete(h.spans, span.SpanID())
		}
	}
}

// isOfRun reports whether a span is around a Run.
func (h *health) isOfRun(span trace.SpanContext) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spans[span.SpanID()] > 0
}

// snapshot returns the runs and the senders, so that no lock is held while endpoints are
// queried.
func (h *health) snapshot() (runs []run, senders []sender) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range maps.Values(h.runs) {
		runs = append(runs, *r)
	}
	for s := range maps.Values(h.senders) {
		senders = append(senders, *s)
	}
	return runs, senders
}

func (h *health) observe(_ context.Context, to metric.Observer) error {
	runs, senders := h.snapshot()
	for _, s := range senders {
		to.ObserveInt64(h.connected, number(!s.failing), s.options...)
		to.ObserveInt64(h.sendsFailing, number(s.failing), s.options...)
	}
	for _, r := range runs {
		if r.ep == nil {
			to.ObserveInt64(h.up, 0, r.options...)
			to.ObserveInt64(h.criticalErrors, r.critical, r.options...)
			to.ObserveInt64(h.notificationsDropped, r.dropped, r.options...)
			continue
		}
		now := r.ep.Health()
		to.ObserveInt64(h.up, number(now.Running), r.options...)
		to.ObserveInt64(h.starting, number(now.Starting), r.options...)
		to.ObserveInt64(h.connected, number(now.Connected), r.options...)
		to.ObserveInt64(h.paused, number(now.Paused), r.options...)
		to.ObserveInt64(h.sendsFailing, number(!now.SendsFailingSince.IsZero()), r.options...)
		to.ObserveInt64(h.rateLimited, number(now.RateLimited), r.options...)
		to.ObserveInt64(h.concurrency, int64(now.Concurrency), r.options...)
		to.ObserveInt64(h.inFlight, int64(now.InFlight), r.options...)
		to.ObserveInt64(h.undelivered, int64(now.Undelivered), r.options...)
		to.ObserveInt64(h.criticalErrors, now.CriticalErrors, r.options...)
		to.ObserveInt64(h.notificationsDropped, r.dropped+now.NotificationsDropped, r.options...)
		for policy, open := range openCircuits(now.Middleware) {
			to.ObserveInt64(h.circuitOpen, number(open), metric.WithAttributeSet(attribute.NewSet(
				keyEndpoint.String(r.key.endpoint), keyInstance.String(r.key.instance), keyPolicy.String(policy))))
		}
	}
	return nil
}

// closed is the state of a circuit that lets messages through (core.MiddlewareFacts).
const closed = "closed"

// openCircuits returns the names of the circuits, each with whether a circuit of that
// name is open.
func openCircuits(states []corehealth.MiddlewareState) map[string]bool {
	open := map[string]bool{}
	for _, s := range states {
		if s.OpensCircuit {
			open[s.Name] = open[s.Name] || s.State != closed
		}
	}
	return open
}

// CircuitChanged counts a change of the state of a circuit. It is for OnStateChange of
// package resilience: the gauge reprise.circuit.open alone misses a circuit that is open
// only between two readings.
//
//	OnStateChange: func(c resilience.StateChange) { observer.CircuitChanged(c.Policy, c.To) },
func (o *Observer) CircuitChanged(policy string, to fmt.Stringer) {
	o.instruments.circuitChanges.Add(context.Background(), 1, metric.WithAttributeSet(attribute.NewSet(
		keyPolicy.String(o.bounds.policy(policy)), keyCircuitState.String(strings.ReplaceAll(to.String(), "-", "_")))))
}

func number(on bool) int64 {
	if on {
		return 1
	}
	return 0
}
