package core

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// This file makes the copy of a failed message small and plain enough for the transport
// (R24): with fewer failure headers, without them, and without headers of its sender.

// failedCopy returns the failed message for a queue.
func failedCopy(a *attempt, f *failure, queue string, headers Headers, body []byte, reason SendReason) Outgoing {
	out := a.delivery.Incoming().copyTo(queue, headers, reason)
	out.ID = f.MessageID // sanitized
	out.Body = body
	return out
}

// sendFailedCopy sends a failed message. Headers that do not fit, or that the transport
// does not accept, are left out (R24), and a body of EditFailed is replaced by the
// original one.
func (r *runner) sendFailedCopy(a *attempt, f *failure, d *decision, send func(Headers, []byte) error) error {
	caps := r.ep.caps.limitsForCopy(a.delivery.Incoming())
	compose := func() (Headers, []byte) {
		if f.edited != nil {
			return f.edited.fitToLimits(f, caps)
		}
		return copyForError(f, d.action, r.ep.host, caps), f.Body
	}
	headers, body := compose()
	err := send(headers, body)
	if err != nil && isRefusedWith(err, f.MessageID, ErrInvalidHeader) {
		f.sanitize()
		headers, body = compose()
		err = send(headers, body)
	}
	noRoom := func() bool {
		return err != nil && (isRefusedWith(err, f.MessageID, ErrTooLarge) || isRefusedWith(err, f.MessageID, ErrInvalidHeader))
	}
	for {
		if noRoom() {
			err = send(copyForErrorMinimal(f), body)
		}
		if noRoom() {
			err = send(f.senderHeaders(), body)
		}
		if noRoom() {
			err = r.sendWithoutHeaders(a, f, err, func(headers Headers) error { return send(headers, body) })
		}
		if !noRoom() || len(body) <= len(f.Body) {
			break
		}
		body = f.Body
		err = send(f.edited.fitHeaders(f, body, caps), body)
	}
	if err == nil && f.edited.lostBody(f, body) {
		r.ep.log.moved.LogAttrs(a.decisionContext(), slog.LevelError, "the body that EditFailed made is too large for the transport; the message is moved with its original body",
			append(failureAttrs(f), slog.Int("edited_bytes", len(f.edited.body)), slog.Int("original_bytes", len(f.Body)))...)
	}
	return err
}

// sendWithoutHeaders sends a failed message whose sender's headers were refused with err:
// without as few of the largest as necessary, or with hardly any.
func (r *runner) sendWithoutHeaders(a *attempt, f *failure, err error, send func(Headers) error) error {
	headers := copyForErrorMinimal(f)
	for range maxSmallerCopies {
		if !isRefusedWith(err, f.MessageID, ErrTooLarge) {
			break
		}
		excess := max(headers.Bytes()/2, 1)
		if tooLarge, ok := refusalOfType[*TooLargeError](err, f.MessageID); ok && tooLarge.Size > tooLarge.Max {
			excess = tooLarge.Size - tooLarge.Max
		}
		smaller, enough := withoutLargest(headers, excess)
		if !enough {
			break
		}
		headers = smaller
		err = send(headers)
	}
	if err != nil && (isRefusedWith(err, f.MessageID, ErrTooLarge) || isRefusedWith(err, f.MessageID, ErrInvalidHeader)) {
		headers = copyForErrorBare(f)
		err = send(headers)
	}
	if err == nil {
		r.ep.log.moved.LogAttrs(a.decisionContext(), slog.LevelError, "message was moved without headers of its sender, which the transport refused",
			append(failureAttrs(f), slog.Any("headers_left_out", f.Headers.without(headers)))...)
	}
	return err
}

// maxSmallerCopies limits the tries to leave out the largest headers of a message for a
// smaller copy. A transport that tells its limit needs one or two.
const maxSmallerCopies = 8

// fitToLimits returns as much of the copy as is within the limits (R24). A body that is
// too large is replaced by the original one.
func (e *editedCopy) fitToLimits(f *failure, caps Capabilities) (Headers, []byte) {
	if len(e.body) > len(f.Body) && !fits(copyForErrorMinimal(f), e.body, caps) {
		return e.fitHeaders(f, f.Body, caps), f.Body
	}
	return e.fitHeaders(f, e.body, caps), e.body
}

// copyForErrorMinimal returns only FailedQ of them, for a transport that refused more.
func copyForErrorMinimal(f *failure) Headers {
	h := f.senderHeaders()
	h.Del(staleFailureHeaders(h)...)
	h.Del(retryHeaders...)
	h.Del(HeaderTimeToBeReceived)
	h.Set(HeaderFailedQ, f.ReceiveQueue)
	return h
}

// bareHeaders are the headers that an operator needs to recognise a failed message and
// return it.
var bareHeaders = []string{HeaderMessageID, HeaderMessageTypes, HeaderContentType, HeaderReplyToAddress, HeaderConversationID, HeaderCorrelationID, HeaderUndelivered}

