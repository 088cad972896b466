package core

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file is about messages of several types that have handlers.

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

// isMessageType reports whether name is a valid message type: a header lists types
// separated by ';', with a .NET assembly after ','.
func isMessageType(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsAny(name, ";,")
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
