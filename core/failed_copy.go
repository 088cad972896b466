package core

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

// This file makes the copies of a failed message: their headers (R33), and fewer of these,
// or of its sender, where the transport has no room for them (R24).

// failedCopy returns the failed message for a queue.
func failedCopy(f *failure, queue string, headers Headers, reason SendReason) Outgoing {
	return Outgoing{
		ID: f.messageID, Queue: queue, Headers: headers, Body: f.body,
		GroupKey: f.groupKey, Properties: f.properties, Native: f.native, Reason: reason,
	}
}

// leftOut names the parts of the sender's metadata that a copy of the message lacks.
func (f *failure) leftOut(out *Outgoing) []string {
	keys := f.headers.without(out.Headers)
	if f.groupKey != "" && out.GroupKey == "" {
		keys = append(keys, "the group key")
	}
	for name := range f.properties {
		if _, ok := out.Properties[name]; !ok {
			keys = append(keys, "the property "+name)
		}
	}
	if f.native != nil && out.Native == nil {
		keys = append(keys, "the native properties")
	}
	return keys
}

// headersForCopy returns the headers of a failed message within the limits.
func headersForCopy(f *failure, d *decision, by hostInfo, caps Capabilities) Headers {
	if f.edited != nil {
		return f.edited.fitHeaders(f, caps)
	}
	return copyForError(f, d, by, caps)
}

// copyForErrorMinimal returns only FailedQ of them, for a transport that refused more.
func copyForErrorMinimal(f *failure) Headers {
	h := f.senderHeaders()
	h.deleteFunc(isFailureHeader)
	h.Del(retryHeaders...)
	h.Set(headers.FailedQ, f.ReceiveQueue)
	return h
}

// bareHeaders are the headers that an operator needs to recognise a failed message and
// return it.
var bareHeaders = []string{headers.MessageID, headers.MessageTypes, headers.ContentType, headers.ReplyToAddress, headers.ConversationID, headers.CorrelationID, headers.Undelivered}

// copyForErrorSender returns the headers of the sender alone, of which none describes a
// failure at another queue.
func copyForErrorSender(f *failure) Headers {
	h := f.senderHeaders()
	failedHere := h.Get(headers.FailedQ) == f.ReceiveQueue // and an operator returned the message
	h.deleteFunc(isFailureHeader)
	h.Del(headers.Replay)
	if failedHere {
		h.Set(headers.FailedQ, f.ReceiveQueue)
	}
	return h
}

// copyForErrorBare is the last resort for a message whose own headers no transport
// accepts: only the headers that an operator needs to recognise and return it.
func copyForErrorBare(f *failure) Headers {
	h := bareCopy(f.senderHeaders())
	f.writeID(&h)
	h.Set(headers.FailedQ, f.ReceiveQueue)
	return sanitizeHeaders(h)
}

// bareCopy returns those of the bare headers that are no longer than ours are.
func bareCopy(sender Headers) (h Headers) {
	for _, key := range bareHeaders {
		if value := sender.Get(key); value != "" && len(value) <= maxTypeName {
			h.Set(key, value)
		}
	}
	return h
}

// Limits of the headers that a failure adds to a message.
const (
	maxErrorText   = 16 << 10
	maxTypeName    = 128
	maxTraceRounds = 20
)

// retryHeaders belong to a message that is still being retried.
var retryHeaders = []string{headers.Retries, headers.RetriesTimestamp, headers.Deferrals, headers.Deliveries, headers.Failures, headers.Replay, headerLegacyImmediateRetries}

// droppedHeaders are written by a move to an error queue, as FailedQ is. They are dropped in
// this order when the message is too large (R24): first the headers that help least to find
// and repair the message, FailedQ never.
var droppedHeaders = []string{
	headers.ExceptionStackTrace,
	headers.Attempts,
	headers.ExceptionSource,
	headers.ExceptionInnerType,
	headers.HandlerFailureTime,
	headers.HandlerStartTime,
	headers.HandledMessageType,
	headers.HostDisplayName,
	headers.HostID,
	headers.ProcessingMachine,
	headers.ProcessingEndpoint,
	headers.HandlerType,
	headers.ExceptionMessage,
	headers.ExceptionType,
	headers.TimeOfFailure,
	headers.FailureReason,
	headers.Cause,
}

