// Package broker has the entities of a Service Bus namespace without a network protocol:
// queues, topics and subscriptions with peek-locks, delivery counts, dead-letter queues,
// sessions, schedules and expirations. The server in package sbserver connects it to AMQP
// 1.0, package admin to the administration API.
//
// Each behaviour follows a statement of the vendor, which the comment next to it cites: a
// page of the documentation (learn.microsoft.com/azure/service-bus-messaging/...) or an
// issue of an SDK with a statement of the service team or an experiment.
package broker
