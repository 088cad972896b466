package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Handle registers a handler for a command. The message type is the name on the wire,
// chosen once and independent of Go's names. The body is decoded into a T; []byte gets a
// copy of the raw body.
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
func Handle[T any](ep *Endpoint, messageType string, handler func(ctx context.Context, m *TypedMessage[T]) error, opts ...HandleOptions) {
	register(ep, "Handle", messageType, handler, false, opts)
}

// HandleEvent registers a handler as [Handle] does, and subscribes the endpoint's queue
// to the messages that are published with this type. A type that the transport does not
// accept as a topic is an error ([TopicChecker]).
func HandleEvent[T any](ep *Endpoint, messageType string, handler func(ctx context.Context, m *TypedMessage[T]) error, opts ...HandleOptions) {
	register(ep, "HandleEvent", messageType, handler, true, opts)
}

// HandleDefault registers a handler for messages whose type has no handler, or that name
// no type. TypedMessage.Type is the type, or "". T is often []byte. HandleDefault does
// not subscribe the endpoint to events. Several default handlers run as several handlers
// of one type do. [Config.MessageType] can return types for messages that name none, so
// that each type can have its handler.
//
// Control messages ([HeaderControlMessage]) that name no type have no body, and do not
// reach default handlers: they are consumed. A Config.MessageType or middleware that
// names a type for them gives them a handler.
func HandleDefault[T any](ep *Endpoint, handler func(ctx context.Context, m *TypedMessage[T]) error, opts ...HandleOptions) {
	register(ep, "HandleDefault", anyType, handler, false, opts)
}

// HandleFailed registers a last resort for messages of one type: handler runs when a
// message would go to the error queue (retries are used up, or were given up), after the
// failed work has been undone, and after middleware such as a fallback that failed. By default the message
// then goes to the error queue, and the messages that handler sent are sent with it;
// after [Failed.TakeOver] the message counts as handled instead. If handler fails itself,
// its messages are dropped and the message goes to the error queue (R51). If the move has
// to be tried again, handler runs again in the transaction mode SendsAtomicWithReceive,
// in which its earlier work is undone, and in no other. A move to the broker's own
// dead-letter queue is never atomic with the sends of handler: they are sent before it,
// and handler does not run again unless the error queue replaces that queue.
//
// Its message has the values that the failed attempt set ([Message.SetValue]), and its
// context those that [Observer.HandleStart] gave the attempt's context. A shutdown
// cancels the context after [Config.DrainTimeout]: a HandleFailed that returns an error
// then runs again in the next Run (R27).
//
// It does not run for messages that could not be parsed or decoded, or that
// exceeded [MaxDeliveries]. There is at most one for a type.
func HandleFailed[T any](ep *Endpoint, messageType string, handler func(ctx context.Context, m *TypedMessage[T], f *Failed) error) {
	err := ep.checkRegistration("HandleFailed", messageType, handler == nil)
	if err == nil {
		err = ep.registry.addHandleFailed(messageType, reflect.TypeFor[T](), func(ctx context.Context, m *Message, f *Failed) error {
			in, err := decodeTyped[T](m)
			if err != nil {
				return err
			}
			return handler(ctx, in, f)
		})
	}
	ep.recordRegistrationError(err)
}

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

// TakenOver reports whether [Failed.TakeOver] was called.
func (f *Failed) TakenOver() bool { return f.takenOver }

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

func register[T any](ep *Endpoint, name, messageType string, handler func(ctx context.Context, m *TypedMessage[T]) error, event bool, opts []HandleOptions) {
	err := ep.checkRegistration(name, messageType, handler == nil)
	var o HandleOptions
	if err == nil {
		if o, err = singleOptions(opts); err != nil {
			err = fmt.Errorf("%s: %w", callText(name, messageType), err)
		}
	}
	if err == nil {
		err = ep.addHandler(name, messageType, reflect.TypeFor[T](), event, functionName(handler), func(ctx context.Context, m *Message) error {
			in, err := decodeTyped[T](m)
			if err != nil {
				return err
			}
			return handler(ctx, in)
		}, o)
	}
	ep.recordRegistrationError(err)
}

