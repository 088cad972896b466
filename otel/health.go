package otelreprise

import (
	"context"
	"maps"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
)

// health makes gauges of the state of endpoints that run, when a reader collects.
type health struct {
	mu    sync.Mutex
	runs  map[runKey]*run
	spans map[trace.SpanID]int // of the contexts of Run, which attempts do not belong to

	up, connected, paused, rateLimited, concurrency, inFlight, undelivered metric.Int64ObservableGauge
	criticalErrors, notificationsDropped                                   metric.Int64ObservableCounter
}

// runKey names an endpoint. One that runs again goes on with its counts.
type runKey struct{ endpoint, instance string }

// run is an endpoint that runs, or has run.
type run struct {
	ep       *core.Endpoint // nil: it does not run now
	options  []metric.ObserveOption
	critical int64
	dropped  int64 // in all Runs that have ended
}

// mostRuns is how many endpoints that run no more are told of with up = 0.
const mostRuns = 100

func (h *health) register(m metric.Meter) {
	var problems [10]error
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
	h.up = gauge(&problems[0], metricUp, "1", "1 while the endpoint receives messages, or would if it were not paused; 0 afterwards.")
	h.connected = gauge(&problems[1], metricConnected, "1", "0 during an outage that the transport reported.")
	h.paused = gauge(&problems[2], metricPaused, "1", "1 while the endpoint is paused.")
	h.rateLimited = gauge(&problems[3], metricRateLimited, "1", "1 while one message is attempted at a time, after consecutive failures.")
	h.concurrency = gauge(&problems[4], metricConcurrency, "{message}", "How many messages may be handled at the same time.")
	h.inFlight = gauge(&problems[5], metricInFlight, "{message}", "Messages that are being handled.")
	h.undelivered = gauge(&problems[6], metricUndelivered, "{message}", "Messages that wait because their destination, such as the error queue, cannot be reached.")
	h.criticalErrors = counter(&problems[7], metricCriticalErrors, "{error}", "What the endpoint must do and could not.")
	h.notificationsDropped = counter(&problems[8], metricNotificationsDropped, "{event}", "Events that observers missed because they were too slow; recovery actions are counted from such events.")
	_, problems[9] = m.RegisterCallback(h.observe, h.up, h.connected, h.paused, h.rateLimited, h.concurrency, h.inFlight, h.undelivered, h.criticalErrors, h.notificationsDropped)
	tell(problems[:]...)
}

// RunStarted implements core.RunObserver.
func (o *Observer) RunStarted(ctx context.Context, ep *core.Endpoint) {
	h := &o.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs, h.spans = map[runKey]*run{}, map[trace.SpanID]int{}
	}
	key := runKey{ep.Name(), ep.Instance()}
	r := h.runs[key]
	if r == nil {
		h.forgetOne()
		r = &run{options: []metric.ObserveOption{metric.WithAttributes(keyEndpoint.String(key.endpoint), keyInstance.String(key.instance))}}
		h.runs[key] = r
	}
	r.ep = ep
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		h.spans[span.SpanID()]++
	}
}

// forgetOne makes room for another endpoint.
func (h *health) forgetOne() {
	if len(h.runs) < mostRuns {
		return
	}
	for key, r := range h.runs {
		if r.ep == nil {
			delete(h.runs, key)
			return
		}
	}
}

// RunEnded implements core.RunObserver.
func (o *Observer) RunEnded(ctx context.Context, ep *core.Endpoint, _ error) {
	last := ep.Health()
	h := &o.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.runs[runKey{ep.Name(), ep.Instance()}]; r != nil && r.ep == ep {
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

// snapshot returns the runs, so that no lock is held while an endpoint is asked.
func (h *health) snapshot() []run {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := make([]run, 0, len(h.runs))
	for r := range maps.Values(h.runs) {
		runs = append(runs, *r)
	}
	return runs
}

func (h *health) observe(_ context.Context, to metric.Observer) error {
	for _, r := range h.snapshot() {
		if r.ep == nil {
			to.ObserveInt64(h.up, 0, r.options...)
			to.ObserveInt64(h.criticalErrors, r.critical, r.options...)
			to.ObserveInt64(h.notificationsDropped, r.dropped, r.options...)
			continue
		}
		now := r.ep.Health()
		to.ObserveInt64(h.up, number(now.Running), r.options...)
		to.ObserveInt64(h.connected, number(now.Connected), r.options...)
		to.ObserveInt64(h.paused, number(now.Paused), r.options...)
		to.ObserveInt64(h.rateLimited, number(now.RateLimited), r.options...)
		to.ObserveInt64(h.concurrency, int64(now.Concurrency), r.options...)
		to.ObserveInt64(h.inFlight, int64(now.InFlight), r.options...)
		to.ObserveInt64(h.undelivered, int64(now.Undelivered), r.options...)
		to.ObserveInt64(h.criticalErrors, now.CriticalErrors, r.options...)
		to.ObserveInt64(h.notificationsDropped, r.dropped+now.NotificationsDropped, r.options...)
	}
	return nil
}

func number(on bool) int64 {
	if on {
		return 1
	}
	return 0
}
