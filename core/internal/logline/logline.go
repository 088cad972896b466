// Package logline has the names of the loggers that log lines about failed messages carry,
// and those of their messages by which package logformat recognises them.
package logline

// Each failed attempt has one line, with the logger of the action that follows.
const (
	ImmediateRetry = "reprise.ImmediateRetry"
	DelayedRetry   = "reprise.DelayedRetry"
	Defer          = "reprise.Defer"
	PutBack        = "reprise.PutBack"
	MoveToError    = "reprise.MoveToError"
	Discard        = "reprise.Discard"
)

// The other loggers.
const (
	Recoverability = "reprise.Recoverability"
	RateLimit      = "reprise.RateLimit"
	Endpoint       = "reprise.Endpoint"
)

// Messages of lines.
const (
	RetryImmediately = "retrying message immediately"
	RetryAfterDelay  = "retrying message after a delay"
	MoveToErrorQueue = "moving message to the error queue"
)
