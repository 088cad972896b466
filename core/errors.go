package core

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/fingerprint"
	"github.com/reprise-go/reprise/core/internal/panicstack"
	"github.com/reprise-go/reprise/internal/bounded"
)

// asSendError returns the SendError in err, if it has this number of messages.
func asSendError(err error, messages int) (*SendError, bool) {
	sent, ok := errors.AsType[*SendError](err)
	return sent, ok && len(sent.Results) == messages
}

// isAccepted reports whether a send that returned err has accepted the message at an index.
func isAccepted(err error, messages, index int) bool {
	sent, ok := asSendError(err, messages)
	return ok && sent.Results[index].State == SendAccepted
}

// wrapSendError returns the error of an attempt whose sends failed with err.
func wrapSendError(err error, out []Outgoing) error {
	if err == nil {
		return nil
	}
	if slices.ContainsFunc(out, func(o Outgoing) bool { return isRefusedPermanently(err, o.ID) }) {
		return fmt.Errorf("%w: %w", ErrSendRefused, err)
	}
	return err
}

// isRefusedWith reports whether a message was refused with the error target, not merely
// because of another message in the same call.
func isRefusedWith(err error, id string, target error) bool {
	sent, ok := errors.AsType[*SendError](err)
	if !ok {
		return errors.Is(err, target)
	}
	return slices.ContainsFunc(sent.Results, func(r SendResult) bool {
		return r.ID == id && r.State == SendRefused && errors.Is(r.Err, target)
	})
}

// isRefusedPermanently reports whether sending the message again cannot help.
func isRefusedPermanently(err error, id string) bool {
	for _, target := range permanentErrors {
		if isRefusedWith(err, id, target) {
			return true
		}
	}
	return false
}

// failedByQueue reports whether a send failed because of its queue, not because of the
// message.
func failedByQueue(err error, id string) bool {
	return !isRefusedPermanently(err, id) || isRefusedWith(err, id, ErrQueueNotFound) || isRefusedWith(err, id, errName)
}

// Errors with which messages fail.
var (
	// ErrNoHandler: no handler is registered for the message's type. It is retried, unless
	// [Recoverability.Unrecoverable] lists it: a newer instance may have one.
	ErrNoHandler = errors.New("no handler for the message type")

	// ErrNoType: the message names no type, [Config.MessageType] and middleware gave it
	// none, and there is no default handler. It is unrecoverable.
	ErrNoType = errors.New("the message names no type")

	// ErrUndecodable: the codec could not decode the body. The error wraps the codec's. It
	// is unrecoverable.
	ErrUndecodable = errors.New("body cannot be decoded")

	// ErrMalformed: the transport could not parse the message. The error wraps
	// [Incoming.Malformed]. It is unrecoverable.
	ErrMalformed = errors.New("message cannot be parsed")

	// ErrDeliveryCountExceeded: the message was delivered more often than
	// [Recoverability.MaxDeliveries].
	ErrDeliveryCountExceeded = errors.New("delivered more often than MaxDeliveries")

	// ErrRequeueLimitExceeded: the message was deferred more often than
	// [Recoverability.RequeueLimit]. The error wraps the handler's.
	ErrRequeueLimitExceeded = errors.New("deferred more often than RequeueLimit")

	// ErrOutage: an outage has lasted for [Config.OutageLimit]. The critical error has its
	// beginning, and wraps the transport's last error.
	ErrOutage = errors.New("no connection to the broker")

	// ErrCircuitOpen: middleware refused the message because a circuit breaker is open; no
	// handler was called.
	ErrCircuitOpen = errors.New("the circuit is open")

	// ErrSendRefused: the transport refused the sends of an attempt for a permanent reason:
	// the queue does not exist, the message is too large, the transport lacks the ability.
	// It is unrecoverable.
	ErrSendRefused = errors.New("a message that the handler sent was refused")

	// ErrNoReplyAddress: Reply was called for a message without a reply address.
	ErrNoReplyAddress = errors.New("message has no reply address; its sender must have a queue or set SendOptions.ReplyTo")

	// ErrHandlingEnded: a method of a [Message] was called after its handling had ended.
	ErrHandlingEnded = errors.New("handling of the message has ended; send before the handler returns, or with Endpoint.Send")
)

