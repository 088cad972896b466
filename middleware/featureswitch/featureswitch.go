// Package featureswitch switches handlers off and on while their endpoint runs. The
// messages of a feature that is off stay in their queue, or are discarded, deferred,
// rejected or skipped, as configured.
//
//	refunds, err := featureswitch.New(featureswitch.Config{Name: "refunds", State: featureswitch.Off})
//	...
//	config.Middleware = []core.Middleware{refunds.For("orders.refund")}
//	...
//	refunds.Set(featureswitch.On) // the waiting messages are handled after their pause
package featureswitch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// State is the state of a feature.
type State int32

// The states.
const (
	Unknown State = iota // see Config.Unknown
	On
	Off
)

// String returns the state in a word.
func (s State) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case On:
		return "on"
	case Off:
		return "off"
	default:
		return fmt.Sprintf("State(%d)", int32(s))
	}
}

// Answer is the action for a message whose feature is off.
type Answer int

// The answers.
const (
	// Leave lets the message wait in its queue for Config.Pause, again and again
	// (core.Refuse). Nothing is counted.
	Leave Answer = iota
	// Discard drops the message (core.Discard), and logs that.
	Discard
	// Skip treats the message as handled, without calling its handlers. In
	// core.HandleOptions.Middleware it skips only that handler, and the others run.
	Skip
	// Defer redelivers a copy of the message after Config.Delay (core.Defer), which
	// counts as a deferral.
	Defer
	// Reject moves the message to the dead-letter queue if there is one, and else to the
	// error queue (core.GiveUpTo with core.DeadLetterQueue).
	Reject
	// Fail is an error like any other: the message is retried.
	Fail
)

var answers = []string{"Leave", "Discard", "Skip", "Defer", "Reject", "Fail"}

// String returns the name of the answer.
func (a Answer) String() string {
	if a < 0 || int(a) >= len(answers) {
		return fmt.Sprintf("Answer(%d)", int(a))
	}
	return answers[a]
}

// ErrOff is the error of a message whose feature is off, and ErrUnknown of a message
// whose feature is neither on nor off. Errors match them by errors.Is.
var (
	ErrOff     = errors.New("feature is off")
	ErrUnknown = errors.New("it is not known whether the feature is on")
)

// Config describes a feature and its states. Name is required, and either State or
// Lookup.
type Config struct {
	// Name is the name of the feature, for errors, the log and Health.
	Name string

	// State is the initial state, On or Off. Switch.Set changes it.
	State State
	// Lookup, instead of State, returns the state for each message, from the
	// application's configuration for example. It is called by several goroutines, and
	// must not block.
	Lookup func() State

	// Off is the action for a message while the feature is off. The default is Leave.
	Off Answer
	// Unknown replaces the state Unknown: On or Off. Without it a message fails with
	// ErrUnknown, and is retried.
	Unknown State

	// Pause is the time after which a message that waits is redelivered, and the longest
	// time until it is handled after its feature was switched on. The default is 30 s; with
	// WholeEndpoint it is 1 s at first, and up to 30 s, as of core.PutBack.
	Pause time.Duration
	// Delay is the time for which a message is deferred. The default is that of core.Defer.
	Delay time.Duration
	// WholeEndpoint stops the endpoint from receiving any message for the pause
	// (core.PutBack), because other instances may be able to handle the message. Without
	// it, messages of other types are handled.
	WholeEndpoint bool

	// Logger gets a line at Info for each Set. The default is slog.Default().
	Logger *slog.Logger
}

func (c *Config) check() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if strings.TrimSpace(c.Name) == "" {
		add("Name is empty; name the feature")
	}
	switch {
	case c.State < Unknown || c.State > Off:
		add("State is %v; use On or Off", c.State)
	case c.Lookup == nil && c.State == Unknown:
		add("there is neither State nor Lookup; set State to On or Off, or Lookup")
	case c.Lookup != nil && c.State != Unknown:
		add("State is %v, but Lookup decides; remove one of the two", c.State)
	case c.Lookup == nil && c.Unknown != Unknown:
		add("Unknown is %v, but without Lookup the state is always known; remove it", c.Unknown)
	}
	if c.Unknown < Unknown || c.Unknown > Off {
		add("Unknown is %v; use On or Off, or leave it out", c.Unknown)
	}
	if c.Off < Leave || c.Off > Fail {
		add("Off is %v; use one of %s", c.Off, strings.Join(answers, ", "))
	}
	if c.Pause < 0 || c.Delay < 0 {
		add("Pause is %v and Delay is %v; they cannot be negative", c.Pause, c.Delay)
	}
	if c.Off != Leave && (c.Pause > 0 || c.WholeEndpoint) {
		add("Pause and WholeEndpoint are for Leave, but Off is %v; remove them", c.Off)
	}
	if c.Off != Defer && c.Delay > 0 {
		add("Delay is for Defer, but Off is %v; remove it", c.Off)
	}
	return errors.Join(errs...)
}

