// Package inbox makes the database writes of a handler happen exactly once, and its
// messages leave at least once with the same ids, on a broker without transactions.
// NServiceBus calls this outbox.
//
// An [Inbox] is middleware that begins a transaction in the handler's own database,
// stores the message's id in it, and commits it when the handler has succeeded, together
// with the messages that the handler sends. A redelivered message is not handled again:
// if its outgoing messages may not have left, they are sent again unchanged.
//
//	store, err := postgres.New(pool, postgres.Config{}) // package inbox/postgres
//	...
//	box, err := inbox.New(inbox.Config{Store: store})
//	...
//	defer box.Close(context.Background())
//	endpoint, err := core.New("billing", transport, core.Config{Middleware: []core.Middleware{box.Middleware()}})
//
// The handler gets the transaction from its context, with a function of the store's
// package. Its writes in the transaction happen once; everything else, including
// Message.SendNow and requests to other services, happens at each attempt.
//
// [Memory] is a store for tests. Package inboxtest has the tests that a store must pass.
package inbox
