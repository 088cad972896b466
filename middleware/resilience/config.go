package resilience

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Config is the strategies of a policy and what they share. A strategy whose fields are all 0
// is left out; at least one must be there.
type Config struct {
	// Name tells the policy from others in errors, logs and at start-up: that of the service
	// that it protects, for example. It must be set.
	Name string

	Breaker    Breaker
	RateLimit  RateLimit
	Bulkhead   Bulkhead
	Timeout    time.Duration // of all tries with the pauses between them; 0 is none
	Retry      Retry
	TryTimeout time.Duration // of each try; 0 is none

	// Refusal says what becomes of a message that breaker, limiter or bulkhead refuse.
	Refusal Refusal

	// Logger gets a line when the circuit opens, and one when it closes. The default is
	// slog.Default().
	Logger *slog.Logger

	// OnStateChange is called when the circuit breaker changes its state, for each change in
	// its order, by the goroutine of a handler: it must be quick. It may call methods of the
	// policy.
	OnStateChange func(StateChange)
}

// Refusal says what becomes of a message that is refused.
type Refusal int

const (
	// Defer lets the message be delivered again when it may be let through, with up to a
	// fifth of jitter (core.Refuse). It is not counted: an outage of an hour costs the message
	// nothing but the hour.
	Defer Refusal = iota
	// RetryAfter takes one of the message's delayed retries for each refusal (core.RetryAfter):
	// with three of them, and a circuit that is open for 30 s at a time, a message is in the
	// error queue after an outage of two minutes. It bounds how long a message waits.
	RetryAfter
	// Fail is an error like any other: it takes an attempt, and immediate retries follow at
	// once. It needs no delayed delivery. With MaxWait of the strategies the message waits in
	// its handler first.
	Fail
	// PutBack leaves the message in its queue and lets it wait alone (core.PutBack with
	// core.PauseMessage). It is not counted, as with Defer, and where the broker counts
	// failures only it keeps its place and needs no delayed delivery. This instance keeps
	// such messages for the pause, 1,000 of them at most: then the endpoint waits. Elsewhere a
	// copy waits, as with Defer; without delayed delivery the endpoint does.
	PutBack
)

// String returns the constant's name.
func (r Refusal) String() string {
	switch r {
	case Defer:
		return "Defer"
	case RetryAfter:
		return "RetryAfter"
	case Fail:
		return "Fail"
	case PutBack:
		return "PutBack"
	default:
		return fmt.Sprintf("Refusal(%d)", int(r))
	}
}

// Breaker is a circuit breaker: after too many failures it is open and refuses messages for a
// while, then half-open, where one message alone is let through: its success closes the
// circuit, its failure opens it again.
//
// A failure is an error of a whole sequence of tries. Verdicts, bodies that cannot be decoded,
// message types without a handler, unrecoverable errors of the endpoint, and messages whose
// lock was lost or that a shutdown cut off are neither failures nor successes, and so are
// errors that On and OnFunc do not select.
type Breaker struct {
	// Failures is how many open the circuit: in a row, of the last Of results, or Within a
	// time. It switches the breaker on.
	Failures int
	// Of is of how many results the Failures are counted. The default, 0, is Failures: in a row.
	Of int
	// Within counts the Failures of this time instead; it goes without Of.
	Within time.Duration
	// OpenFor is for how long the circuit is open. The default is 30 s.
	OpenFor time.Duration
	// CountTries counts each try as a result, instead of a sequence of tries. A sequence whose
	// try opens the circuit ends there.
	CountTries bool
	// On and OnFunc select the errors that are failures: those that match one of On
	// (errors.Is), or for which OnFunc returns true. Without both all are. The time-outs of
	// the policy (Timeout, TryTimeout) always are.
	On     []error
	OnFunc func(error) bool
	// MaxWait is how long a message waits in its handler for the circuit to close before it is
	// refused. It keeps its slot and its lock. The default, 0, is not at all.
	MaxWait time.Duration
}

// RateLimit lets a number of messages through in a time. It counts sequences of tries.
type RateLimit struct {
	// Messages is how many are let through Per time. It switches the limiter on.
	Messages int
	// Per is the time. The default is 1 s.
	Per time.Duration
	// Burst lets all Messages of a time through as they come. Otherwise they are spread
	// evenly: 10 in 1 s are one in 100 ms.
	Burst bool
	// MaxWait is how long a message waits in its handler for its turn before it is refused.
	// The default, 0, is not at all.
	MaxWait time.Duration
}

// Bulkhead bounds how many messages are handled at the same time.
type Bulkhead struct {
	// Concurrency is how many. It switches the bulkhead on.
	Concurrency int
	// MaxWait is how long a message waits in its handler for a place before it is refused.
	// The default, 0, is not at all.
	MaxWait time.Duration
	// RefuseFor is after what time a refused message is delivered again. The default is 1 s.
	RefuseFor time.Duration
}

// Retry runs the handlers of a message several times within one attempt. What a failed try
// collected to be sent is dropped.
//
// Verdicts, refusals, bodies that cannot be decoded, message types without a handler,
// unrecoverable errors of the endpoint and panics are not tried again, nor is a message whose
// context has ended: a time-out around the tries, a lost lock or a shutdown end a pause at once.
type Retry struct {
	// Tries is how many there are at most, the first included. It switches retries on.
	Tries int
	// Delay is the pause after the first try. The default is 100 ms.
	Delay time.Duration
	// Factor multiplies each further pause. The default is 2; 1 keeps them alike.
	Factor float64
	// MaxDelay bounds a pause before jitter. The default is the larger of 10 s and Delay.
	MaxDelay time.Duration
	// Jitter makes each pause longer or shorter by a random part of it, of up to Jitter. The
	// default is 0.2; core.Off is none.
	Jitter float64
	// On and OnFunc select the errors that are tried again: those that match one of On
	// (errors.Is), or for which OnFunc returns true. Without both all are. A time-out of a try
	// (TryTimeout) always is.
	On     []error
	OnFunc func(error) bool
}

