// Package asb connects endpoints to Azure Service Bus, by Microsoft's SDK azservicebus.
//
//	transport, err := asb.New(asb.Config{Namespace: "shop.servicebus.windows.net"})
//
// Queues that [Config.SessionQueues] lists keep the messages of a group in order, by
// sessions ([core.Abilities.GroupOrder]). Messages are written in NServiceBus's
// format: headers are application properties. docs/transports/asb.md describes tiers,
// topology, rights and limits.
package asb
