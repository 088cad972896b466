package transport

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// CheckSubscribers handles a message that goes to a number of queues: if it is an event that
// goes to none, it returns [core.ErrNoSubscriber] where one is required, and reports it
// otherwise. ctx is that of the send or the settlement.
func CheckSubscribers(ctx context.Context, out *core.Outgoing, queues int) error {
	switch {
	case queues > 0 || out.Topic == "":
	case out.RequireSubscriber:
		return fmt.Errorf("%w: topic %q; to fix: start a subscriber, or remove SendOptions.RequireSubscriber", core.ErrNoSubscriber, out.Topic)
	default:
		core.ReportNoSubscriber(ctx, out)
	}
	return nil
}

// CheckOutgoing returns an error for a message that a transport with these capabilities
// cannot send to any destination: the message needs an ability that is not claimed
// (errors.ErrUnsupported), exceeds a limit ([core.ErrTooLarge]), has a header,
// group key or property that is not UTF-8 ([core.ErrInvalidHeader]), or has a negative
// duration. An adapter's Send calls it for every message before it sends the first.
//
// The size limits apply to messages of applications, not to the copies of received
// messages that the engine makes ([core.SendReason.IsCopy]). An adapter checks the copies
// against the limits of its broker, unless the broker's refusal affects only that message.
func CheckOutgoing(out *core.Outgoing, caps *core.Capabilities) error {
	switch {
	case out.ID == "":
		return errors.New("ID is empty; give the message an id, which a receiver recognizes it by")
	case out.Queue == "" && out.Topic == "":
		return errors.New("neither Queue nor Topic is set")
	case out.Queue != "" && out.Topic != "":
		return fmt.Errorf("both Queue %q and Topic %q are set", out.Queue, out.Topic)
	case out.Topic != "" && !caps.PublishSubscribe:
		return Unsupported("PublishSubscribe")
	case out.Topic == "" && out.RequireSubscriber:
		return errors.New("RequireSubscriber is set without Topic")
	case out.Topic == "" && len(out.BaseTopics) > 0:
		return fmt.Errorf("BaseTopics %q are set without Topic", out.BaseTopics)
	case len(out.BaseTopics) > 0 && !caps.BaseTopics:
		return Unsupported("BaseTopics")
	case out.Delay < 0:
		return fmt.Errorf("Delay is negative: %v", out.Delay)
	case out.Delay > 0 && !caps.DelayedDelivery:
		return Unsupported("DelayedDelivery")
	case caps.MaxDelay > 0 && out.Delay > caps.MaxDelay:
		return fmt.Errorf("Delay is %v, MaxDelay is %v: %w", out.Delay, caps.MaxDelay, errors.ErrUnsupported)
	case out.TimeToBeReceived < 0:
		return fmt.Errorf("TimeToBeReceived is negative: %v", out.TimeToBeReceived)
	case out.TimeToBeReceived > 0 && !caps.TimeToBeReceived:
		return Unsupported("TimeToBeReceived")
	}
	limited := !out.Reason.IsCopy()
	size := 0
	for key, value := range out.Headers.All() {
		if key == "" {
			return fmt.Errorf("%w: a key is empty", core.ErrInvalidHeader)
		}
		if !validText(key) || !validText(value) {
			return fmt.Errorf("%w: %q is not UTF-8 or its value is not", core.ErrInvalidHeader, key)
		}
		if limit := caps.MaxHeaderKeyBytes; limited && limit > 0 && len(key) > limit {
			return &core.TooLargeError{Limit: "MaxHeaderKeyBytes", Max: limit, Size: len(key)}
		}
		size += len(key) + len(value)
	}
	if !validText(out.GroupKey) {
		return fmt.Errorf("%w: GroupKey is not UTF-8", core.ErrInvalidHeader)
	}
	size += len(out.GroupKey)
	for name, value := range out.Properties {
		if name == "" {
			return fmt.Errorf("%w: the name of a property is empty", core.ErrInvalidHeader)
		}
		if !validText(name) || !validText(value) {
			return fmt.Errorf("%w: the property %q is not UTF-8 or its value is not", core.ErrInvalidHeader, name)
		}
		size += len(name) + len(value)
	}
	if limit := caps.MaxHeaderBytes; limited && limit > 0 && size > limit {
		return &core.TooLargeError{Limit: "MaxHeaderBytes", Max: limit, Size: size}
	}
	size += len(out.Body)
	if limit := caps.MaxMessageBytes; limited && limit > 0 && size > limit {
		return &core.TooLargeError{Limit: "MaxMessageBytes", Max: limit, Size: size}
	}
	return nil
}

// DeduplicationID returns an id for a broker that drops a message with the id of an earlier one:
// a new id at each call, and so none that is ever dropped, except for a return of a message to
// its queue ([core.ReasonReturn]). That has the same id at each call with the same
// [headers.RetryUniqueMessageID], so that the broker drops a return that a tool sends again, and
// never takes a return for its message or for a failed copy (C38). The id has at most 39 bytes,
// letters, digits and hyphens.
func DeduplicationID(out *core.Outgoing) string {
	if out.Reason == core.ReasonReturn {
		if id := out.Headers.Get(headers.RetryUniqueMessageID); id != "" {
			sum := sha256.Sum256([]byte(id))
			return "return-" + hex.EncodeToString(sum[:16])
		}
	}
	return rand.Text()
}

// Unsupported returns the error for an operation that needs a capability, a field of
// [core.Capabilities].
func Unsupported(capability string) error {
	return fmt.Errorf("the transport does not have the capability %s: %w", capability, errors.ErrUnsupported)
}

// validText reports whether s is UTF-8. Nearly all headers are short and ASCII, and a
// loop detects that in less time than a call of utf8.ValidString takes.
func validText(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return utf8.ValidString(s)
		}
	}
	return true
}

// NoneSent returns a SendError in which every message is refused: msgs[bad] for the
// cause, the others because of it. If bad is below 0, the cause concerns all of them.
func NoneSent(msgs []core.Outgoing, bad int, cause error) *core.SendError {
	failed := AllSent(msgs, core.SendRefused, cause)
	for i := range failed.Results {
		if bad >= 0 && bad != i {
			failed.Results[i].Err = companionError(msgs[bad].ID)
		}
	}
	return failed
}

// companionError is the error of a message that was not sent because of another message,
// whose id it is.
type companionError string

// Error implements error.
func (e companionError) Error() string {
	return fmt.Sprintf("not sent because message %s was refused", string(e))
}

// AllSent returns a SendError with the same state for every message, which the caller may
// change for single messages. The cause belongs to the state; it is nil for
// [core.SendAccepted].
func AllSent(msgs []core.Outgoing, state core.SendState, cause error) *core.SendError {
	results := make([]core.SendResult, len(msgs))
	for i := range msgs {
		results[i] = core.SendResult{ID: msgs[i].ID, To: msgs[i].Queue + msgs[i].Topic, State: state, Err: cause}
	}
	return &core.SendError{Results: results}
}
