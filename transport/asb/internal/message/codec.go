// Package message converts messages between the engine and the service: headers to application properties, groups to
// sessions, and the messages of foreign senders, of which AMQP allows more kinds.
package message

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport"
)

// Codec writes and reads messages. Clock is required.
type Codec struct {
	// Clock estimates the service's clock, by which delays end.
	Clock *transport.ServiceClock
	// MessageType returns the type of a foreign message in a queue; nil: it has none.
	MessageType func(queue string, m *azservicebus.ReceivedMessage) string
	// MaxPostpone is the longest time for which a message of a session can be postponed; 0: no limit.
	MaxPostpone time.Duration
}
