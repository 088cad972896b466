// Package inbox lets the effect of a handler on its database happen once, and the messages
// that it sends leave at least once with the same ids, on a broker without transactions:
// what NServiceBus calls outbox.
//
// An [Inbox] is middleware that begins a transaction in the handler's own database, notes
// the message's id in it, and commits it when the handler has succeeded, together with
// the messages that the handler sends. A message that is redelivered is not handled
// again: the messages that it sent, and that may not have left, are sent again as they
// were.
//
//	store, err := postgres.New(pool, postgres.Config{}) // package inbox/postgres
//	...
//	box, err := inbox.New(inbox.Config{Store: store})
//	...
//	defer box.Close(context.Background())
//	endpoint, err := core.New("billing", transport, core.Config{Middleware: []core.Middleware{box.Middleware()}})
//
// The handler gets the transaction from its context, with a function of the store's
// package. All that it does in the transaction happens once; all else, Message.SendNow
// and requests to other services among it, happens at each attempt.
//
// [Memory] is a store for tests. Package inboxtest has the tests that a store must pass.
package inbox
