// Package message converts messages between the engine and the service: to and from the formats of NServiceBus and of
// other senders, with their headers in the text or in attributes.
package message

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Codec writes and reads messages. The zero value writes messages with their headers in the text, and stores no
// bodies.
type Codec struct {
	// Raw puts the headers into an attribute, and leaves the body unchanged.
	Raw bool
	// Bodies stores the bodies that are too large for the service, and those of LargeBodies bytes or more; nil: no
	// store, LargeBodies 0: only bodies that are too large.
	Bodies      BodyStore
	LargeBodies int
	// MessageType returns the type of a foreign message in a queue; nil: it has none.
	MessageType func(queue string, m *types.Message) string
}

// BodyStore stores the bodies of messages. Its methods are those of the interface Bodies of package sqs.
type BodyStore interface {
	BodyKey(id string) string
	Put(ctx context.Context, key string, body []byte) error
	Get(ctx context.Context, key string, limit int) ([]byte, error)
}
