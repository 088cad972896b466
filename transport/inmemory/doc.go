// Package inmemory is the embedded transport: queues in the memory of one process. It is
// the default for tests and first steps, and the model for new adapters, because it is
// the shortest complete one.
//
// It has every capability of a transport: all transaction modes, delays, time to be
// received, publish and subscribe, delivery counts shared by competing receivers, locks
// that expire and are renewed, dead-letter queues. It has no durability: messages live as
// long as their [Broker], at most as long as the process. Messages are copied, never
// shared: a sender may reuse its slice after Send.
//
// For an application developer:
//
//	transport := inmemory.Open()                       // everything, no configuration
//	transport, err := inmemory.New(inmemory.LikeSQS()) // as able as Amazon SQS, no more
//
// Any capability can be switched off ([Config.Capabilities]), so that a unit test runs
// handlers under the conditions of production. All waiting is on channels and timers:
// under testing/synctest an hour of delayed retries takes milliseconds.
//
// For an adapter author, the files in the order in which to read them: config.go defines
// the capabilities that can be switched off, transport.go and send.go implement
// [core.Transport], receiver.go [core.Receiver], delivery.go [core.Delivery] and its
// optional interfaces. broker.go, queue.go and the small structures below them are the
// messaging system itself; an adapter for a real broker has a client library in their
// place.
package inmemory
