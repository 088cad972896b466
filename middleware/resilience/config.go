package resilience

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Config has the strategies of a policy and their common settings. A strategy whose
// fields are all 0 is left out; at least one is required.
type Config struct {
	// Name identifies the policy in errors, logs and at start-up: the name of the service
	// that it protects, for example. It is required.
	Name string

	Breaker    Breaker
	RateLimit  RateLimit
	Bulkhead   Bulkhead
	Timeout    time.Duration // of all tries with the pauses between them; 0 means none
	Retry      Retry
	TryTimeout time.Duration // of each try; 0 means none

	// Refusal is the action for a message that breaker, limiter or bulkhead refuse.
	Refusal Refusal

	// Logger gets a line when the circuit opens, and one when it closes. The default is
	// slog.Default().
	Logger *slog.Logger

	// OnStateChange is called for each change of the circuit breaker's state, in order,
	// by the goroutine of a handler: it must be quick. It may call methods of the policy.
	OnStateChange func(StateChange)
}

// Refusal is the action for a refused message.
type Refusal int

const (
	// Defer redelivers the message when it may be let through, with up to a fifth of
	// jitter (core.Refuse). It is not counted: an outage of an hour delays the message by
	// an hour and uses up no attempts. On a transport without delayed delivery the endpoint
	// pauses, for 1 min at most.
	Defer Refusal = iota
	// RetryAfter makes each refusal a failure with a delayed retry (core.RetryAfter), up to
	// Recoverability.RetryAfterLimit, 1 h by default, after which a message goes to the
	// error queue. It limits how long a message waits.
	RetryAfter
	// Fail is an error like any other: it uses up an attempt, and immediate retries
	// follow at once. It needs no delayed delivery. With MaxWait of the strategies the
	// message first waits in its handler.
	Fail
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
	default:
		return fmt.Sprintf("Refusal(%d)", int(r))
	}
}

// Breaker is a circuit breaker: after too many failures it opens and refuses messages for
// a while, and then is half-open: it lets one message through, whose success closes the
// circuit, and whose failure opens it again.
//
// A failure is an error of a whole sequence of tries. Neither failures nor successes are:
// verdicts, bodies that cannot be decoded, message types without a handler, unrecoverable
// errors of the endpoint, messages whose lock was lost or that were canceled by a
// shutdown, and errors that On and OnFunc do not select.
type Breaker struct {
	// Failures is the number of failures that open the circuit: in a row, among the last
	// Of results, or Within a time. It switches the breaker on.
	Failures int
	// Of is the number of results among which the Failures are counted, for a service
	// whose outages let some calls succeed. The default, 0, is Failures: in a row.
	Of int
	// Within counts the Failures within this time instead, for a service whose load
	// varies; it cannot be combined with Of.
	Within time.Duration
	// OpenFor is how long the circuit is open. The default is 30 s.
	OpenFor time.Duration
	// CountTries counts each try as a result, instead of a sequence of tries, for a
	// service that the tries of one message must not burden. If a try opens the circuit,
	// its sequence ends.
	CountTries bool
	// On and OnFunc select the errors that are failures: those that match one of On
	// (errors.Is), or for which OnFunc returns true. If neither is set, all errors are.
	// The time-outs of the policy (Timeout, TryTimeout) always are.
	On     []error
	OnFunc func(error) bool
	// MaxWait is how long a message waits in its handler for the circuit to close before
	// it is refused. It keeps its slot and its lock. The default, 0, means no wait.
	MaxWait time.Duration
}

// RateLimit lets a number of messages through in a time. It counts sequences of tries.
type RateLimit struct {
	// Messages is the number of messages let through Per time. It switches the limiter on.
	Messages int
	// Per is the time. The default is 1 s.
	Per time.Duration
	// Burst lets all Messages of a time through as they arrive, for a service that counts
	// calls in a window. Otherwise they are spread evenly: 10 in 1 s are one in 100 ms.
	Burst bool
	// MaxWait is how long a message waits in its handler for its turn before it is
	// refused. The default, 0, means no wait.
	MaxWait time.Duration
}

// Bulkhead limits the number of messages that are handled at the same time.
type Bulkhead struct {
	// Concurrency is that number. It switches the bulkhead on.
	Concurrency int
	// MaxWait is how long a message waits in its handler for a place before it is
	// refused. The default, 0, means no wait.
	MaxWait time.Duration
	// RefuseFor is the time after which a refused message is redelivered. Set it where
	// handlers take much longer than the default, 1 s.
	RefuseFor time.Duration
}

// Retry runs the handlers of a message several times within one attempt. The outgoing
// messages of a failed try are dropped.
//
// Verdicts, refusals, bodies that cannot be decoded, message types without a handler,
// unrecoverable errors of the endpoint and panics are not tried again, nor is a message
// whose context has ended: a time-out around the tries, a lost lock or a shutdown end a
// pause at once.
type Retry struct {
	// Tries is the most tries, the first one included. It switches retries on.
	Tries int
	// Delay is the pause after the first try. The default is 100 ms.
	Delay time.Duration
	// Factor multiplies each further pause. The default is 2; 1 keeps the pauses equal.
	Factor float64
	// MaxDelay limits a pause before jitter. The default is the larger of 10 s and Delay.
	MaxDelay time.Duration
	// Jitter lengthens or shortens each pause by a random fraction of it, up to Jitter.
	// The default is 0.2; core.Off means none.
	Jitter float64
	// On and OnFunc select the errors that are tried again: those that match one of On
	// (errors.Is), or for which OnFunc returns true. If neither is set, all errors are. A
	// time-out of a try (TryTimeout) always is.
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

// problems collects the mistakes in a Config.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

// resolve returns c with its defaults, or all mistakes in it.
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
	if c.Refusal < Defer || c.Refusal > Fail {
		p.add("Refusal is %d, which is none of Defer, RetryAfter, Fail", int(c.Refusal))
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

// switchedOn checks the field that switches a strategy on.
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
