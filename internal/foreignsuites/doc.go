// Package foreignsuites tests programs as other projects write them, with exported names
// alone: their test suites run over the transports of Reprise, as a program that calls a
// transport without an endpoint, an inbox is built on package messagekit, and handlers return errors of
// other libraries. It is a separate module, so that no other module requires these projects.
package foreignsuites
