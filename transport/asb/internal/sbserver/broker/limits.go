package broker

import (
	"time"
	"unicode/utf8"

	"github.com/Azure/go-amqp"
)

// The limits of page service-bus-quotas.
const (
	standardMessageSize = 256 << 10 // "Message size": 256 KB for Standard tier
	premiumMessageSize  = 1 << 20   // 1 MB for Premium without large messages
	maxPropertySize     = 32<<10 - 1
	maxHeaderSize       = 64 << 10 // "Cumulative size of all properties can't exceed 64 KB"
	maxIDLength         = 128      // "Maximum size of a message ID", of a session ID, and of a partition key
)

// maxMessageSize returns the most bytes of a message or a batch in an entity.
func (b *Broker) maxMessageSize(e *entity) int64 {
	if kb := e.settings.MaxMessageSizeInKilobytes; kb > 0 {
		return kb << 10
	}
	if b.cfg.Tier == Premium {
		return premiumMessageSize
	}
	return standardMessageSize
}

// maxSize returns the capacity of an entity in bytes.
func (e *entity) maxSize() int64 { return int64(e.settings.MaxSizeInMegabytes) << 20 }

// checkProperties refuses application properties that are too large: "Maximum message
// property size for each property is 32 KB. Cumulative size of all properties can't
// exceed 64 KB" (page service-bus-quotas, "Message property size").
//
// The first refusal looks like a transient failure of the service, so that clients retry
// without end (azure-sdk-for-net#15325, NServiceBus.Transport.AzureServiceBus#1460); the
// second one says that the message is too large (Rebus.AzureServiceBus#35). Ids that are
// too long are refused by the service (azure-sdk-for-net#32689), with a condition that is
// not documented.
func checkProperties(c *content) error {
	for _, id := range [...]struct{ name, value string }{{"MessageId", c.id}, {"SessionId", c.session}, {"PartitionKey", c.partition}} {
		if n := utf8.RuneCountInString(id.value); n > maxIDLength {
			return errorf(CondArgumentRange, "The %s has %d characters, but it may have at most %d.", id.name, n, maxIDLength)
		}
	}
	total := 0
	for name, value := range c.amqp.ApplicationProperties {
		size := propertySize(value)
		if size > maxPropertySize {
			return errorf(CondInternalError, "The service was unable to process the request; please retry the operation.")
		}
		total += len(name) + size
	}
	if total > maxHeaderSize {
		return errorf(CondMessageSize, "The properties have %d bytes, but all of them together may have at most %d.", total, maxHeaderSize)
	}
	return nil
}

func propertySize(value any) int {
	switch v := value.(type) {
	case string:
		return len(v)
	case amqp.Symbol:
		return len(v)
	case []byte:
		return len(v)
	case amqp.UUID:
		return len(v)
	case bool, int8, uint8:
		return 1
	case int16, uint16:
		return 2
	case int32, uint32, float32:
		return 4
	case time.Time, int64, uint64, float64, int, uint:
		return 8
	}
	return 0
}
