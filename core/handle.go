package core

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
)

// Handle registers a handler for messages of one type, which gets the decoded body. A T of
// []byte gets a copy of the raw body.
//
// Several handlers of one type take the same T. They run in the order of their
// registration, each with a copy of the body. The first handler that fails stops the
// others: the handlers after it do not run in this attempt, and a retry begins with the
// first handler again. So the handlers after one that always fails never run, unless they
// are independent ([HandleOptions.Independent]).
//
// A message may be of several types (header NServiceBus.EnclosedMessageTypes, which lists
// the most derived first, see [Config.BaseTypes]). Then the handlers of each of them run,
// in the order of the types, each with the T of its type. [Message.Type] and the settings
// are those of the first type that has handlers, [HandleFailed] is that of the first type
// that has one.
//
// Handlers are registered before the first Run or Invoke. A wrong registration has no
// effect: [Endpoint.Run], [Endpoint.Invoke] and Provision return its error, and so does
// [Endpoint.Err]. A registration has at most one [HandleOptions].
func Handle[T any](ep *Endpoint, messageType MessageType[T], handler func(ctx context.Context, m *Message, body T) error, opts ...HandleOptions) {
	register(ep.registry, "Handle", messageType, handler, false, opts)
}

// HandleEvent registers a handler as [Handle] does, and subscribes the endpoint's queue
// to the event. A name that the transport does not accept as a topic is an error
// ([Subscriber]).
func HandleEvent[T any](ep *Endpoint, event Event[T], handler func(ctx context.Context, m *Message, body T) error, opts ...HandleOptions) {
	register(ep.registry, "HandleEvent", event.MessageType, handler, true, opts)
}

// HandleDefault registers a handler for messages whose type has no handler, or that name
// no type. [Message.Type] is the type, or "", and [Message.RawBody] the body. HandleDefault
// does not subscribe the endpoint to events. Several default handlers run as several handlers
// of one type do. [Config.MessageType] can return types for messages that name none, so
// that each type can have its handler.
//
// Control messages ([headers.ControlMessage]) that name no type have no body, and do not
// reach default handlers: they are consumed. A Config.MessageType or middleware that
// names a type for them gives them a handler.
func HandleDefault(ep *Endpoint, handler func(ctx context.Context, m *Message) error, opts ...HandleOptions) {
	ep.registry.register("HandleDefault", anyType, nil, handler, functionName(handler), false, opts)
}

// HandleFailed registers a last resort for messages of one type: handler runs when a
// message would go to the error queue (retries are used up, or were given up), after the
// failed work has been undone, and after middleware such as a fallback that failed. By default the message
// then goes to the error queue, and the messages that handler sent are sent with it;
// after [Failed.TakeOver] the message counts as handled instead. If handler fails itself,
// its messages are dropped and the message goes to the error queue. If the move has
// to be tried again, handler runs again in the transaction mode SendsAtomicWithReceive,
// in which its earlier work is undone, and in no other. A move to the broker's own
// dead-letter queue is never atomic with the sends of handler: they are sent before it,
// and handler does not run again, also if the error queue replaces that queue.
//
// Its message has the values that the failed attempt set ([Message.SetValue]), and its
// context those that [Observer.HandleStart] gave the attempt's context. A shutdown
// cancels the context after [Config.DrainTimeout]: a HandleFailed that returns an error
// then runs again in the next Run.
//
// It does not run for messages that could not be parsed or decoded, or that
// exceeded [Recoverability.MaxDeliveries]. There is at most one for a type.
func HandleFailed[T any](ep *Endpoint, messageType MessageType[T], handler func(ctx context.Context, m *Message, body T, f *Failed) error) {
	r := ep.registry
	err := r.check("HandleFailed", messageType.name, handler == nil)
	if err == nil {
		err = r.addHandleFailed(messageType.name, reflect.TypeFor[T](), func(ctx context.Context, m *Message, f *Failed) error {
			body, err := decodeBody[T](m)
			if err != nil {
				return err
			}
			return handler(ctx, m, body, f)
		})
	}
	r.recordError(err)
}

// Err returns the errors of the registrations of handlers so far, joined, or nil.
// [Endpoint.Run], [Endpoint.Invoke] and [Endpoint.Provision] return them too: a program
// that runs its endpoints need not call Err.
func (ep *Endpoint) Err() error { return ep.registry.err() }

