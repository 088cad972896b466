// Package foreignsuites runs test suites of other projects over the transports of Reprise,
// as a program that calls a transport without an endpoint. It is a separate module, so
// that no other module requires these projects.
package foreignsuites
