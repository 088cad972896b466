// Package resilience protects handlers, and the services that they call, with retries,
// time-outs, a circuit breaker, a bulkhead and a rate limiter: middleware for endpoints of
// package core, over github.com/failsafe-go/failsafe-go.
//
// A [Policy] is made once with [New] from a [Config] whose fields are the strategies. It
// always nests them in the same order, from the outside:
//
//   - circuit breaker: an open circuit costs nothing of the strategies inside it, and
//     counts a whole sequence of tries as one result
//   - rate limiter: a message that waits for its turn takes no place of the bulkhead
//   - bulkhead: a place is taken once for the sequence, its pauses included
//   - total time-out: around the tries and their pauses, not around the wait for limiter
//     and bulkhead, so that a message that waited too long for them is refused and has
//     not failed
//   - retry
//   - time-out of each try
//
// For another order, use several policies of one strategy each: they can be listed in
// core.Config.Middleware in any order, and [core.New] refuses orders that make no sense.
//
// A message that the breaker, the limiter or the bulkhead refuses has not been handled:
// it uses up neither an attempt nor a delayed retry, and does not count for the
// endpoint's RateLimit, RequeueLimit or UnacceptableMessageLimit. By default it is
// deferred (core.Refuse).
//
// The state of a policy belongs to the value: the same *Policy given to several message
// types or endpoints is one breaker, one limiter and one bulkhead. [PerType] makes a
// policy for each type.
package resilience
