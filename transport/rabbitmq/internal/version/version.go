// Package version has the versions of brokers, as far as behaviour depends on them.
package version

import (
	"errors"
	"fmt"
)

var errUnknown = errors.New("the broker does not say its version")

// Broker is the version of a broker. The zero value means unknown.
type Broker struct{ Major, Minor int }

// Min is the first version with quorum queues that dead-letter at least once, which delayed
// messages need.
var Min = Broker{3, 10}

// Parse reads a broker's version, such as "3.10.8" or "4.1.0-rc.1".
func Parse(text string) (Broker, error) {
	var v Broker
	if n, _ := fmt.Sscanf(text, "%d.%d", &v.Major, &v.Minor); n != 2 {
		return Broker{}, fmt.Errorf("%w: %.40q", errUnknown, text)
	}
	return v, nil
}

// HasDefaultLimit reports whether quorum queues have a delivery limit by default.
func (v Broker) HasDefaultLimit() bool { return v == Broker{} || v.Major >= 4 }

// Before reports whether v is earlier than other.
func (v Broker) Before(other Broker) bool {
	return v.Major < other.Major || v.Major == other.Major && v.Minor < other.Minor
}

// String returns the version as it follows "RabbitMQ" in a text.
func (v Broker) String() string {
	if v == (Broker{}) {
		return "of an unknown version"
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}
