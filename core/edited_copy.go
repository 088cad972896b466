package core

import (
	"cmp"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core/headers"
)

// This file is about the changes that Recoverability.EditFailed makes to the headers of a
// failed message.

// editedCopy has the headers of a failed message as EditFailed changed them.
type editedCopy struct {
	headers Headers // all, regardless of limits
	// droppable are the keys of the headers that are left out first if the copy is too
	// large: the stack trace, and those that EditFailed added or made longer. The largest is
	// the first.
	droppable []string
}

// identityHeaders has the headers that are needed to send a message back.
var identityHeaders = []string{headers.MessageID, headers.FailedQ}

// newEditedCopy returns the copy with EditFailed's changes of the standard headers, and
// the headers that were restored.
func newEditedCopy(standard, changed Headers) (e *editedCopy, restored []string) {
	h := sanitizeHeaders(changed)
	for _, key := range identityHeaders {
		if want := strings.ToValidUTF8(standard.Get(key), "\uFFFD"); h.Get(key) != want {
			h.Set(key, want)
			restored = append(restored, key)
		}
	}
	h.Del(headers.Undelivered) // the endpoint's own; allHeaders sets it
	e = &editedCopy{headers: h}
	lookup := standard.lookups()
	var droppable []header
	for key, value := range h.All() {
		before, known := lookup(key)
		if key == headers.ExceptionStackTrace || !slices.Contains(identityHeaders, key) && (!known || len(value) > len(before)) {
			droppable = append(droppable, header{key, value})
		}
	}
	size := func(h header) int { return len(h.key) + len(h.value) }
	slices.SortStableFunc(droppable, func(a, b header) int { return cmp.Compare(size(b), size(a)) })
	for _, h := range droppable {
		e.droppable = append(e.droppable, h.key)
	}
	return e, restored
}

// allHeaders returns all headers for sending the message now.
func (e *editedCopy) allHeaders(f *failure) Headers {
	h := e.headers
	f.writeID(&h)
	if note, ok := f.headers.Lookup(headers.Undelivered); ok {
		h.Set(headers.Undelivered, note)
	}
	return h
}

// fitHeaders returns as many headers as are within the limits beside the body. If there is
// no room for any (copyForError), only the droppable headers are left out.
func (e *editedCopy) fitHeaders(f *failure, caps Capabilities) Headers {
	withoutDroppable, ok := dropToFit(e.allHeaders(f), e.droppable, f.body, caps)
	if ok {
		return withoutDroppable
	}
	if h, ok := dropToFit(withoutDroppable, droppedHeaders, f.body, caps); ok {
		return h
	}
	return withoutDroppable
}

// description returns the text of the error as EditFailed left it.
func (f *failure) description() string {
	if f.edited == nil {
		return f.Err.Error()
	}
	return f.edited.headers.Get(headers.ExceptionMessage)
}

// senderHeaders returns the headers of the received message with EditFailed's changes,
// but without headers that it dropped or made longer.
func (f *failure) senderHeaders() Headers {
	if f.edited == nil {
		return f.headers
	}
	lookup := sanitizeHeaders(f.headers).lookups()
	droppable := make(map[string]bool, len(f.edited.droppable))
	for _, key := range f.edited.droppable {
		droppable[key] = true
	}
	h := f.edited.allHeaders(f)
	h.deleteFunc(func(key string) bool {
		_, received := lookup(key)
		return !received || isFailureHeader(key) || droppable[key]
	})
	return h
}
