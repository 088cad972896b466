package core

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file makes the copies of a failed message: their headers (R33), and fewer of these,
// or of its sender, where the transport has no room for them (R24).

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

// Limits of the headers that a failure adds to a message (R24, R33).
const (
	maxErrorText   = 16 << 10
	maxTrace       = 4 << 10
	maxTypeName    = 128
	maxTraceRounds = 20
)

// retryHeaders belong to a message that is still being retried.
var retryHeaders = []string{HeaderRetries, HeaderRetriesTimestamp, HeaderDeferrals, HeaderDeliveries, HeaderFailures, headerLegacyImmediateRetries}

// failureHeaders are written by a move to an error queue. They are dropped in this order
// when the message is too large (R24): first the headers that help least to find and
// repair the message, FailedQ never.
var failureHeaders = []string{
	HeaderExceptionStackTrace,
	HeaderAttempts,
	HeaderExceptionSource,
	HeaderExceptionInnerType,
	HeaderHandlerFailureTime,
	HeaderHandlerStartTime,
	HeaderHandledMessageType,
	HeaderHostDisplayName,
	HeaderHostID,
	HeaderProcessingMachine,
	HeaderProcessingEndpoint,
	HeaderHandlerType,
	HeaderExceptionMessage,
	HeaderExceptionType,
	HeaderTimeOfFailure,
	HeaderFailureReason,
	HeaderFailedQ,
}

// hostInfo identifies the endpoint in the headers of messages that it processed.
type hostInfo struct {
	endpoint, instance, machine, hostID string
}

// copyForRetry returns the headers of a delayed retry (R22).
func copyForRetry(f *failure, action Action) Headers {
	h := f.Headers
	f.writeID(&h)
	h.Del(HeaderTimeToBeReceived, HeaderDeliveries, HeaderFailures)
	h.Set(HeaderRetries, strconv.Itoa(f.DelayedDeliveriesPerformed+1))
	h.Set(HeaderRetriesTimestamp, FormatTime(f.FailedAt))
	h.Set(HeaderAttempts, extendTrace(f, describe(f.Err).exceptionType, action))
	return h
}

// copyForRefusal returns the headers of a message that middleware refused: nothing is
// counted, and the earlier failed attempts are not forgotten.
func copyForRefusal(f *failure) Headers {
	h := f.Headers
	f.writeID(&h)
	h.Del(HeaderTimeToBeReceived, HeaderDeliveries, HeaderFailures)
	if failed := f.ImmediateProcessingFailures - 1; failed > 0 {
		h.Set(HeaderFailures, strconv.Itoa(failed))
	}
	return h
}

// copyForDeferral returns the headers of a deferred message: the retry headers are kept
// unchanged.
func copyForDeferral(f *failure) Headers {
	h := f.Headers
	f.writeID(&h)
	h.Del(HeaderTimeToBeReceived, HeaderDeliveries, HeaderFailures)
	h.Set(HeaderDeferrals, strconv.Itoa(f.deferrals+1))
	return h
}

// newCopy returns the headers of the one new copy of a message that was delivered too
// often, perhaps without a handler.
func newCopy(f *failure) Headers {
	h := f.Headers
	f.writeID(&h)
	h.Del(HeaderTimeToBeReceived)
	h.Set(HeaderDeliveries, strconv.Itoa(f.ImmediateProcessingFailures))
	return h
}

// copyForError returns the headers of a failed message (R23), as many as are within the
// limits beside the body (R24). A message that leaves no room for any header was sent
// with other limits, or by a foreign sender. As the limits are those for applications and
// say nothing about the broker's own, it then gets all headers.
func copyForError(f *failure, action Action, by hostInfo, caps Capabilities) Headers {
	all := headersForError(f, action, by)
	h := all
	for _, key := range failureHeaders {
		if fits(h, f.Body, caps) {
			return h
		}
		h.Del(key)
	}
	return all
}

// headersForError returns all headers of a failed message (R23).
func headersForError(f *failure, action Action, by hostInfo) Headers {
	h := f.Headers
	description := describe(f.Err)
	trace := extendTrace(f, description.exceptionType, action)
	stale := append(staleFailureHeaders(h), HeaderTimeToBeReceived)
	h.Del(append(stale, retryHeaders...)...)
	f.writeID(&h)
	description.write(&h)
	h.Set(HeaderTimeOfFailure, FormatTime(f.FailedAt))
	if f.reason != "" {
		h.Set(HeaderFailureReason, string(f.reason))
	}
	h.Set(HeaderProcessingEndpoint, by.endpoint)
	h.Set(HeaderProcessingMachine, by.machine)
	h.Set(HeaderHostID, by.hostID)
	h.Set(HeaderHostDisplayName, by.instance)
	h.Set(HeaderAttempts, trace)
	if f.Handler != "" {
		h.Set(HeaderHandlerType, f.Handler)
		h.Set(HeaderHandlerStartTime, FormatTime(f.HandlerStarted))
		h.Set(HeaderHandlerFailureTime, FormatTime(f.handlerFailed))
		h.Set(HeaderHandledMessageType, f.MessageType)
	}
	h.Set(HeaderFailedQ, f.ReceiveQueue)
	return h
}