// hostInfo identifies the endpoint in the headers of messages that it processed.
type hostInfo struct {
	endpoint, instance, machine, hostID string
}

// identity returns the headers that name the endpoint.
func (by hostInfo) identity() [4]header {
	return [...]header{
		{headers.ProcessingEndpoint, by.endpoint},
		{headers.ProcessingMachine, by.machine},
		{headers.HostID, by.hostID},
		{headers.HostDisplayName, by.instance},
	}
}

// write sets these headers.
func (by hostInfo) write(h *Headers) {
	for _, p := range by.identity() {
		h.Set(p.key, p.value)
	}
}

// headersOfCopy returns the headers that each copy has which is handled in the message's place,
// except a new copy.
func (f *failure) headersOfCopy() Headers {
	h := f.headers
	f.writeID(&h)
	h.Del(headers.Deliveries, headers.Failures)
	return h
}

// copyForRetry returns the headers of a delayed retry (R22).
func copyForRetry(f *failure, action Action) Headers {
	h := copyForRetryAfter(f, action)
	h.Set(headers.Retries, strconv.Itoa(f.DelayedDeliveriesPerformed+1))
	h.Set(headers.RetriesTimestamp, headers.FormatTime(f.FailedAt))
	return h
}

// copyForRetryAfter returns the headers of a retry that a handler requested: the headers of
// delayed retries are kept unchanged.
func copyForRetryAfter(f *failure, action Action) Headers {
	h := f.headersOfCopy()
	h.Set(headers.Attempts, extendTrace(f, describe(f.Err).exceptionType, action))
	return h
}

// copyForRefusal returns the headers of a message that middleware refused: nothing is
// counted, and the earlier failed attempts are not forgotten.
func copyForRefusal(f *failure) Headers {
	h := f.headersOfCopy()
	if failed := f.ImmediateProcessingFailures - 1; failed > 0 {
		h.Set(headers.Failures, strconv.Itoa(failed))
	}
	return h
}

// copyForDeferral returns the headers of a deferred message: the retry headers are kept
// unchanged.
func copyForDeferral(f *failure) Headers {
	h := f.headersOfCopy()
	h.Set(headers.Deferrals, strconv.Itoa(f.deferrals+1))
	return h
}

// newCopy returns the headers of the one new copy of a message that was delivered too
// often, perhaps without a handler.
func newCopy(f *failure) Headers {
	h := f.headers
	f.writeID(&h)
	h.Set(headers.Deliveries, strconv.Itoa(f.ImmediateProcessingFailures))
	return h
}

// copyForError returns the headers of a failed message (R23), as many as are within the
// limits beside the body (R24). A message that leaves no room for any header was sent
// with other limits, or by a foreign sender. As the limits are those for applications and
// say nothing about the broker's own, it then gets all headers.
func copyForError(f *failure, d *decision, by hostInfo, caps Capabilities) Headers {
	all := headersForError(f, d, by)
	if h, ok := dropToFit(all, droppedHeaders, f.body, caps); ok {
		return h
	}
	return all
}

// headersForError returns all headers of a failed message (R23).
func headersForError(f *failure, d *decision, by hostInfo) Headers {
	h := f.headers
	description := describe(f.Err)
	trace := extendTrace(f, description.exceptionType, d.action)
	h.deleteFunc(isFailureHeader)
	h.Del(retryHeaders...)
	f.writeID(&h)
	description.write(&h)
	h.Set(headers.TimeOfFailure, headers.FormatTime(f.FailedAt))
	h.Set(headers.FailureReason, string(d.reason.kind))
	by.write(&h)
	h.Set(headers.Attempts, trace)
	if f.Handler != "" {
		h.Set(headers.HandlerType, f.Handler)
		h.Set(headers.HandlerStartTime, headers.FormatTime(f.handlerBegan))
		h.Set(headers.HandlerFailureTime, headers.FormatTime(f.handlerFailed))
		h.Set(headers.HandledMessageType, f.messageType)
	}
	h.Set(headers.FailedQ, f.ReceiveQueue)
	return h
}

// isFailureHeader reports whether a move to an error queue writes the header, so that one
// on a received message is of an earlier failure, or of a sender.
func isFailureHeader(key string) bool {
	return key == headers.FailedQ || strings.HasPrefix(key, headerExceptionPrefix) || slices.Contains(droppedHeaders, key)
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
	return sizeFits(h.Bytes(), body, caps)
}