// Defaults of Config.
const (
	defaultOpenFor   = 30 * time.Second
	defaultRefuseFor = time.Second
	defaultDelay     = 100 * time.Millisecond
	defaultMaxDelay  = 10 * time.Second
	defaultFactor    = 2
	defaultJitter    = 0.2

	refusalJitter = 0.2 // of the delay of a refused message
)

// problems collects what is wrong with a Config.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// resolve returns c with its defaults, or all that is wrong with it.
func (c Config) resolve() (Config, error) {
	var p problems
	if c.Name == "" {
		p.add("Name is empty; name the service that the policy protects")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"Timeout", c.Timeout}, {"TryTimeout", c.TryTimeout},
		{"Breaker.Within", c.Breaker.Within}, {"Breaker.OpenFor", c.Breaker.OpenFor}, {"Breaker.MaxWait", c.Breaker.MaxWait},
		{"RateLimit.Per", c.RateLimit.Per}, {"RateLimit.MaxWait", c.RateLimit.MaxWait},
		{"Bulkhead.MaxWait", c.Bulkhead.MaxWait}, {"Bulkhead.RefuseFor", c.Bulkhead.RefuseFor},
		{"Retry.Delay", c.Retry.Delay}, {"Retry.MaxDelay", c.Retry.MaxDelay},
	} {
		if d.value < 0 {
			p.add("%s is %v; it cannot be negative", d.field, d.value)
		}
	}
	if c.Refusal < Defer || c.Refusal > PutBack {
		p.add("Refusal is %d, which is none of Defer, RetryAfter, Fail, PutBack", int(c.Refusal))
	}
	b, l, h, r := &c.Breaker, &c.RateLimit, &c.Bulkhead, &c.Retry
	switchedOn(&p, "Breaker", "Failures", b.Failures, b.Of != 0 || b.Within != 0 || b.OpenFor != 0 || b.CountTries || b.On != nil || b.OnFunc != nil || b.MaxWait != 0)
	switchedOn(&p, "RateLimit", "Messages", l.Messages, l.Per != 0 || l.Burst || l.MaxWait != 0)
	switchedOn(&p, "Bulkhead", "Concurrency", h.Concurrency, h.MaxWait != 0 || h.RefuseFor != 0)
	switchedOn(&p, "Retry", "Tries", r.Tries, r.Delay != 0 || r.Factor != 0 || r.MaxDelay != 0 || r.Jitter != 0 || r.On != nil || r.OnFunc != nil)
	if b.Failures == 0 && l.Messages == 0 && h.Concurrency == 0 && r.Tries == 0 && c.Timeout == 0 && c.TryTimeout == 0 {
		p.add("there is no strategy; set Breaker.Failures, RateLimit.Messages, Bulkhead.Concurrency, Timeout, Retry.Tries or TryTimeout")
	}
	switch {
	case b.Of != 0 && b.Within != 0:
		p.add("Breaker has Of %d and Within %v; remove one of the two", b.Of, b.Within)
	case b.Of != 0 && b.Of < b.Failures:
		p.add("Breaker.Of is %d, of which there are never %d Failures; raise it", b.Of, b.Failures)
	}
	if r.Tries == 1 {
		p.add("Retry.Tries is 1, the first try included; use 2 or more, or 0 for no retries")
	}
	if r.Factor != 0 && !(r.Factor >= 1 && r.Factor <= 1e6) {
		p.add("Retry.Factor is %v; use 1 or more", r.Factor)
	}
	if r.Jitter != core.Off && !(r.Jitter >= 0 && r.Jitter <= 1) {
		p.add("Retry.Jitter is %v; use a part between 0 and 1, or core.Off", r.Jitter)
	}
	if c.Timeout > 0 && c.TryTimeout >= c.Timeout {
		p.add("TryTimeout is %v, which Timeout %v never lets end; lower it, or remove one of the two", c.TryTimeout, c.Timeout)
	}
	orDefault(&b.OpenFor, defaultOpenFor)
	orDefault(&l.Per, time.Second)
	orDefault(&h.RefuseFor, defaultRefuseFor)
	orDefault(&r.Delay, defaultDelay)
	orDefault(&r.Factor, defaultFactor)
	orDefault(&r.MaxDelay, max(defaultMaxDelay, r.Delay))
	orDefault(&r.Jitter, defaultJitter)
	if r.Jitter == core.Off {
		r.Jitter = 0
	}
	if r.MaxDelay < r.Delay {
		p.add("Retry.MaxDelay is %v, below Delay %v; raise it", r.MaxDelay, r.Delay)
	}
	if l.Messages > 0 && l.Per/time.Duration(l.Messages) == 0 {
		p.add("RateLimit is %d messages in %v, which is no limit", l.Messages, l.Per)
	}
	return c, errors.Join(p...)
}

// switchedOn checks the field by which a strategy is there.
func switchedOn(p *problems, strategy, field string, value int, others bool) {
	switch {
	case value < 0 || value > math.MaxInt32:
		p.add("%s.%s is %d; it cannot be negative or above %d", strategy, field, value, math.MaxInt32)
	case value == 0 && others:
		p.add("%s is configured without %s, which would leave it off; set %s", strategy, field, field)
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