// Switch is a feature that is on or off. The same value given to several endpoints,
// message types and handlers is the same feature. It is safe for concurrent use.
type Switch struct {
	config Config
	state  atomic.Int32
}

// defaultPause is the pause of single messages.
const defaultPause = 30 * time.Second

// New makes a switch. Its error lists all mistakes.
func New(c Config) (*Switch, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("featureswitch: %w", err)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Switch{config: c}
	s.state.Store(int32(c.State))
	return s, nil
}

// Set switches the feature on or off. Messages that wait are handled after their pause. Set
// returns an error if the switch has a Lookup.
func (s *Switch) Set(state State) error {
	switch {
	case s.config.Lookup != nil:
		return fmt.Errorf("featureswitch: feature %q is switched by Lookup; change the result of Lookup", s.config.Name)
	case state != On && state != Off:
		return fmt.Errorf("featureswitch: feature %q cannot be set to %v; use On or Off", s.config.Name, state)
	}
	if s.state.Swap(int32(state)) != int32(state) {
		s.config.Logger.Info("feature was switched", "feature", s.config.Name, "state", state.String())
	}
	return nil
}

// State returns the state of the feature, with Unknown replaced by Config.Unknown if that
// is set.
func (s *Switch) State() State {
	state := State(s.state.Load())
	if s.config.Lookup != nil {
		state = s.config.Lookup()
	}
	if state != On && state != Off {
		return s.config.Unknown
	}
	return state
}

// Middleware switches all message types of an endpoint, or the handler that has it in its
// core.HandleOptions. If a message has several handlers, Skip concerns that one alone;
// the other answers concern the message, and handlers that ran before run again.
func (s *Switch) Middleware() core.Middleware { return &middleware{Switch: s} }

// For switches some message types of an endpoint.
func (s *Switch) For(messageTypes ...string) core.Middleware {
	return &middleware{s, append([]string{}, messageTypes...)}
}

// middleware is a switch for some message types.
type middleware struct {
	*Switch
	types []string // nil is all
}

// Wrap implements core.Middleware.
func (w *middleware) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		if w.types != nil && !slices.Contains(w.types, m.Type) {
			return next(ctx, m)
		}
		switch w.State() {
		case On:
			return next(ctx, m)
		case Off:
			return w.answer()
		}
		return fmt.Errorf("feature %q: %w", w.config.Name, ErrUnknown)
	}
}

// Describe implements core.Middleware. It refuses an endpoint on which the switch cannot
// work.
func (w *middleware) Describe(scope core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	facts := core.MiddlewareFacts{Kind: "feature switch", Name: w.config.Name, MessageTypes: w.types, State: func() string { return w.State().String() }}
	if w.config.Off != Skip {
		facts.Refusals = []error{w.answer()}
	}
	var err error
	switch {
	case w.types != nil && len(w.types) == 0:
		err = fmt.Errorf("feature %q is for no message types; list some, or use Middleware", w.config.Name)
	case w.config.Off == Leave && scope.Transactions == core.TransactionNone:
		err = fmt.Errorf("feature %q leaves messages in their queue while it is off, but in transaction mode None they have left it already; use another mode, or another answer than Leave", w.config.Name)
	case w.config.Off == Defer && !scope.CanDefer():
		err = fmt.Errorf("feature %q defers messages while it is off, but nothing can be deferred in transaction mode None or without Capabilities.DelayedDelivery; use another answer than Defer", w.config.Name)
	}
	return []core.MiddlewareFacts{facts}, err
}

func (s *Switch) answer() error {
	if s.config.Off == Skip {
		return nil
	}
	err := fmt.Errorf("feature %q: %w", s.config.Name, ErrOff)
	switch s.config.Off {
	case Leave:
		if s.config.WholeEndpoint {
			return core.PutBack(err, s.config.Pause)
		}
		return core.Refuse(err, cmp.Or(s.config.Pause, defaultPause))
	case Discard:
		return core.Discard(err)
	case Defer:
		return core.Defer(err, s.config.Delay)
	case Reject:
		return core.GiveUpTo(err, core.DeadLetterQueue)
	}
	return err
}