func callText(name, messageType string) string {
	if messageType == anyType {
		return name
	}
	return fmt.Sprintf("%s %q", name, messageType)
}

func (ep *Endpoint) checkRegistration(name, messageType string, handlerIsNil bool) error {
	call := callText(name, messageType)
	switch {
	case name != "HandleDefault" && !isMessageType(messageType):
		return fmt.Errorf("%s: %q cannot be a message type; use UTF-8 text without ';' and ','", name, messageType)
	case ep.config.SendOnly:
		return fmt.Errorf("%s: the endpoint is send-only and handles nothing; remove the handler or Config.SendOnly", call)
	case handlerIsNil:
		return fmt.Errorf("%s: the handler is nil", call)
	case name == "HandleEvent" && !ep.caps.PublishSubscribe:
		return fmt.Errorf("%s: the transport has no events (Capabilities.PublishSubscribe); use Handle for messages that are sent to the queue: %w", call, errors.ErrUnsupported)
	}
	if name == "HandleEvent" {
		if err := ep.composer.checkTopic(messageType); err != nil {
			return fmt.Errorf("%s: the transport cannot have this topic: %w", call, err)
		}
	}
	return nil
}

// registry holds an endpoint's handlers. It is written before Run and read
// without a lock afterwards.
type registry struct {
	mu       sync.Mutex
	sealed   bool
	handlers map[string]*handlerSet
	errs     []error // of registrations, for Err, Run, Invoke and Provision
}

type handlerSet struct {
	bodyType reflect.Type
	event    bool

	independent         bool // HandleOptions.Independent
	handlers            []HandlerFunc
	names               []string // of the functions in handlers
	nests               []nest   // facts of the middleware of each of them
	handleFailed        func(ctx context.Context, m *Message, f *Failed) error
	usesDefaultHandlers bool          // it has only handleFailed, and the handlers are those of HandleDefault
	parts               []handlerPart // of a message of several types; nil: all are of one type
}

var errSealed = errors.New("handlers are registered before the first Run or Invoke")

// addHandler registers a handler with its options. call is the name of the function that
// the application has called.
func (ep *Endpoint) addHandler(call, messageType string, body reflect.Type, event bool, name string, h HandlerFunc, o HandleOptions) error {
	r := &ep.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	set, err := r.setForLocked(messageType, body)
	switch {
	case err != nil:
		return err
	case len(set.handlers) > 0 && set.event != event:
		return fmt.Errorf("%q is registered both by Handle and by HandleEvent; a message type is a command or an event", messageType)
	}
	if len(set.handlers) > 0 && set.independent != o.Independent {
		return fmt.Errorf("handlers for %s contradict each other: some are independent (HandleOptions.Independent), some are not; let all be, or none", typeText(messageType))
	}
	h, facts, err := ep.wrapHandler(h, messageType, len(set.handlers), o)
	if err == nil {
		err = facts.checkSiblings(set.nests)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", callText(call, messageType), err)
	}
	set.event, set.independent = event, o.Independent
	set.handlers = append(set.handlers, h)
	set.nests = append(set.nests, facts)
	set.names = append(set.names, distinctName(set.names, name))
	return nil
}

func (r *registry) addHandleFailed(messageType string, body reflect.Type, h func(context.Context, *Message, *Failed) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	set, err := r.setForLocked(messageType, body)
	if err != nil {
		return err
	}
	if set.handleFailed != nil {
		return fmt.Errorf("HandleFailed is registered twice for %q", messageType)
	}
	set.handleFailed = h
	return nil
}

// handlesSame reports whether both have handlers for the same types.
func (r *registry) handlesSame(other *registry) bool {
	return slices.Equal(slices.Sorted(slices.Values(r.types())), slices.Sorted(slices.Values(other.types())))
}

