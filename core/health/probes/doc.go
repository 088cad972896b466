// Package probes has HTTP handlers for the probes of Kubernetes and of load balancers, which
// answer from the state of endpoints ([health.State]).
//
// The three probes ask different questions, and the platform reacts differently to each
// answer "no" (status 503):
//
//	probe       no means           no is answered
//	liveness    restart it         once a Run ends with an error; with
//	                               Config.AttemptLimit, while an attempt takes longer
//	readiness   send no requests   while an endpoint does not receive: before Run, while
//	                               it starts or drains, after Run
//	startup     wait, then         before Run was called, and after Run has returned
//	            restart it
//
// A restart fixes no outage, and makes it longer. So these never cause a "no": an outage
// of the broker while the endpoint runs, sends that fail, error queues that cannot be
// reached, an endpoint that is paused, rate limited or isolating, critical errors,
// circuits that are open. They are in the body of each answer; use alerts for them.
//
// A send-only endpoint has no Run. It is always live, ready and started: before its first
// send, and after a failed send until the next one, it does not know whether its broker
// can be reached. A readiness probe based on sends would take a server out of rotation
// permanently, because no request would arrive that sends anything.
package probes
