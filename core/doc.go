// Package core handles messages reliably on any transport. You write a handler once; the
// messaging system below it is chosen in one line. When a handler fails, recoverability
// decides: retry at once, retry later, move the message to an error queue, or discard it.
//
// # Start here
//
// Most services need only these:
//
//   - [NewMessageType] and [NewEvent] declare a message: its name and its Go type.
//   - [New] makes an [Endpoint] from a name, a [Transport] and a [Config], whose zero value
//     works.
//   - [Handle] and [HandleEvent] register a handler: func(ctx, *[Message], body) error.
//   - [Endpoint.Run] receives until its context ends, then drains. [RunAll] runs several.
//   - [Endpoint.Send] and [Endpoint.Publish] send from outside a handler, [Message.Send],
//     [Message.Publish] and [Message.Reply] from inside it.
//
// A handler that returns nil has handled its message: the messages that it sent leave, and
// the message is consumed. After an error they do not leave, and the error decides.
//
// # When a handler fails
//
// An ordinary error is retried 5 times at once, then after 10, 20 and 30 s, each time with 5
// more retries at once; then the message goes to the queue "error", unless [Recoverability]
// says otherwise. A handler can decide for itself:
//
//	return core.GiveUp(err)                    // no retry: to the error queue
//	return core.GiveUpTo(err, "fraud")         // no retry: to this queue
//	return core.RetryAfter(err, 2*time.Second) // the other side said when
//	return core.Defer(err, time.Minute)        // not a failure: later
//	return core.Discard(err)                   // drop it
//
// A [Policy] decides for all messages, by the values of [Action]. [HandleFailed] runs before
// a message is moved. Settings that the broker cannot support are refused by [New], and
// decisions that it cannot support become a move to the error queue. The guide is
// https://github.com/reprise-go/reprise/blob/main/docs/recoverability.md.
//
// # Map
//
//   - Application: [MessageType], [Event], [Draft], [SendOptions], [Handle], [Message],
//     [Endpoint], [Config]
//   - Failures: [Recoverability], [Policy], [ErrorContext], [Action], [Verdict], the errors
//   - Middleware and telemetry: [Middleware], [SendMiddleware], [Observer]
//   - Packages beside this one: headers, health, configfile, logformat, coretest for tests,
//     messagekit for inboxes and bridges
//   - Authors of adapters: [Transport], [Receiver], [Delivery], [Capabilities], [Incoming],
//     [Outgoing], and optionally [Provisioner], [Checker], [Subscriber], [Remover] and
//     [Describer]. Their comments are the contract, which
//     https://github.com/reprise-go/reprise/blob/main/docs/adapter-rules.md explains.
package core
