package core

import (
	"cmp"
	"log/slog"
	"slices"
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
