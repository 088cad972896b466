// Package foreignsuites tests programs as other projects write them, with exported names
// alone: their test suites run over the transports of Reprise, as a program that calls a
// transport without an endpoint, and an inbox is built on package messagekit. It is a
// separate module, so that no other module requires these projects.
package foreignsuites