// Failed describes a message whose retries are used up.
type Failed struct {
	// Err is the last failure. When the move is tried again it has only the text of the
	// error, and errors.Is does not match.
	Err error
	// Queue is the queue that the message is about to be moved to, or "" for the broker's
	// own dead-letter queue.
	Queue string

	takenOver bool
}

// TakeOver makes the message count as handled: it is not moved.
func (f *Failed) TakeOver() { f.takenOver = true }

// anyType is the type under which default handlers are registered. No message
// type is "".
const anyType = ""

// typeText returns a message type for the text of an error.
func typeText(messageType string) string {
	if messageType == anyType {
		return "messages without a handler"
	}
	return strconv.Quote(messageType)
}

func register[T any](r *registry, name string, messageType MessageType[T], handler func(ctx context.Context, m *Message, body T) error, event bool, opts []HandleOptions) {
	var decoding HandlerFunc
	if handler != nil {
		decoding = func(ctx context.Context, m *Message) error {
			body, err := decodeBody[T](m)
			if err != nil {
				return err
			}
			return handler(ctx, m, body)
		}
	}
	r.register(name, messageType.name, reflect.TypeFor[T](), decoding, functionName(handler), event, opts)
}

// register registers a handler, whose function is the given one; body is nil for one that
// gets all messages.
func (r *registry) register(name, messageType string, body reflect.Type, handler HandlerFunc, function string, event bool, opts []HandleOptions) {
	err := r.check(name, messageType, handler == nil)
	var o HandleOptions
	if err == nil {
		if o, err = singleOptions(opts); err != nil {
			err = fmt.Errorf("%s: %w", callText(name, messageType), err)
		}
	}
	if err == nil {
		err = r.add(name, messageType, body, event, function, handler, o)
	}
	r.recordError(err)
}

func callText(name, messageType string) string {
	if messageType == anyType {
		return name
	}
	return fmt.Sprintf("%s %q", name, messageType)
}

// functionName returns the name of a function with its package, "shop/billing.charge" or
// "shop/billing.(*Service).Charge".
func functionName(f any) string {
	if function := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); function != nil {
		return boundedText(strings.TrimSuffix(function.Name(), "-fm"), maxTypeName)
	}
	return "unknown function"
}

// HandleOptions are the options of a handler's registration. The zero value changes
// nothing.
type HandleOptions struct {
	// Independent makes each handler of a message type run in every attempt, even if an
	// earlier one failed. Either all handlers of a type are independent or none is. If a
	// message has several types, the handlers of one type may be independent and those of
	// another not: the latter stop each other, but no independent one.
	//
	// The attempt fails if one of them failed, and a retry runs all again: their messages
	// are sent only when all have succeeded. Each has a separate [Message]. In
	// SendsAtomicWithReceive each starts from a savepoint, if the transport has them
	// ([Abilities.Savepoints]), so that the work of a failed handler is undone alone and
	// does not break the transaction for the next. A panic is the failure of its handler.
	// When the context ends, the remaining handlers do not run, and the attempt fails.
	// [Message.SkipRemainingHandlers] skips none of them.
	//
	// If several fail, the attempt fails with a [*HandlersError], and one failure decides
	// about the message, so that no handler ends it for another that requested a retry: a
	// [RetryAfter] comes before an error, an error before a [Defer], and these before
	// [GiveUp], [GiveUpTo] and [Discard]. An unrecoverable error, and a RetryAfter or Defer
	// that has reached its limit, count as GiveUp. Of
	// several RetryAfter, or Defer, the one with the longest delay decides, of other
	// failures that of the first handler.
	Independent bool

	// Middleware wraps this handler alone, the first outermost, within [Config.Middleware].
	// It runs once a handler is chosen, so that a change of [Message.Type] has no effect.
	// [TypedMiddleware] makes a Middleware that gets the decoded body.
	Middleware []Middleware
}

// singleOptions returns the options of one call.
func singleOptions(opts []HandleOptions) (HandleOptions, error) {
	switch len(opts) {
	case 0:
		return HandleOptions{}, nil
	case 1:
		return opts[0], nil
	}
	return HandleOptions{}, fmt.Errorf("%d HandleOptions were given; merge them into one", len(opts))
}