// sizeFits reports whether headers of a size fit beside the body.
func sizeFits(size int, body []byte, caps Capabilities) bool {
	if caps.MaxHeaderBytes > 0 && size > caps.MaxHeaderBytes {
		return false
	}
	return caps.MaxMessageBytes == 0 || size+len(body) <= caps.MaxMessageBytes
}

// dropToFit returns h without the first of the keys, as few as possible, and whether it
// then is within the limits beside the body. If it is not, h has none of the keys.
func dropToFit(h Headers, keys []string, body []byte, caps Capabilities) (smaller Headers, ok bool) {
	size := h.Bytes()
	if sizeFits(size, body, caps) {
		return h, true
	}
	order := make(map[string]int, len(keys))
	for i, key := range keys {
		order[key] = i
	}
	sizes := make([]int, len(keys))
	for key, value := range h.All() {
		if i, found := order[key]; found {
			sizes[i] = len(key) + len(value)
		}
	}
	dropped := 0
	for ; dropped < len(keys) && !sizeFits(size, body, caps); dropped++ {
		size -= sizes[dropped]
	}
	h.deleteFunc(func(key string) bool {
		i, found := order[key]
		return found && i < dropped
	})
	return h, sizeFits(size, body, caps)
}

// sanitize repairs the invalid metadata of a foreign producer, which no transport need
// accept, so that the message can be sent on (R24).
func (f *failure) sanitize() {
	f.headers = sanitizeHeaders(f.headers)
	f.messageID = strings.ToValidUTF8(f.messageID, "\uFFFD")
	f.groupKey = strings.ToValidUTF8(f.groupKey, "\uFFFD")
	f.properties = sanitizeProperties(f.properties)
}

// sanitizeProperties returns properties as sanitizeHeaders returns headers.
func sanitizeProperties(properties map[string]string) map[string]string {
	if len(properties) == 0 {
		return nil
	}
	return sanitizeHeaders(HeadersFromMap(properties)).Map()
}

// extendTrace returns the value of headers.Attempts with this failure added. If there are
// too many rounds, those after the first since the message was last in an error queue are
// dropped; the first is kept because it tells when the failures began.
func extendTrace(f *failure, exceptionType string, action Action) string {
	rounds := headers.ParseAttempts(f.headers.Get(headers.Attempts))
	if first := firstRound(rounds); first < len(rounds) {
		if at := parseTimeOrZero(rounds[first].At); at.IsZero() || at.After(f.FailedAt) { // a sender has forged it
			rounds[first].At = headers.FormatTime(f.FailedAt)
		}
	}
	rounds = append(rounds, headers.Round{
		At:        headers.FormatTime(f.FailedAt),
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
		if len(text) <= headers.MaxAttempts || len(rounds) == 1 {
			return string(text)
		}
		rounds = shortenRounds(rounds)
	}
}

// shortTrace returns the value of headers.Attempts with nothing but the time of the first
// failure. Its length is the same after each failure: a message that had room for it has it
// again.
func shortTrace(f *failure, action Action) string {
	first := f.FirstFailure
	if first.IsZero() {
		first = f.FailedAt
	}
	text, err := json.Marshal([]headers.Round{{At: headers.FormatTime(first), Action: action.Kind.String()}})
	if err != nil {
		return "" // unreachable: strings and integers always encode
	}
	return string(text)
}

// shortenRounds drops the second of several rounds, or the rounds before a move to an
// error queue.
func shortenRounds(rounds []headers.Round) []headers.Round {
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
	rounds := headers.ParseAttempts(h.Get(headers.Attempts))
	for _, round := range rounds[firstRound(rounds):] {
		if at := parseTimeOrZero(round.At); !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// firstRound returns the index of the first round after the last move to an error queue.
func firstRound(rounds []headers.Round) (first int) {
	for i, round := range rounds {
		if round.Action == ActionMoveToError.String() {
			first = i + 1
		}
	}
	return first
}

// firstFailure returns when the message failed first, or the zero time. A sender may have
// forged the time in the headers: it is never after now.
func (in *Incoming) firstFailure(now time.Time) time.Time {
	at, seen := firstFailure(in.Headers), in.earlier.firstFailure
	if at.IsZero() || !seen.IsZero() && seen.Before(at) {
		at = seen
	}
	if at.After(now) {
		return now
	}
	return at
}
