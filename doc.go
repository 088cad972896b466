// Package reprise is documentation: the packages below it are the framework.
//
// Reprise handles messages reliably on any transport. When a handler fails, recoverability decides: retry at once, retry later,
// move the message to the error queue, or discard it.
//
//   - [github.com/reprise-go/reprise/core] has endpoints, handlers and recoverability: an application begins there. Its
//     example is a complete program.
//   - A transport is one line of that program: [github.com/reprise-go/reprise/transport/inmemory] in this module, and in modules
//     of their own transport/sqlserver (PostgreSQL), transport/rabbitmq, transport/sqs (Amazon SQS) and transport/asb (Azure Service Bus).
//   - [github.com/reprise-go/reprise/core/coretest] helps to test handlers, [github.com/reprise-go/reprise/core/health] has probes for
//     Kubernetes, and [github.com/reprise-go/reprise/core/logformat] changes the log lines of endpoints.
//   - [github.com/reprise-go/reprise/inbox] lets the effect of a handler happen once on brokers without transactions.
//   - [github.com/reprise-go/reprise/bridge] carries messages between two transports.
//   - In modules of their own, middleware/resilience has circuit breakers and limits around handlers, and otel has traces and metrics.
//   - [github.com/reprise-go/reprise/conformance] is the suite that every adapter passes, and
//     [github.com/reprise-go/reprise/transport] the toolkit for those who write one.
//
// The guides are at https://github.com/reprise-go/reprise/tree/main/docs.
package reprise
