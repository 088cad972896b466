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
	size := func(key string) int { return len(key) + len(h.Get(key)) }
	for key, value := range h.All() {
		before, known := standard.Lookup(key)
		if key == headers.ExceptionStackTrace || !slices.Contains(identityHeaders, key) && (!known || len(value) > len(before)) {
			e.droppable = append(e.droppable, key)
		}
	}
	slices.SortStableFunc(e.droppable, func(a, b string) int { return cmp.Compare(size(b), size(a)) })
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
	h := e.allHeaders(f)
	var withoutDroppable Headers
	for _, keys := range [][]string{e.droppable, failureHeaders} {
		for _, key := range keys {
			if fits(h, f.body, caps) {
				return h
			}
			h.Del(key)
		}
		if withoutDroppable.Len() == 0 {
			withoutDroppable = h
		}
	}
	if fits(h, f.body, caps) {
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
	received := sanitizeHeaders(f.headers)
	stale := staleFailureHeaders(received)
	h := f.edited.allHeaders(f)
	for key := range h.All() {
		if _, ok := received.Lookup(key); !ok || slices.Contains(stale, key) || slices.Contains(f.edited.droppable, key) {
			h.Del(key)
		}
	}
	return h
}
