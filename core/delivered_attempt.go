package core

import (
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/headers"
)

// This file tells which attempt at a message a delivery is: its headers count
// those of earlier copies, and the instance that postponed it remembers those of earlier
// rounds.

// attempt returns the number of this attempt in its round. A refused message (Refuse)
// keeps its number.
func (in *Incoming) attempt() int {
	return min(max(in.DeliveryCount, 1), math.MaxInt32-maxCount) + intHeader(in.Headers, headers.Failures)
}

// earlierDeliveries returns the number of deliveries after which the message became this new
// copy, or 0 if it is none: no copy becomes one after fewer than newCopyAfter+1 deliveries, and
// only a sender writes a smaller number.
func (in *Incoming) earlierDeliveries(newCopyAfter int) int {
	if n := intHeader(in.Headers, headers.Deliveries); newCopyAfter > 0 && n > newCopyAfter {
		return n
	}
	return 0
}

// delayedRetries returns the number of delayed retries before this delivery.
func (in *Incoming) delayedRetries() int {
	return intHeader(in.Headers, headers.Retries) + in.earlier.retries
}

// deferrals returns the number of deferrals before this delivery.
func (in *Incoming) deferrals() int {
	return intHeader(in.Headers, headers.Deferrals) + in.earlier.deferrals
}

// adjustedDelivery is a delivery whose message differs for the engine and the adapter: it
// has the id that Config.MessageID gave it, or the count of its round.
type adjustedDelivery struct {
	Delivery
	in *Incoming
}

// Incoming implements Delivery.
func (d *adjustedDelivery) Incoming() *Incoming { return d.in }

// identify returns the delivery with the id that name, which is Config.MessageID or nil,
// gives its message, if that could be parsed and has no header NServiceBus.MessageId.
func identify(d Delivery, name func(in *Incoming) string) (named Delivery, err error) {
	if name == nil {
		return d, nil
	}
	in := d.Incoming()
	if in.Malformed != nil || in.Headers.Get(headers.MessageID) != "" {
		return d, nil
	}
	defer func() {
		if value := recover(); value != nil {
			named, err = d, safeError(fmt.Errorf("Config.MessageID: %w", newPanicError(value)))
		}
	}()
	switch id := name(in); {
	case id == "" || id == in.ID:
		return d, nil
	case !utf8.ValidString(id):
		return d, fmt.Errorf("Config.MessageID returned %q, which is not UTF-8; return text, such as the hexadecimal form of a hash", id)
	default:
		copied := *in
		copied.ID, copied.IDSent = id, true
		return &adjustedDelivery{d, &copied}, nil
	}
}

// hasSentID reports whether the sender, or [Config.MessageID], gave the message its ID. A copy that the engine
// made always has the header, and a mark if the ID was generated.
func (in *Incoming) hasSentID() bool {
	if in.IDSent {
		return true
	}
	return in.Headers.Get(headers.MessageID) != "" && in.Headers.Get(headers.GeneratedID) == ""
}

// writeID sets the header of the message id on a copy of the message.
func (in *Incoming) writeID(h *Headers) { writeID(h, in.ID, in.hasSentID()) }

func (f *failure) writeID(h *Headers) { writeID(h, f.messageID, !f.generatedID) }

func writeID(h *Headers, id string, sent bool) {
	h.Set(headers.MessageID, id)
	if sent {
		h.Del(headers.GeneratedID) // Config.MessageID may have replaced the generated id
	} else {
		h.Set(headers.GeneratedID, "True")
	}
}