// Errors of Run, and causes of a handler's cancelled context.
var (
	// ErrShutdown: the handler's context was cancelled because the drain took too long.
	ErrShutdown = errors.New("endpoint is shutting down")

	// ErrHandlersRunning: handlers, a policy or [HandleFailed] did not return after their
	// contexts had been cancelled. Their messages were not settled and are redelivered.
	ErrHandlersRunning = errors.New("handlers are still running")

	// ErrHandlerTimeout: the handler's context was cancelled at [Config.HandlerTimeout].
	// The failure of the attempt matches it.
	ErrHandlerTimeout = errors.New("handler timeout")

	// ErrUnacceptableMessageLimit: [UnacceptableMessageLimit.Count] messages failed
	// permanently. [Endpoint.Run] returns it, and may be called again. In [RunAll] it is a
	// critical error too.
	ErrUnacceptableMessageLimit = errors.New("unacceptable message limit reached")
)

// PanicError is the failure of a handler that panicked.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // of the goroutine, from the code that panicked on, without frames of this package below it
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// panicIn returns the panic in err, or nil. Of several independent handlers it may be that of
// one that does not decide.
func panicIn(err error) *PanicError {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return p
	}
	if several, ok := errors.AsType[*HandlersError](err); ok {
		for _, failure := range several.Failures {
			if p, ok := errors.AsType[*PanicError](failure.Err); ok {
				return p
			}
		}
	}
	return nil
}

// statedError is a failure that the engine states about a message. It matches kind, and
// wraps the error that it is about.
type statedError struct {
	kind error
	text string
	err  error
}

func (e *statedError) Error() string        { return e.text }
func (e *statedError) Unwrap() error        { return e.err }
func (e *statedError) Is(target error) bool { return target == e.kind }

// The types of stated errors, whose names operators read in headers and metrics.
type (
	malformedError    struct{ statedError }
	decodeError       struct{ statedError }
	requeueLimitError struct{ statedError }
)

func newMalformedError(err error) error {
	return &malformedError{statedError{ErrMalformed, fmt.Sprintf("%v: %v", ErrMalformed, err), err}}
}

func newDecodeError(messageType, contentType string, err error, details string) error {
	return &decodeError{statedError{ErrUndecodable, fmt.Sprintf("decode %q from %s: %v%s", bounded.Name(messageType), bounded.Name(contentType), err, details), err}}
}

func newRequeueLimitError(limit int, err error) error {
	return &requeueLimitError{statedError{ErrRequeueLimitExceeded, fmt.Sprintf("%v (%d): %v", ErrRequeueLimitExceeded, limit, err), err}}
}

// errorRank is how much the type of an error says about its cause.
type errorRank int

const (
	rankNone    errorRank = iota // no error
	rankText                     // a type of package errors or fmt
	rankLibrary                  // a type of an error library, for a text, a stack or several errors
	rankCause                    // any other type
)

// errorLibraries are elements of the paths of packages whose types any error may have.
var errorLibraries = []string{"errors", "xerrors", "eris", "multierr", "multierror", "go-multierror"}

func rankOf(err error) errorRank {
	t := reflect.TypeOf(err)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, path := t.Name(), t.PkgPath()
	if path == "errors" || path == "fmt" {
		return rankText
	}
	if first, _ := utf8.DecodeRuneInString(name); name == "Error" || name == "Err" || !unicode.IsUpper(first) {
		for element := range strings.SplitSeq(path, "/") {
			if slices.Contains(errorLibraries, element) {
				return rankLibrary
			}
		}
	}
	return rankCause
}

// specificType returns the type of the innermost error of the highest rank.
func specificType(chain []error) reflect.Type {
	specific, highest := chain[0], rankNone
	for _, each := range slices.Backward(chain) {
		if rank := rankOf(each); rank > highest {
			specific, highest = each, rank
		}
	}
	return reflect.TypeOf(specific)
}

// ErrorTypeOf returns the type of the innermost error that is not of package errors or fmt,
// such as "*fs.PathError", at most 128 bytes, or "" for nil. Types of error libraries, such as
// pkg/errors, count only if there is no other. Of joined errors the first that has one counts.
func ErrorTypeOf(err error) string {
	if err == nil {
		return ""
	}
	if snapshot, ok := err.(*errorSnapshot); ok {
		return snapshot.description.exceptionType
	}
	return boundedText(specificType(errorChain(err)).String(), maxTypeName)
}

// packageOf returns the package of a type, or of the type that it points to.
func packageOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}

// errorDescription has the parts of an error that headers contain.
type errorDescription struct {
	// exceptionType is the Go type of the innermost error of the highest rank.
	exceptionType string
	innerType     string // of the innermost error, if another one wraps it
	message       string
	source        string // the package that declares the type
	stackTrace    string // the chain of wrapping, and the stack of a panic or an error
	panicked      string // the function that did, or ""
}