// staleFailureHeaders returns the headers of an earlier failure of the same message.
func staleFailureHeaders(h Headers) []string {
	stale := append([]string(nil), failureHeaders...)
	for key := range h.All() {
		if strings.HasPrefix(key, headerExceptionPrefix) {
			stale = append(stale, key)
		}
	}
	return stale
}

// limitsForCopy returns the limits for the headers and body of a copy of in, whose group
// key and properties count too.
func (c Capabilities) limitsForCopy(in *Incoming) Capabilities {
	carried := len(in.GroupKey)
	for name, value := range in.Properties {
		carried += len(name) + len(value)
	}
	for _, limit := range []*int{&c.MaxHeaderBytes, &c.MaxMessageBytes} {
		if *limit > 0 {
			*limit = max(*limit-carried, 1)
		}
	}
	return c
}

func fits(h Headers, body []byte, caps Capabilities) bool {
	size := h.Bytes()
	if caps.MaxHeaderBytes > 0 && size > caps.MaxHeaderBytes {
		return false
	}
	return caps.MaxMessageBytes == 0 || size+len(body) <= caps.MaxMessageBytes
}

// sanitize repairs invalid headers of a foreign producer, which no transport need
// accept, so that the message can be sent on (R24).
func (f *failure) sanitize() {
	f.Headers = sanitizeHeaders(f.Headers)
	f.MessageID = strings.ToValidUTF8(f.MessageID, "\uFFFD")
}

// Round is one round of attempts at a message, as the header Reprise.Attempts
// tells it (R33).
type Round struct {
	// At is when the round's last attempt failed, as [FormatTime] writes it.
	At string `json:"at"`
	// Error is the type of the last error.
	Error string `json:"error"`
	// Attempts is how many attempts failed.
	Attempts int `json:"attempts"`
	// Deferrals is how often handlers had deferred the message by then.
	Deferrals int `json:"deferrals,omitempty"`
	// Action is the action after the round: [DelayedRetry] or [MoveToError].
	Action string `json:"action"`
	// Delay is that of a [DelayedRetry], as time.Duration writes it.
	Delay string `json:"delay,omitempty"`
}

// Rounds returns the rounds of a message so far, in their order, from its header
// Reprise.Attempts. At most 20 rounds are kept: the first, and the last ones. A header
// that cannot be read counts as none.
func Rounds(h Headers) []Round {
	text := h.Get(HeaderAttempts)
	if text == "" || len(text) > maxTrace {
		return nil
	}
	var rounds []Round
	if json.Unmarshal([]byte(text), &rounds) != nil {
		return nil
	}
	return rounds
}

// extendTrace returns the value of HeaderAttempts with this failure added. If there are
// too many rounds, those after the first since the message was last in an error queue are
// dropped; the first is kept because it tells when the failures began.
func extendTrace(f *failure, exceptionType string, action Action) string {
	rounds := append(Rounds(f.Headers), Round{
		At:        FormatTime(f.FailedAt),
		Error:     exceptionType,
		Attempts:  f.ImmediateProcessingFailures,
		Deferrals: f.deferrals,
		Action:    action.Kind.String(),
	})
	if action.Kind == ActionDelayedRetry {
		rounds[len(rounds)-1].Delay = action.Delay.String()
	}
	for len(rounds) > maxTraceRounds {
		rounds = shortenRounds(rounds)
	}
	for {
		text, err := json.Marshal(rounds)
		if err != nil {
			return "" // unreachable: strings and integers always encode
		}
		if len(text) <= maxTrace || len(rounds) == 1 {
			return string(text)
		}
		rounds = shortenRounds(rounds)
	}
}

// shortenRounds drops the second of several rounds, or the rounds before a move to an
// error queue.
func shortenRounds(rounds []Round) []Round {
	moved := ActionMoveToError.String()
	switch {
	case len(rounds) == 2 || rounds[0].Action == moved:
		return rounds[1:]
	case rounds[1].Action == moved:
		return rounds[2:]
	}
	return append(rounds[:1], rounds[2:]...)
}

// firstFailure returns when the message first failed, or the zero time. Failures before a
// move to an error queue do not count: an operator who returned the message from there
// gave it a fresh start.
func firstFailure(h Headers) time.Time {
	var first time.Time
	for _, round := range Rounds(h) {
		switch {
		case round.Action == ActionMoveToError.String():
			first = time.Time{}
		case first.IsZero():
			first = parseTimeOrZero(round.At)
		}
	}
	return first
}

// firstFailure returns when the message failed first, or the zero time.
func (in *Incoming) firstFailure() time.Time {
	if at := firstFailure(in.Headers); !at.IsZero() {
		return at
	}
	return in.earlier.firstFailure
}
