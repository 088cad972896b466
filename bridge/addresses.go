package bridge

import (
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// HeaderReplyToAddress is set on a message whose reply address is not a queue that the
// bridge connects. Its value is the address, which is valid on the side that the message
// came from. The message then has no other reply address, and a reply fails with
// core.ErrNoReplyAddress.
const HeaderReplyToAddress = "Reprise.Bridge.ReplyToAddress"

// addresses translates addresses of one side into those of the other. It is immutable.
type addresses struct {
	from    core.Transport
	targets map[string]string // by the canonical address
}

// newAddresses returns the translation of the queues that exist on both sides: the bridge
// receives from one of each pair and sends to the other.
func newAddresses(from, to *Side) (addresses, error) {
	a := addresses{from.Transport, map[string]string{}}
	var errs []error
	for _, queue := range slices.Concat(from.Queues, to.Queues) {
		source, err := from.Transport.Address(queue)
		target, err2 := to.Transport.Address(queue)
		if err := errors.Join(err, err2); err != nil {
			errs = append(errs, fmt.Errorf("the queue %q is not possible on both sides: %w", queue, err))
			continue
		}
		a.targets[source] = target
	}
	return a, errors.Join(errs...)
}

// translate returns the address on the other side, or false for a queue that is not
// bridged.
func (a addresses) translate(address string) (string, bool) {
	if canonical, err := a.from.Address(address); err == nil {
		address = canonical
	}
	target, ok := a.targets[address]
	return target, ok
}

// write replaces the addresses in the headers of a message that leaves its side.
func (a addresses) write(h *core.Headers) {
	if failed, ok := a.translate(h.Get(headers.FailedQ)); ok {
		h.Set(headers.FailedQ, failed)
	}
	address := h.Get(headers.ReplyToAddress)
	if address == "" {
		return
	}
	if target, ok := a.translate(address); ok {
		h.Set(headers.ReplyToAddress, target)
		return
	}
	h.Del(headers.ReplyToAddress)
	h.Set(HeaderReplyToAddress, address)
}