// cause returns the value of headers.Cause.
func (e *errorDescription) cause() string {
	return fingerprint.Of(e.exceptionType, e.message, e.panicked)
}

func describe(err error) errorDescription {
	if snapshot, ok := err.(*errorSnapshot); ok {
		return snapshot.description
	}
	chain := errorChain(err)
	named := reflect.TypeOf(chain[len(chain)-1])
	e := errorDescription{message: boundedText(err.Error(), maxErrorText)}
	if len(chain) > 1 {
		e.innerType = boundedText(named.String(), maxTypeName)
	}
	named = specificType(chain)
	e.exceptionType = boundedText(named.String(), maxTypeName)
	e.source = packageOf(named)
	var b strings.Builder
	for i, each := range chain {
		fmt.Fprintf(&b, "%s%v: %s\n", strings.Repeat("  ", i), reflect.TypeOf(each), boundedText(each.Error(), maxErrorText/8))
		if b.Len() > maxErrorText {
			break
		}
	}
	if p := panicIn(err); p != nil {
		e.panicked = boundedText(panicstack.Function(p.Stack), maxErrorText)
	}
	if stack := stackIn(err); stack != "" {
		b.WriteString("\n")
		b.WriteString(stack)
	}
	e.stackTrace = boundedText(b.String(), maxErrorText)
	return e
}

func (e *errorDescription) write(h *Headers) {
	h.Set(headers.ExceptionType, e.exceptionType)
	if e.innerType != "" {
		h.Set(headers.ExceptionInnerType, e.innerType)
	}
	h.Set(headers.ExceptionMessage, e.message)
	if e.source != "" {
		h.Set(headers.ExceptionSource, e.source)
	}
	h.Set(headers.ExceptionStackTrace, e.stackTrace)
	h.Set(headers.Cause, e.cause())
}

// errorSnapshot stands for an error of which only the text was kept, and the properties
// that the engine itself checks.
type errorSnapshot struct {
	description errorDescription
	matches     []error
}

func snapshotError(err error) *errorSnapshot {
	e := &errorSnapshot{description: describe(err)}
	for _, target := range []error{ErrMalformed, ErrUndecodable, ErrDeliveryCountExceeded} {
		if errors.Is(err, target) {
			e.matches = append(e.matches, target)
		}
	}
	return e
}

// Is reports whether the original error matched target.
func (e *errorSnapshot) Is(target error) bool { return slices.Contains(e.matches, target) }

// Error implements error.
func (e *errorSnapshot) Error() string { return e.description.message }

// errorChain returns err and the errors that it wraps, outermost first. It leaves out
// verdicts, which are the engine's, unless there is nothing else.
func errorChain(err error) []error {
	budget := maxErrorsVisited
	chain, _ := branchOf(err, &budget)
	if len(chain) == 0 {
		return []error{err}
	}
	slices.Reverse(chain)
	return chain
}

// maxErrorsVisited is the number of wrapped and joined errors that are visited: an error may
// list itself.
const maxErrorsVisited = 1 << 14

// branchOf returns the errors along one branch of joined errors, innermost first, and their
// highest rank. At each join it follows the first of the branches with the highest rank.
func branchOf(err error, budget *int) (branch []error, highest errorRank) {
	var outer []error
	for e := err; e != nil && *budget > 0; e = errors.Unwrap(e) {
		*budget--
		if _, ours := e.(*Verdict); !ours {
			outer = append(outer, e)
			highest = max(highest, rankOf(e))
		}
		joined := joinedBy(e)
		if joined == nil {
			continue
		}
		chosen := rankNone
		for _, each := range joined {
			if inner, rank := branchOf(each, budget); rank > chosen {
				branch, chosen = inner, rank
			}
			if chosen == rankCause {
				break
			}
		}
		highest = max(highest, chosen)
		break
	}
	slices.Reverse(outer)
	return append(branch, outer...), highest
}

// joinedBy returns the errors that err joins, by the methods of package errors, of
// hashicorp/go-multierror, and of older libraries, or nil.
func joinedBy(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ WrappedErrors() []error }:
		return e.WrappedErrors()
	case interface{ Errors() []error }:
		return e.Errors()
	}
	return nil
}

// boundedText makes arbitrary text fit for a header: UTF-8, without NUL (which
// PostgreSQL's text cannot hold), at most limit bytes.
func boundedText(text string, limit int) string {
	const cut = " [truncated]"
	whole := len(text) <= limit
	text = strings.ToValidUTF8(text[:min(len(text), limit)], "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	if whole && len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:min(len(text), limit-len(cut))], "") + cut
}
