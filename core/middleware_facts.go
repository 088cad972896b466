package core

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// MiddlewareScope tells middleware about its endpoint. The zero value is outside an
// endpoint, as in a test.
type MiddlewareScope struct {
	// Endpoint is the name of the endpoint.
	Endpoint string
	// Transactions is the transaction mode of the endpoint.
	Transactions TransactionMode
	// Capabilities are those of the transport.
	Capabilities Capabilities
	// HasPolicy: a [Policy] decides about failures.
	HasPolicy bool
	// RetrySpan is the longest time for which retries can keep a message, without the
	// attempts, deferrals, [RetryAfter] and decisions of a [Policy].
	RetrySpan time.Duration

	recoverability func(messageType string) RecoverabilityConfig
	logger         *slog.Logger
}

// Logger returns the logger of the endpoint, or slog.Default() outside an endpoint.
func (s MiddlewareScope) Logger() *slog.Logger { return cmp.Or(s.logger, slog.Default()) }

// CanDefer reports whether [Defer], [RetryAfter] and [Refuse] can delay one message: there
// is delayed delivery, and the mode is not [TransactionNone].
func (s MiddlewareScope) CanDefer() bool {
	return s.Capabilities.DelayedDelivery && s.Transactions != TransactionNone
}

// Recoverability returns the settings in force for a message type. It may be called for
// each message.
func (s MiddlewareScope) Recoverability(messageType string) RecoverabilityConfig {
	if s.recoverability == nil {
		return RecoverabilityConfig{}
	}
	return s.recoverability(messageType)
}

// retrySpan returns the longest time that retries can keep a message.
func (r *rules) retrySpan() (longest time.Duration) {
	for _, c := range r.allConfigs() {
		longest = max(longest, c.delays())
	}
	return longest
}

// MiddlewareFacts describes middleware, or one of its parts, to the endpoint and to other
// middleware. All fields but Kind may be left out.
type MiddlewareFacts struct {
	// Kind is a word or two for middleware of this kind: "retry".
	Kind string
	// Name distinguishes it from others of its kind. Middleware of one Kind and Name cannot
	// be nested.
	Name string
	// MessageTypes are the types that it applies to; nil means all.
	MessageTypes []string
	// Runs is the highest number of calls of next in one attempt; 0 means one.
	Runs int
	// HidesFailures: it may return nil although next has failed.
	HidesFailures bool
	// Refusals are the errors that it may return instead of calling next, an example of
	// each kind. With a verdict it cannot be inside middleware that calls next repeatedly;
	// with an error that matches [ErrCircuitOpen] it is a circuit for Health.
	Refusals []error
	// Exclusive: handlers of one message type cannot have middleware of one Kind and Name,
	// because they would share its state.
	Exclusive bool
	// State returns the state in a word, for Health, such as "closed" for a circuit
	// breaker. It is called at any time by several goroutines, and must not block.
	State func() string
	// Check returns an error if the middleware cannot work between outer and inner, the
	// facts of the middleware around and inside of it, the outermost first. Its text ends a
	// sentence: "stands inside of ...".
	Check func(outer, inner []MiddlewareFacts) error

	place string // "Middleware[1]": the list of the configuration and the index in it
}

// String names the middleware with its place: Middleware[1] (retry "bank").
func (f MiddlewareFacts) String() string {
	text := f.Kind
	if f.Name != "" {
		text += fmt.Sprintf(" %q", f.Name)
	}
	if f.place == "" {
		return text
	}
	return fmt.Sprintf("%s (%s)", f.place, text)
}

// refusesByVerdict reports whether it may return a verdict instead of calling next.
func (f MiddlewareFacts) refusesByVerdict() bool {
	return slices.ContainsFunc(f.Refusals, func(err error) bool { return VerdictOf(err) != nil })
}

// isCircuit reports whether it may return ErrCircuitOpen instead of calling next.
func (f MiddlewareFacts) isCircuit() bool {
	return slices.ContainsFunc(f.Refusals, func(err error) bool { return errors.Is(err, ErrCircuitOpen) })
}

// overlaps reports whether both can apply to the same message.
func (f MiddlewareFacts) overlaps(other MiddlewareFacts) bool {
	return f.MessageTypes == nil || other.MessageTypes == nil ||
		slices.ContainsFunc(f.MessageTypes, func(t string) bool { return slices.Contains(other.MessageTypes, t) })
}

// nest has the facts of nested middleware, the outermost first.
type nest []MiddlewareFacts

// describeMiddleware returns the facts of the middleware in a list of the configuration.
func describeMiddleware(list string, middleware []Middleware, scope MiddlewareScope, errs *validationErrors) (all nest) {
	for i, each := range middleware {
		place := fmt.Sprintf("%s[%d]", list, i)
		if each == nil {
			errs.add("%s is nil; remove it", place)
			continue
		}
		var facts []MiddlewareFacts
		err := recoverMiddleware("panicked when it was asked for its facts", func() (err error) {
			facts, err = each.Describe(scope)
			return err
		})
		if err != nil {
			errs.add("%s: %w", place, err)
		}
		for _, f := range facts {
			f.MessageTypes, f.place = slices.Clone(f.MessageTypes), place
			all = append(all, f)
		}
	}
	return all
}

// check refuses an order in which the middleware cannot work, also between this middleware
// and that around it, which was checked before.
func (all nest) check(surrounding nest, errs *validationErrors) {
	whole := slices.Concat(surrounding, all)
	for i, f := range whole {
		for _, inner := range whole[i+1:] {
			switch {
			case !f.overlaps(inner):
			case f.Kind == inner.Kind && f.Name != "" && f.Name == inner.Name:
				errs.add("%v is nested in %v, which is the same; remove one of the two", inner, f)
			case f.Runs > 1 && inner.refusesByVerdict():
				errs.add("%v stands inside of %v, which would try %d times: but where it refuses a message it answers with a verdict, which is never retried (R53); list it before", inner, f, f.Runs)
			}
		}
		if f.Check == nil {
			continue
		}
		err := recoverMiddleware("panicked when it was asked about its place", func() error { return f.Check(whole[:i].beside(f), whole[i+1:].beside(f)) })
		if err != nil {
			errs.add("%v %w", f, err)
		}
	}
}

// beside returns the middleware that can apply to the same messages as f.
func (all nest) beside(f MiddlewareFacts) nest {
	return slices.DeleteFunc(slices.Clone(all), func(other MiddlewareFacts) bool { return !f.overlaps(other) })
}

// checkSiblings refuses middleware that another handler of the same message type has as
// well.
func (all nest) checkSiblings(siblings []nest) error {
	for _, f := range all {
		for i, sibling := range siblings {
			if f.Exclusive && slices.ContainsFunc(sibling, func(other MiddlewareFacts) bool { return other.Kind == f.Kind && other.Name == f.Name }) {
				return fmt.Errorf("%v has the name of the one of handler %d of this message type; give each handler another name", f, i+1)
			}
		}
	}
	return nil
}

// filter returns the middleware around messages of a type.
func (all nest) filter(messageType string) nest {
	return all.beside(MiddlewareFacts{MessageTypes: []string{messageType}})
}
