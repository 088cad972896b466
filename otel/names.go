package otelreprise

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/reprise-go/reprise/core"
)

// All names are in this file, so that another version of the semantic conventions changes
// only this file and the testdata of internal/test.

// Scope is the name of the tracer and the meter, by which views and samplers of an SDK
// select them.
const Scope = "github.com/reprise-go/reprise/otel"

// Headers.
const (
	// headerPrevious is set on a copy of a message that was attempted before: a delayed
	// retry, a deferral, a copy in an error queue or a forwarded one. It is the span of
	// that attempt, in the format of a traceparent.
	headerPrevious = "Reprise.Trace.Previous"
	// headerStartNewTrace is NServiceBus's: "True" asks the receiver for a new trace that
	// links to the sender's; with any other value the receiver continues the sender's
	// trace.
	headerStartNewTrace = "NServiceBus.OpenTelemetry.StartNewTrace"

	headerTraceParent = "traceparent"
	headerTraceState  = "tracestate"
	headerBaggage     = "baggage"

	startNew        = "True"
	continueCurrent = "False"
)

// other replaces the values of a metric attribute beyond its limit.
const other = "_OTHER"

// Attributes of Reprise. Those of semconv are named where they are used.
const (
	keyEndpoint       = attribute.Key("reprise.endpoint")
	keyInstance       = attribute.Key("reprise.instance")
	keyMessageType    = attribute.Key("reprise.message.type")
	keyAttempt        = attribute.Key("reprise.attempt")
	keyDelayedRetries = attribute.Key("reprise.delayed_retries")
	keyDeferrals      = attribute.Key("reprise.deferrals")
	keyOutcome        = attribute.Key("reprise.outcome")
	keyFallback       = attribute.Key("reprise.fallback")
	keyHandler        = attribute.Key("reprise.handler")
	keySendReason     = attribute.Key("reprise.send.reason")
	keyDelay          = attribute.Key("reprise.delay")
	keyAction         = attribute.Key("reprise.action")
	keyErrorQueue     = attribute.Key("reprise.destination")
	keyFailureReason  = attribute.Key("reprise.failure.reason")
	keyLink           = attribute.Key("reprise.link")
	keyPolicy         = attribute.Key("reprise.policy")
	keyCircuitState   = attribute.Key("reprise.circuit.state")
)

// Values of reprise.link.
var (
	linkToCreation = keyLink.String("creation")
	linkToPrevious = keyLink.String("previous_attempt")
)

// Values of reprise.outcome.
const (
	outcomeSucceeded = "succeeded"
	outcomeFallback  = "fallback"
	outcomeDuplicate = "duplicate"
	outcomeFailed    = "failed"
	outcomeDeferred  = "deferred"
	outcomeDiscarded = "discarded"
	outcomePutBack   = actionPutBack
	outcomeGivenUp   = "given_up"
)

// Values of reprise.action.
const (
	actionImmediateRetry = "immediate_retry"
	actionDelayedRetry   = "delayed_retry"
	actionDeferral       = "deferral"
	actionNewCopy        = "new_copy"
	actionError          = "error"
	actionDeadLetter     = "dead_letter"
	actionDiscard        = "discard"
	actionTakenOver      = "taken_over"
	actionPutBack        = "put_back"
)

// actionOf returns the name of the action for a failed message.
func actionOf(e *core.Recovery) string {
	switch {
	case e.TakenOver:
		return actionTakenOver
	case e.DeadLettered:
		return actionDeadLetter
	case e.Action.Kind == core.ActionDefer, e.Action.Kind == core.ActionRefuse:
		return actionDeferral
	case e.NewCopy:
		return actionNewCopy
	}
	switch e.Action.Kind {
	case core.ActionImmediateRetry:
		return actionImmediateRetry
	case core.ActionDelayedRetry:
		return actionDelayedRetry
	case core.ActionDiscard:
		return actionDiscard
	case core.ActionPutBack:
		return actionPutBack
	default:
		return actionError
	}
}

// Values of reprise.send.reason.
var sendReasons = map[core.SendReason]string{
	core.ReasonApplication:     "application",
	core.ReasonDelayedRetry:    actionDelayedRetry,
	core.ReasonDeferral:        actionDeferral,
	core.ReasonMoveToError:     actionError,
	core.ReasonAudit:           "audit",
	core.ReasonAcknowledgement: "acknowledgement",
	core.ReasonUndelivered:     "undelivered",
	core.ReasonForward:         "forward",
	core.ReasonNewCopy:         actionNewCopy,
	core.ReasonReturn:          "return",
}

// Names of operations. The operation types of semconv are not always the same words.
const (
	operationProcess = "process"
	operationSend    = "send"
	operationPublish = "publish"
	operationCreate  = "create"
)

// Names of metrics that are not semconv's.
const (
	metricCriticalTime         = "reprise.critical_time"
	metricActions              = "reprise.recoverability.actions"
	metricFailedAge            = "reprise.failed.age"
	metricAttempts             = "reprise.attempts"
	metricCircuitOpen          = "reprise.circuit.open"
	metricCircuitChanges       = "reprise.circuit.changes"
	metricUp                   = "reprise.endpoint.up"
	metricStarting             = "reprise.endpoint.starting"
	metricConnected            = "reprise.endpoint.connected"
	metricPaused               = "reprise.endpoint.paused"
	metricSendsFailing         = "reprise.endpoint.sends_failing"
	metricRateLimited          = "reprise.endpoint.rate_limited"
	metricInFlight             = "reprise.endpoint.in_flight"
	metricConcurrency          = "reprise.endpoint.concurrency"
	metricUndelivered          = "reprise.endpoint.undelivered"
	metricCriticalErrors       = "reprise.endpoint.critical_errors"
	metricNotificationsDropped = "reprise.endpoint.notifications_dropped"
)

// Bounds of histograms. durationBounds are those that semconv recommends.
var (
	durationBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	ageBounds      = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	attemptBounds  = []float64{1, 2, 3, 4, 5, 6, 8, 12, 18, 24, 36, 48}
)

// systemOf returns the attribute messaging.system.
func systemOf(info *core.TransportInfo) attribute.KeyValue {
	if info == nil || info.System == "" {
		return semconv.MessagingSystemKey.String(other)
	}
	return semconv.MessagingSystemKey.String(info.System)
}

// serverOf adds the server's attributes, as far as they are known.
func serverOf(info *core.TransportInfo, attrs []attribute.KeyValue) []attribute.KeyValue {
	if info == nil || info.ServerAddress == "" {
		return attrs
	}
	attrs = append(attrs, semconv.ServerAddress(info.ServerAddress))
	if info.ServerPort > 0 {
		attrs = append(attrs, semconv.ServerPort(info.ServerPort))
	}
	return attrs
}