// setForLocked returns the handlers of a type, all of which take the same body.
func (r *registry) setForLocked(messageType string, body reflect.Type) (*handlerSet, error) {
	if r.sealed {
		return nil, fmt.Errorf("handler for %s: %w", typeText(messageType), errSealed)
	}
	set, ok := r.handlers[messageType]
	if !ok {
		set = &handlerSet{bodyType: body}
		if r.handlers == nil {
			r.handlers = map[string]*handlerSet{}
		}
		r.handlers[messageType] = set
	}
	if set.bodyType != body {
		return nil, fmt.Errorf("handlers for %s contradict each other: one takes %v, another %v; let both take the same, or give the messages different types", typeText(messageType), set.bodyType, body)
	}
	return set, nil
}

// recordRegistrationError keeps an error of a registration for the next Run. After a late
// registration there may be no further Run, so the error is logged as well.
func (ep *Endpoint) recordRegistrationError(err error) {
	if err == nil {
		return
	}
	if errors.Is(err, errSealed) {
		ep.log.endpoint.Error("a handler was registered too late and is not used", "error", err)
	}
	err = fmt.Errorf("core: endpoint %q: %w", ep.name, err)
	ep.registry.mu.Lock()
	ep.registry.errs = append(ep.registry.errs, err)
	ep.registry.mu.Unlock()
}

// Err returns the errors of the registrations of handlers so far, joined, or nil.
// [Endpoint.Run], [Endpoint.Invoke] and [Endpoint.Provision] return them too: a program
// that runs its endpoints need not call Err.
func (ep *Endpoint) Err() error {
	ep.registry.mu.Lock()
	defer ep.registry.mu.Unlock()
	return errors.Join(ep.registry.errs...)
}

// seal ends registration and returns its errors.
func (r *registry) seal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed {
		return errors.Join(r.errs...)
	}
	r.sealed = true
	for messageType, set := range r.handlers {
		if len(set.handlers) > 0 {
			continue
		}
		byDefault, ok := r.handlers[anyType]
		if !ok {
			r.errs = append(r.errs, fmt.Errorf("core: HandleFailed is registered for %q, which has no handler; register one with Handle, HandleEvent or HandleDefault", messageType))
			continue
		}
		set.handlers, set.names, set.nests, set.independent = byDefault.handlers, byDefault.names, byDefault.nests, byDefault.independent
		set.usesDefaultHandlers = true
	}
	return errors.Join(r.errs...)
}

// types returns the message types that have handlers; anyType stands for default
// ones.
func (r *registry) types() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.handlers))
}

// topics returns the topics that the endpoint subscribes to.
func (r *registry) topics() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var topics []string
	for messageType, set := range r.handlers {
		if set.event {
			topics = append(topics, messageType)
		}
	}
	slices.Sort(topics)
	return topics
}

// lookup returns the message type by which a message is handled, and its
// handlers. The header lists types from the most to the least specific,
// separated by ';', perhaps with a .NET assembly after ','. The first that has
// handlers is the message type; the handlers are those of all types in the header.
// Without any the message has the first type and the default handlers, if there
// are any.
func (r *registry) lookup(header string) (messageType string, set *handlerSet) {
	if set, ok := r.handlers[header]; ok {
		return header, set
	}
	first := anyType
	var more []typedHandlers // empty while there is one type
	for entry := range strings.SplitSeq(header, ";") {
		name, _, _ := strings.Cut(entry, ",")
		if name = strings.TrimSpace(name); name == anyType {
			continue
		}
		found, ok := r.handlers[name]
		switch {
		case ok && set == nil:
			messageType, set = name, found
		case ok && (found == set || slices.ContainsFunc(more, func(t typedHandlers) bool { return t.set == found })):
		case ok: // one more type
			if more == nil {
				more = []typedHandlers{{messageType, set}}
			}
			more = append(more, typedHandlers{name, found})
		case first == anyType:
			first = name
		}
	}
	switch {
	case set == nil:
		return first, r.handlers[anyType]
	case more != nil:
		return messageType, joinHandlers(more)
	}
	return messageType, set
}

