// Package core handles messages reliably on any transport. A handler is written
// once; the messaging system below it is an adapter chosen in one line. When a
// handler fails, recoverability decides: retry at once, retry later, move the
// message to the error queue, or discard it. What the broker cannot honour is
// refused at start-up or becomes a move to the error queue. No message is lost
// on the way.
//
// # For application developers
//
// New makes an Endpoint from a name, a Transport and a Config, whose zero value
// works. Handle, HandleEvent and HandleFailed register handlers; a TypedMessage is
// what they get. Endpoint.Run receives until its context ends, and drains.
//
// A handler that returns nil has handled its message: what it gave to Send,
// Publish and Reply leaves, and the message is consumed. A handler that returns
// an error has not: nothing leaves, and the Policy (DefaultPolicy unless
// Recoverability says otherwise) decides. Verdicts such as Unrecoverable, Defer
// and Discard let the handler itself decide. What happened is told to Observers
// and logged.
//
// The example of the package is a complete program. Package coretest helps to
// test handlers, package inmemory to run whole endpoints in a test.
//
// # For adapter authors
//
// Transport, Receiver and Delivery are what an adapter implements, Capabilities
// is what it says of itself. A Delivery refuses what its transport does not claim
// with errors.ErrUnsupported: adapters embed transport.UnsupportedDelivery. Provisioner,
// Subscriber and Checker are optional and must agree with Capabilities. The
// comments of these types are the contract; its rules are numbered C1 to C22.
// Package inmemory is the shortest complete adapter.
//
// The R-numbers in comments name the rules of recoverability, which
// docs/recoverability.md explains.
package core
