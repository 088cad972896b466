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
// registration, each with a copy of the body. The first that fails stops the others, and a
// retry begins with the first again, unless they are independent
// ([HandleOptions.Independent]). If a message is of several types (see [Config.BaseTypes]),
// the handlers of each run, in the order of the types; [Message.Type] and the settings are
// those of the first that has handlers.
//
// Handlers are registered before the first Run or Invoke. A wrong registration has no
// effect; [Endpoint.Run] and [Endpoint.Err] return its error. It has at most one
// [HandleOptions].
func Handle[T any](ep *Endpoint, messageType MessageType[T], handler func(ctx context.Context, m *Message, body T) error, opts ...HandleOptions) {
	register(ep.registry, "Handle", messageType, handler, false, opts)
}

// HandleEvent registers a handler as [Handle] does, and subscribes the endpoint's queue to
// the event. A name that cannot be a topic is an error.
func HandleEvent[T any](ep *Endpoint, event Event[T], handler func(ctx context.Context, m *Message, body T) error, opts ...HandleOptions) {
	register(ep.registry, "HandleEvent", event.MessageType, handler, true, opts)
}

// HandleDefault registers a handler for messages whose type has no handler, or that name no
// type: [Message.Type] is "" then, and [Message.RawBody] the body. It subscribes to no
// event. Control messages ([headers.ControlMessage]) that name no type have no body, and
// are consumed without a handler.
func HandleDefault(ep *Endpoint, handler func(ctx context.Context, m *Message) error, opts ...HandleOptions) {
	ep.registry.register("HandleDefault", anyType, nil, handler, functionName(handler), false, opts)
}

// HandleFailed registers a last resort for messages of one type: handler runs when a
// message would go to the error queue, after the failed work has been undone. The message
// then goes there, and the messages that handler sent are sent with it; after
// [Failed.TakeOver] it counts as handled instead. If handler fails itself, its messages are
// dropped. There is at most one for a type. It does not run for messages that could not be
// parsed or decoded, or that exceeded [Recoverability.MaxDeliveries].
//
// It runs again for a move that has to be repeated only in SendsAtomicWithReceive, where
// its earlier work is undone. Before a move to the broker's own dead-letter queue its
// messages are sent, not atomically. m has the values of the failed attempt
// ([Message.SetValue]), and ctx those of [Observer.HandleStart]. A shutdown cancels ctx
// after [Config.DrainTimeout]; after an error it runs again in the next Run.
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
// [Endpoint.Run] returns them too.
func (ep *Endpoint) Err() error { return ep.registry.err() }

// Failed describes a message whose retries are used up.
type Failed struct {
	// Err is the last failure. If the move is repeated it has only the text of the error,
	// and errors.Is does not match.
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
	// earlier one failed. Either all handlers of a type are independent or none is. The
	// attempt fails if one of them failed or the context ends before, and a retry runs all
	// again: their messages are sent only when all have succeeded. Each has a separate
	// [Message] and, in SendsAtomicWithReceive, starts from a savepoint, if the transport
	// has them ([Abilities.Savepoints]).
	//
	// If several fail, the attempt fails with a [*HandlersError], and one failure decides:
	// a [RetryAfter] comes before an error, an error before a [Defer], and these before
	// [GiveUp], [GiveUpTo] and [Discard]; an unrecoverable error, and a verdict that has
	// reached its limit, count as GiveUp. Among equals the longest delay decides, or else
	// the first handler.
	Independent bool

	// Middleware wraps this handler alone, the first outermost, within [Config.Middleware].
	// It cannot change [Message.Type].
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