// withoutLargest returns h without as many of its largest headers as make it smaller by
// size bytes, except those that an operator needs, and false if all of them together are
// not enough.
func withoutLargest(h Headers, size int) (smaller Headers, enough bool) {
	type sized struct {
		key  string
		size int
	}
	var all []sized
	for key, value := range h.All() {
		needed := key == HeaderFailedQ || slices.Contains(bareHeaders, key) && len(value) <= maxTypeName
		if !needed {
			all = append(all, sized{key, len(key) + len(value)})
		}
	}
	slices.SortStableFunc(all, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
	var leftOut []string
	for _, each := range all {
		if size <= 0 {
			break
		}
		leftOut = append(leftOut, each.key)
		size -= each.size
	}
	h.Del(leftOut...)
	return h, size <= 0
}

// copyForErrorBare is the last resort for a message whose own headers no transport
// accepts: only the headers that an operator needs to recognise and return it.
func copyForErrorBare(f *failure) Headers {
	var h Headers
	sender := f.senderHeaders()
	for _, key := range bareHeaders {
		if value := sender.Get(key); value != "" && len(value) <= maxTypeName {
			h.Set(key, value)
		}
	}
	f.writeID(&h)
	h.Set(HeaderFailedQ, f.ReceiveQueue)
	return sanitizeHeaders(h)
}

// The rest of this file is about Recoverability.EditFailed: the application's changes to the
// copy of a failed message that goes to an error queue.

// editedCopy is a failed message as EditFailed changed it.
type editedCopy struct {
	headers Headers // all, regardless of limits
	body    []byte
	// droppable are the keys of the headers that are left out first if the copy is too
	// large: the stack trace, and those that EditFailed added or made longer. The largest is
	// the first.
	droppable []string
}

// callEditFailed calls EditFailed, once for a delivery. Its error is an *undecidedError:
// the message is not to be moved.
func (r *runner) callEditFailed(a *attempt, f *failure, d *decision) error {
	hook := r.ep.config.Recoverability.EditFailed
	if hook == nil || f.editCalled {
		return nil
	}
	f.editCalled = true
	standard := headersForError(f, d.action, r.ep.host)
	message := &FailedCopy{Headers: standard, Body: bytes.Clone(f.Body), Queue: d.action.Queue}
	if d.deadLetter {
		message.Queue = ""
	}
	given := f.ErrorContext
	given.Body, given.Properties = bytes.Clone(f.Body), maps.Clone(f.Properties)
	a.returned.Store(false)
	err := callInGoroutine(func() error { hook(a.decisionContext(), given, message); return nil })
	a.returned.Store(true)
	if err != nil && r.interruptedByShutdown() {
		return &undecidedError{fmt.Errorf("EditFailed: %w", err)}
	}
	if err != nil {
		r.ep.log.logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelError, f, withStack([]slog.Attr{slog.Any("edit_error", err)}, "edit_stack", err),
			"EditFailed failed; the message is moved unedited", "EditFailed failed for message '%s'; the message is moved unedited.", f.MessageID)
		return nil
	}
	var restored []string
	f.edited, restored = newEditedCopy(standard, message)
	if len(restored) > 0 {
		r.ep.log.logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelWarn, f, []slog.Attr{slog.Any("headers", restored)},
			"EditFailed changed headers by which the message can be sent back; they are restored",
			"EditFailed changed headers of message '%s' by which it can be sent back; they are restored.", f.MessageID)
	}
	return nil
}

// identityHeaders has the headers that are needed to send a message back.
var identityHeaders = []string{HeaderMessageID, HeaderFailedQ}

// newEditedCopy returns the copy with EditFailed's changes of the standard headers and
// the body, and the headers that were restored.
func newEditedCopy(standard Headers, message *FailedCopy) (e *editedCopy, restored []string) {
	h := sanitizeHeaders(message.Headers)
	for _, key := range identityHeaders {
		if want := strings.ToValidUTF8(standard.Get(key), "\uFFFD"); h.Get(key) != want {
			h.Set(key, want)
			restored = append(restored, key)
		}
	}
	h.Del(HeaderUndelivered) // the endpoint's own; allHeaders sets it
	e = &editedCopy{headers: h, body: message.Body}
	size := func(key string) int { return len(key) + len(h.Get(key)) }
	for key, value := range h.All() {
		before, known := standard.Lookup(key)
		if key == HeaderExceptionStackTrace || !slices.Contains(identityHeaders, key) && (!known || len(value) > len(before)) {
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
	if note, ok := f.Headers.Lookup(HeaderUndelivered); ok {
		h.Set(HeaderUndelivered, note)
	}
	return h
}

// fitHeaders returns as many headers as are within the limits beside a body. If there is
// no room for any (copyForError), only the droppable headers are left out.
func (e *editedCopy) fitHeaders(f *failure, body []byte, caps Capabilities) Headers {
	h := e.allHeaders(f)
	var withoutDroppable Headers
	for _, keys := range [][]string{e.droppable, failureHeaders} {
		for _, key := range keys {
			if fits(h, body, caps) {
				return h
			}
			h.Del(key)
		}
		if withoutDroppable.Len() == 0 {
			withoutDroppable = h
		}
	}
	if fits(h, body, caps) {
		return h
	}
	return withoutDroppable
}

// lostBody reports whether the body that was sent is the original one instead of that of
// EditFailed.
func (e *editedCopy) lostBody(f *failure, sent []byte) bool {
	return e != nil && len(e.body) > len(f.Body) && len(sent) == len(f.Body)
}

// description returns the text of the error as EditFailed left it.
func (f *failure) description() string {
	if f.edited == nil {
		return f.Err.Error()
	}
	return f.edited.headers.Get(HeaderExceptionMessage)
}

// senderHeaders returns the headers of the received message with EditFailed's changes,
// but without headers that it dropped or made longer.
func (f *failure) senderHeaders() Headers {
	if f.edited == nil {
		return f.Headers
	}
	received := sanitizeHeaders(f.Headers)
	stale := staleFailureHeaders(received)
	h := f.edited.allHeaders(f)
	for key := range h.All() {
		if _, ok := received.Lookup(key); !ok || slices.Contains(stale, key) || slices.Contains(f.edited.droppable, key) {
			h.Del(key)
		}
	}
	return h
}
