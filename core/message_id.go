package core

import (
	"fmt"
	"unicode/utf8"
)

// adjusted is a delivery whose message the engine sees otherwise than the adapter: with
// the id that Config.MessageID gave it, or with the count of its round.
type adjusted struct {
	Delivery
	in *Incoming
}

// Incoming implements Delivery.
func (d *adjusted) Incoming() *Incoming { return d.in }

// withID returns the delivery with the id that Config.MessageID gives its message: one
// that could be parsed and has no header NServiceBus.MessageId.
func (ep *Endpoint) withID(d Delivery) (named Delivery, err error) {
	name := ep.config.MessageID
	if name == nil {
		return d, nil
	}
	in := d.Incoming()
	if in.Malformed != nil || in.Headers.Get(HeaderMessageID) != "" {
		return d, nil
	}
	defer func() {
		if value := recover(); value != nil {
			named, err = d, readable(fmt.Errorf("Config.MessageID: %w", newPanicError(value)))
		}
	}()
	switch id := name(in); {
	case id == "" || id == in.ID:
		return d, nil
	case !utf8.ValidString(id):
		return d, fmt.Errorf("Config.MessageID returned %q, which is not UTF-8; return text, such as the hexadecimal form of a hash", id)
	default:
		copied := *in
		copied.ID = id
		return &adjusted{d, &copied}, nil
	}
}
