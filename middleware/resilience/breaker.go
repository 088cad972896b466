package resilience

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
)

// State is the state of a circuit breaker.
type State int

// The states of a circuit breaker.
const (
	Closed   State = iota // messages are let through
	Open                  // messages are refused
	HalfOpen              // one message is let through as a probe
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	default:
		return "half-open"
	}
}

// StateChange is a change of a circuit breaker's state.
type StateChange struct {
	Policy   string
	From, To State
	At       time.Time
	// Until is the end of the open state, if To is Open.
	Until time.Time
	// Cause is the text of the failure that opened the circuit.
	Cause string
}

// outcome is the evidence of a sequence, or a try, about the service that is called.
type outcome int

const (
	neutral outcome = iota // no evidence
	success
	failure
)

// breaker extends the circuit breaker of failsafe-go. A message that ended without a
// result returns its permit: otherwise the circuit would stay half-open forever. And a
// result counts only in the state in which its message was let through: a message that
// began before the circuit opened does not close it.
type breaker struct {
	config  Breaker
	changes func(StateChange) // called in order, without the lock
	name    string

	mu      sync.Mutex
	circuit circuitbreaker.CircuitBreaker[any] // called with mu held
	state   uint64                             // number of changes
	changed chan struct{}                      // closed by the next change
	quiet   bool                               // the current changes are not reported
	cause   string                             // the text of the last failure
	untold  []StateChange

	telling sync.Mutex
}

func newBreaker(name string, c Breaker, changes func(StateChange)) *breaker {
	b := &breaker{config: c, name: name, changes: changes, changed: make(chan struct{})}
	builder := circuitbreaker.NewBuilder[any]().WithDelay(c.OpenFor).WithSuccessThreshold(1).OnStateChanged(b.onChange)
	switch {
	case c.Within > 0:
		builder.WithFailureThresholdPeriod(uint(c.Failures), c.Within)
	case c.Of > 0:
		builder.WithFailureThresholdRatio(uint(c.Failures), uint(c.Of))
	default:
		builder.WithFailureThreshold(uint(c.Failures))
	}
	b.circuit = builder.Build()
	return b
}

// stateOf translates the states of failsafe-go.
func stateOf(s circuitbreaker.State) State {
	switch s {
	case circuitbreaker.OpenState:
		return Open
	case circuitbreaker.HalfOpenState:
		return HalfOpen
	default:
		return Closed
	}
}

// onChange is called by the circuit, with mu held.
func (b *breaker) onChange(e circuitbreaker.StateChangedEvent) {
	b.state++
	close(b.changed)
	b.changed = make(chan struct{})
	if b.quiet {
		return
	}
	change := StateChange{Policy: b.name, From: stateOf(e.OldState), To: stateOf(e.NewState), At: time.Now(), Cause: b.cause}
	if change.To == Open {
		change.Until = change.At.Add(b.config.OpenFor)
	}
	b.untold = append(b.untold, change)
}

// pass is a message that was let through. leave is called for it once.
type pass struct {
	breaker *breaker // nil after leave
	state   uint64
}

// enter lets a message through, or returns the reason and the end of its refusal. changed
// is closed when the state changes.
func (b *breaker) enter() (p pass, refused *RefusedError, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.unlock()
	if b.circuit.TryAcquirePermit() {
		return pass{b, b.state}, nil, nil
	}
	wait := b.circuit.RemainingDelay()
	if b.circuit.IsHalfOpen() { // the duration of the probe is unknown
		wait = b.config.OpenFor / 10
	}
	return pass{}, &RefusedError{Policy: b.name, By: StrategyBreaker, Until: time.Now().Add(wait), Cause: b.cause}, b.changed
}

// wait lets a message through as enter does, and waits for that up to MaxWait. It returns
// an error if ctx ends.
func (b *breaker) wait(ctx context.Context) (pass, *RefusedError, error) {
	deadline := time.Now().Add(b.config.MaxWait)
	for {
		p, refused, changed := b.enter()
		left := time.Until(deadline)
		if refused == nil || left <= 0 {
			return p, refused, nil
		}
		if err := pause(ctx, min(left, time.Until(refused.Until)), changed); err != nil {
			return pass{}, nil, err
		}
	}
}

// leave counts the result of a message, whose error is err.
func (p *pass) leave(o outcome, err error) {
	b := p.breaker
	if b == nil {
		return
	}
	text := ""
	if o == failure {
		text = readText(err) // users' code, which must not run with the lock held
	}
	p.breaker = nil
	b.mu.Lock()
	defer b.unlock()
	switch {
	case p.state != b.state: // a result from before a change
	case o == success:
		b.circuit.RecordSuccess()
	case o == failure:
		b.cause = text
		b.circuit.RecordFailure()
	case b.circuit.IsHalfOpen(): // the only way to return its permit
		b.quiet = true
		b.circuit.Open()
		b.circuit.HalfOpen()
		b.quiet = false
	}
}

// readText returns the text of an error, even if its method panics, as with a nil pointer
// for example.
func readText(err error) (text string) {
	defer func() {
		if value := recover(); value != nil {
			text = fmt.Sprintf("an error of type %T that panics when it is read (%v)", err, value)
		}
	}()
	return err.Error()
}

// unlock unlocks mu and reports changes.
func (b *breaker) unlock() {
	changed := len(b.untold) > 0
	b.mu.Unlock()
	if changed {
		b.tell()
	}
}

// tell reports changes in their order, unless another goroutine is doing that; that
// goroutine also reports changes that are added until it ends.
func (b *breaker) tell() {
	for b.hasUntold() && b.telling.TryLock() {
		for b.hasUntold() {
			b.mu.Lock()
			change := b.untold[0]
			b.untold = b.untold[1:]
			b.mu.Unlock()
			b.changes(change)
		}
		b.telling.Unlock()
	}
}

func (b *breaker) hasUntold() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.untold) > 0
}

// now returns the state. An open circuit whose time has passed is open until the next
// message.
func (b *breaker) now() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return stateOf(b.circuit.State())
}

// log logs a change.
func (c *StateChange) log(to *slog.Logger) {
	to = logger(to)
	switch {
	case c.To == Open && c.From == Closed:
		to.Warn("circuit is open; messages are refused", "policy", c.Policy, "until", c.Until, "error", c.Cause)
	case c.To == Closed:
		to.Info("circuit is closed", "policy", c.Policy)
	default:
		to.Debug("circuit changed", "policy", c.Policy, "from", c.From, "to", c.To, "until", c.Until, "error", c.Cause)
	}
}