// functionName returns the name of a function with its package, "shop/billing.charge" or
// "shop/billing.(*Service).Charge".
func functionName(f any) string {
	if function := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); function != nil {
		return boundedText(strings.TrimSuffix(function.Name(), "-fm"), maxTypeName)
	}
	return "unknown function"
}

// handlingOf returns the handling of a message type. A header may list several types.
func (ep *Endpoint) handlingOf(messageType string) (h handling) {
	h.messageType, h.handlers = ep.registry.lookup(messageType)
	return h
}

// typedHandlers are the handlers of one type of a message.
type typedHandlers struct {
	messageType string
	set         *handlerSet
}

// handlerPart is the place of the handlers of one type among those of a message.
type handlerPart struct {
	end         int // index where the next part begins
	scope       string
	independent bool
}

// joinHandlers returns the handlers of all types of a message, in the order of the types.
// Default handlers run if no type has handlers. HandleFailed is that of the first type
// with one.
func joinHandlers(all []typedHandlers) *handlerSet {
	own := slices.DeleteFunc(slices.Clone(all), func(t typedHandlers) bool { return t.set.usesDefaultHandlers })
	if len(own) == 0 {
		own = all[:1]
	}
	joined := &handlerSet{}
	for i, t := range own {
		joined.handlers = append(joined.handlers, t.set.handlers...)
		for _, name := range t.set.names {
			joined.names = append(joined.names, distinctName(joined.names, name))
		}
		part := handlerPart{end: len(joined.handlers), independent: t.set.independent}
		if i > 0 {
			part.scope = typeScope(t.messageType)
		}
		joined.parts = append(joined.parts, part)
		joined.independent = joined.independent || t.set.independent
	}
	for _, t := range all {
		if t.set.handleFailed != nil {
			joined.handleFailed = t.set.handleFailed
			break
		}
	}
	return joined
}

// typeScope makes the ids of messages distinct that the handlers of the types of a
// message send in separate runs. Messages sent for its first type have the same ids as
// without other types.
func typeScope(messageType string) string { return "/type/" + messageType }

// part returns the part of a handler.
func (s *handlerSet) part(i int) handlerPart {
	for _, p := range s.parts {
		if i < p.end {
			return p
		}
	}
	return handlerPart{end: len(s.handlers), independent: s.independent}
}

// scopeOf returns the addition to the scope of a handler.
func (s *handlerSet) scopeOf(i int) string { return s.part(i).scope }

// independentAt reports whether a handler is independent, and returns the first handler
// that it does not stop if it is not.
func (s *handlerSet) independentAt(i int) (independent bool, end int) {
	p := s.part(i)
	return p.independent, p.end
}

// distinctName adds a number to the name of a handler if the same type already has a
// handler with this name, such as a function that another function returned.
func distinctName(names []string, name string) string {
	distinct := name
	for n := 2; slices.Contains(names, distinct); n++ {
		distinct = fmt.Sprintf("%s #%d", name, n)
	}
	return distinct
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
	// ([Capabilities.Savepoints]), so that the work of a failed handler is undone alone and
	// does not break the transaction for the next. A panic is the failure of its handler.
	// When the context ends, the remaining handlers do not run, and the attempt fails.
	// [Message.SkipRemainingHandlers] skips none of them.
	//
	// If several fail, the attempt fails with a [*HandlersError], and one failure decides
	// about the message, so that no handler ends it for another that requested a retry: a
	// [RetryAfter] comes before an error, an error before a [Defer], and these before
	// [Reject], [Invalid], [Unrecoverable], [MoveTo] and [Discard]. An unrecoverable error,
	// and a RetryAfter or Defer that has reached its limit, count as Unrecoverable. Of
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
