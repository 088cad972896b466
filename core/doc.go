// Package core handles messages reliably on any transport. A handler is written once; the
// messaging system below it is an adapter chosen in one line. When a handler fails,
// recoverability decides: retry at once, retry later, move the message to the error
// queue, or discard it. Settings that the broker cannot support are refused at start-up,
// and decisions that it cannot support become a move to the error queue. No message is
// lost on the way.
//
// # For application developers
//
// [New] makes an [Endpoint] from a name, a [Transport] and a [Config], whose zero value
// works. [NewMessageType] and [NewEvent] declare messages, [Handle], [HandleEvent] and
// [HandleFailed] register their handlers. [Endpoint.Run] receives until its context ends,
// and drains.
//
// A handler that returns nil has handled its message: its messages of [Message.Send],
// [Message.Publish] and [Message.Reply] are sent, and the message is consumed. After an
// error they are not sent, and the [Policy] ([DefaultPolicy] unless [Recoverability] has
// another) decides. Verdicts such as [GiveUp], [Defer] and [Discard] let the
// handler itself decide. An [Observer] and the log report the outcome.
//
// The example of the package is a complete program. Package coretest helps to
// test handlers, package inmemory to run whole endpoints in a test.
//
// # For adapter authors
//
// An adapter implements [Transport], [Receiver] and [Delivery], and lists its abilities
// in [Capabilities]. A Delivery refuses an ability that its transport does not claim with
// errors.ErrUnsupported: adapters embed transport.UnsupportedDelivery. [Provisioner],
// [Subscriber] and [Checker] are optional and must agree with Capabilities. The comments
// of these types are the contract; its rules are numbered C1 to C24. Package inmemory is
// the shortest complete adapter.
//
// The R-numbers in comments name the rules of recoverability, which
// docs/recoverability.md explains.
package core
