//go:build darwin || linux

package sbserver

import (
	"errors"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// tagOf returns the delivery tag that carries a lock token: a GUID of .NET, in which the
// bytes of the first three groups are reversed (azservicebus v1.11.0, message.go).
func tagOf(t broker.LockToken) []byte {
	return []byte{t[3], t[2], t[1], t[0], t[5], t[4], t[7], t[6], t[8], t[9], t[10], t[11], t[12], t[13], t[14], t[15]}
}

// wireError returns an error of the broker in the form that clients get, or nil.
func wireError(err error) *amqp10.Error {
	var refusal *condition.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return &amqp10.Error{Condition: refusal.Condition, Description: refusal.Description}
	}
	return &amqp10.Error{Condition: amqp10.ErrInternal, Description: err.Error()}
}

// propertiesOf converts a map of the protocol to application properties.
func propertiesOf(m amqp10.Map) map[string]any {
	if len(m) == 0 {
		return nil
	}
	properties := make(map[string]any, len(m))
	for _, p := range m {
		switch k := p.Key.(type) {
		case amqp10.Symbol:
			properties[string(k)] = p.Value
		case string:
			properties[k] = p.Value
		}
	}
	return properties
}

func arrayOf[T any](values []T) amqp10.Array {
	a := make(amqp10.Array, len(values))
	for i, v := range values {
		a[i] = v
	}
	return a
}
