package content

import (
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// The limits of page service-bus-quotas.
const (
	maxPropertySize = 32<<10 - 1
	maxHeaderSize   = 64 << 10 // "Cumulative size of all properties can't exceed 64 KB"
	maxIDLength     = 128      // "Maximum size of a message ID", of a session ID, and of a partition key
)

// Check refuses application properties that are too large: "Maximum message
// property size for each property is 32 KB. Cumulative size of all properties can't
// exceed 64 KB" (page service-bus-quotas, "Message property size").
//
// The first refusal looks like a transient failure of the service, so that clients retry
// without end (azure-sdk-for-net#15325, NServiceBus.Transport.AzureServiceBus#1460); the
// second one says that the message is too large (Rebus.AzureServiceBus#35). Ids that are
// too long are refused by the service (azure-sdk-for-net#32689), with a condition that is
// not documented.
func Check(c *Content) error {
	for _, id := range [...]struct{ name, value string }{{"MessageId", c.ID}, {"SessionId", c.Session}, {"PartitionKey", c.Partition}} {
		if n := utf8.RuneCountInString(id.value); n > maxIDLength {
			return condition.Errorf(condition.ArgumentRange, "The %s has %d characters, but it may have at most %d.", id.name, n, maxIDLength)
		}
	}
	total := 0
	for name, value := range c.AMQP.ApplicationProperties {
		size := propertySize(value)
		if size > maxPropertySize {
			return condition.Errorf(condition.InternalError, "The service was unable to process the request; please retry the operation.")
		}
		total += len(name) + size
	}
	if total > maxHeaderSize {
		return condition.Errorf(condition.MessageSize, "The properties have %d bytes, but all of them together may have at most %d.", total, maxHeaderSize)
	}
	return nil
}

func propertySize(value any) int {
	switch v := value.(type) {
	case string:
		return len(v)
	case amqp10.Symbol:
		return len(v)
	case []byte:
		return len(v)
	case amqp10.UUID:
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
