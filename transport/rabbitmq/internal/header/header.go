// Package header has the headers of AMQP that belong to the broker or to a transport, and
// the text of headers that are not text.
package header

import "strings"

// Headers of AMQP that are not headers of the message.
const (
	// CopyID names the stored copy: its id, an @, and the queue that it was sent to. For a
	// topic it is the id alone, because each subscriber has its own copy.
	CopyID = "Reprise.CopyID"

	// ExpiresAt is the end of the time to be received, in milliseconds since 1970 by the
	// sender's clock. The broker keeps only its length, and drops that of a delayed message.
	ExpiresAt = "Reprise.ExpiresAt"

	ExtraKeys        = "BCC" // a list of further routing keys, which the broker removes
	Delay            = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
	Confirmation     = "NServiceBus.Transport.RabbitMQ.ConfirmationId" // set by NServiceBus when it sends
	Sequence         = "x-dotnet-pub-seq-no"                           // set by NServiceBus's client library
	Deliveries       = "x-delivery-count"                              // set by the broker, in quorum queues
	Acquired         = "x-acquired-count"                              // from 4.3
	Death            = "x-death"                                       // set by the broker, at dead-lettering
	FirstDeathPrefix = "x-first-death-"
	LastDeathPrefix  = "x-last-death-"

	// EscapePrefix precedes the name of a header that has a meaning to the broker or is
	// removed on receipt.
	EscapePrefix = "Reprise.Header."

	// Undecodable is in a message whose headers were replaced, and has the reason. It is not
	// part of the message. Any sender can set it, which makes the message malformed.
	Undecodable = "Reprise.Undecodable"

	// RawHeaders has the replaced headers: AMQP's table without its length, compressed by
	// gzip, as base64.
	RawHeaders = "Reprise.RawHeaders"
)

// MaxCopyID is the size in bytes of the longest CopyID: of two short strings.
const MaxCopyID = 2 * 255

// IsOfTransport reports whether a header belongs to the broker or to a transport, and so not
// to the message.
func IsOfTransport(key string) bool {
	switch key {
	case CopyID, ExpiresAt, Undecodable, Delay, Confirmation, Sequence, Deliveries, Acquired, Death:
		return true
	default:
		return strings.HasPrefix(key, FirstDeathPrefix) || strings.HasPrefix(key, LastDeathPrefix)
	}
}
