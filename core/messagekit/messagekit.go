// Package messagekit is for middleware and handlers that build on messages, such as
// package inbox and package bridge: handlers of an application do not need it.
//
// An inbox keeps the messages that a handler sends until they have been sent. It stores
// those that [Collected] returns together with the handler's work, and calls [Commit]. If
// the message is delivered once more, it passes the stored ones to [Resend], calls [Commit]
// and [MarkDuplicate], and does not run the handler. It deletes them when Commit reports
// that they have been sent.
package messagekit

import (
	"context"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/internal/hooks"
)

var kit = hooks.Core.(interface {
	CallRecovered(ctx context.Context, m *core.Message, handler core.HandlerFunc) error
	Collected(m *core.Message) []core.Outgoing
	Commit(m *core.Message, out []core.Outgoing, sent func()) error
	Resend(m *core.Message, out []core.Outgoing) error
	MarkDuplicate(m *core.Message)
	Copy(m *core.Message) core.Outgoing
	SentID(m *core.Message) (id string, sent bool)
})

// Collected returns copies of the messages that m has collected so far: for middleware,
// also those of the last run of next that succeeded.
func Collected(m *core.Message) []core.Outgoing { return kit.Collected(m) }

// Commit marks messages that m has collected ([Collected], or [Resend]) as committed:
// middleware has stored them together with the work of their handler. They are sent
// regardless of the attempt's outcome: also if a later handler fails, a fallback answers,
// or the message is discarded, moved or taken over.
//
// If they cannot be sent, a message that is to be discarded is kept until they can, and a
// message that is taken over goes to the error queue, as does a message whose sends are
// refused permanently. A message that was to be discarded is then moved with the reason
// headers.FailureCommitRefused, in [core.TransactionNone] after the first failed try. An
// operator can return it from there, and the middleware can send them again. If the
// message is given back, for an immediate retry for example, the middleware has to send
// them, too; before a delayed retry one try is made. In all these cases they are sent
// before the message is consumed, not atomically with that: a crash between the two sends
// them once more.
//
// sent, if it is not nil, is called when the transport has accepted these messages and
// all others that are sent with them, by the goroutine of the attempt, and before
// observers are notified of its success. It must be quick; several are called in the
// order of the calls of Commit. It is not called if the process ends before. A panic is
// logged.
//
// Messages that were committed in the attempt before, by an earlier run (see
// [core.Middleware]), are recognised by ID, queue and topic, and sent once. An error, as
// of Resend, means that nothing was committed. After the handler, or the middleware, has
// returned it is [core.ErrHandlingEnded]. With [core.Endpoint.Invoke] committed messages
// are sent even if it returns an error.
func Commit(m *core.Message, out []core.Outgoing, sent func()) error { return kit.Commit(m, out, sent) }

// Resend collects messages that an earlier attempt at this message had collected
// ([Collected]) and that may not have been sent: with their ids, headers and bodies, and
// without [core.SendMiddleware], which has run for them. They do not keep
// [core.SendOptions.DeliverAt]: Delay and TimeToBeReceived count from now. An error, as
// for a message without an ID or with neither or both of Queue and Topic, means that none
// of them was collected. m takes over the bodies.
func Resend(m *core.Message, out ...core.Outgoing) error { return kit.Resend(m, out) }

// MarkDuplicate marks the message as handled before, for middleware that does not run the
// handlers again: observers see the mark ([core.Handling.Duplicate]), unless handlers have
// run in this attempt.
func MarkDuplicate(m *core.Message) { kit.MarkDuplicate(m) }

// Copy returns the copy of the message that [core.Message.Forward] collects, without a
// destination: for code that sends it through another transport, as package bridge does.
// It shares the body and Properties with the message, so neither must be written to. It
// has the rest of the message's time to be received.
func Copy(m *core.Message) core.Outgoing { return kit.Copy(m) }

// SentID returns the id that the message was sent with, or that [core.Config.MessageID]
// gave it. sent is false if the adapter generated the ID, because the sender gave none:
// the ID then identifies a stored copy, or a content that several messages may have, and
// must not be used to recognize duplicates.
func SentID(m *core.Message) (id string, sent bool) { return kit.SentID(m) }

// CallRecovered calls a handler, and turns a panic into an error, a [*core.PanicError]: for
// middleware to which a panic is a failure like any other, as to package fallback.
func CallRecovered(ctx context.Context, m *core.Message, handler core.HandlerFunc) error {
	return kit.CallRecovered(ctx, m, handler)
}
