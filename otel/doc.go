// Package otelreprise traces and measures endpoints of package core with OpenTelemetry.
// It needs only the OpenTelemetry API: the program chooses SDK and exporters.
//
//	ep, err := core.New("billing", transport, core.Config{
//		Observers: []core.Observer{otelreprise.New(otelreprise.Config{}).Observer},
//	})
//
// Every attempt at a message is a span ("process billing"), in whose context the handlers
// run. Every send is a span ("send shipping", "publish order-placed"), and its context
// travels in the message as traceparent, tracestate and baggage. That creation context is
// never changed: a delayed retry, the copy in the error queue and a message that is
// returned from there still have it. The copies name the attempt before them in a header
// (Reprise.Trace.Previous), so that the next attempt, in any process, links to it.
//
// Names, units and attributes are those of the semantic conventions 1.43.0, whose part on
// messaging is not stable yet, and of NServiceBus's headers; other names begin with
// "reprise.". Attributes of metrics are bounded: no ids, no texts of errors, and at most
// 200 received message types without handlers, 200 sent ones, 200 destinations of the
// application's sends, 200 others, and 100 types of errors (more are "_OTHER"). Ids, types
// and names in spans are cut at 256 bytes.
package otelreprise
