package sqs

import "context"

// Bodies stores the bodies of messages that are too large for the service. The adapter
// stores a body before it sends the message, and never deletes one: several subscribers
// may read it, and so may an operator who returns a message from the error queue. Set an
// expiry in the store that is longer than the retention of the queue, the longest delay and
// the time that a message stays in the error queue together. Several goroutines call the
// methods at the same time.
type Bodies interface {
	// BodyKey returns the key for a new body: id, or id with a prefix, for example. The
	// message carries the key, and Put and Get are called with it. id is new for each
	// message, and consists of letters, digits and hyphens. The key must be UTF-8 of at
	// most 1,024 bytes, without control characters. An endpoint of NServiceBus uses it as
	// the key of an object in S3.
	BodyKey(id string) string

	// Put stores a body under a key of BodyKey. It must not keep or change body.
	Put(ctx context.Context, key string, body []byte) error

	// Get returns a body, which the caller may keep and change. The key is the one in the
	// message, and may be that of another sender, such as an endpoint of NServiceBus. limit is
	// Config.MaxMessageBytes: Get reads at most one byte more. ctx ends when three quarters of
	// Config.VisibilityTimeout have passed since the message was received, or when the
	// receiver closes.
	//
	// If the body does not exist, must not be read or is larger than limit, the error must
	// match fs.ErrNotExist: the message is then malformed and goes to the error queue. After
	// any other error the message is redelivered after 5 seconds, and after twice as long each
	// time, up to 5 minutes; the receiver counts no attempt. If the store has other bodies at
	// the same time, the message is malformed after 8 errors, in a FIFO queue after 5. To find
	// out, the receiver stores a body of a few bytes with Put, and reads it.
	Get(ctx context.Context, key string, limit int) ([]byte, error)
}
