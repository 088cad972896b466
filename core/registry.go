package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// registry registers the handlers of an endpoint, and finds those of a message. The Endpoint
// owns it. The application writes it under mu until seal, and workers read handlers without
// a lock afterwards.
type registry struct {
	sendOnly    bool
	checkTopic  func(topic string) error // composer.checkTopic
	scope       MiddlewareScope          // of the middleware of handlers
	surrounding nest                     // facts of Config.Middleware

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

// check refuses a registration that cannot have an effect. name is that of the function that
// the application has called.
func (r *registry) check(name, messageType string, handlerIsNil bool) error {
	call := callText(name, messageType)
	switch {
	case name != "HandleDefault" && messageType == "":
		return fmt.Errorf("%s: %w", name, errNoName)
	case name != "HandleDefault" && !isMessageType(messageType):
		return fmt.Errorf("%s: %q cannot be a message type; use UTF-8 text without ';' and ','", name, messageType)
	case r.sendOnly:
		return fmt.Errorf("%s: the endpoint is send-only and handles nothing; remove the handler or Config.SendOnly", call)
	case handlerIsNil:
		return fmt.Errorf("%s: the handler is nil", call)
	case name == "HandleEvent" && !r.scope.Capabilities.PublishSubscribe:
		return fmt.Errorf("%s: the transport has no events (Capabilities.PublishSubscribe); use Handle for messages that are sent to the queue: %w", call, errors.ErrUnsupported)
	}
	if name == "HandleEvent" {
		if err := r.checkTopic(messageType); err != nil {
			return fmt.Errorf("%s: the transport cannot have this topic: %w", call, err)
		}
	}
	return nil
}

// add registers a handler with its options. call is the name of the function that
// the application has called.
func (r *registry) add(call, messageType string, body reflect.Type, event bool, name string, h HandlerFunc, o HandleOptions) error {
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
	h, facts, err := r.wrapHandler(h, messageType, len(set.handlers), o)
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

// recordError keeps an error of a registration for the next Run. After a late
// registration there may be no further Run, so the error is logged as well.
func (r *registry) recordError(err error) {
	if err == nil {
		return
	}
	if errors.Is(err, errSealed) {
		r.scope.Logger().Error("a handler was registered too late and is not used", "error", err)
	}
	err = fmt.Errorf("core: endpoint %q: %w", r.scope.Endpoint, err)
	r.mu.Lock()
	r.errs = append(r.errs, err)
	r.mu.Unlock()
}

// err returns the errors of the registrations so far, joined, or nil.
func (r *registry) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
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

// selectionOf returns the selection for a message type. A header may list several types.
func (r *registry) selectionOf(messageType string) (h selection) {
	h.messageType, h.handlers = r.lookup(messageType)
	return h
}

// typedHandlers are the handlers of one type of a message.
type typedHandlers struct {
	messageType string
	set         *handlerSet
}

// handlerPart is the place of the handlers of one type among those of a message.
type handlerPart struct {
	end         int    // index where the next part begins
	scope       string // added to the scopes of their runs: of further types of the message
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

// partOf returns the part of a handler, or nil if the message has handlers of one type.
func (s *handlerSet) partOf(i int) *handlerPart {
	for p := range s.parts {
		if i < s.parts[p].end {
			return &s.parts[p]
		}
	}
	return nil
}

// independentAt reports whether a handler is independent, and returns the first handler
// that it does not stop if it is not.
func (s *handlerSet) independentAt(i int) (independent bool, end int) {
	if p := s.partOf(i); p != nil {
		return p.independent, p.end
	}
	return s.independent, len(s.handlers)
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
