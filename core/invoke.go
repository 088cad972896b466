package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core/internal/ids"
)

// Invoke runs middleware and handlers for a message in this process, without a queue in
// between: no retries, no error queue; the handlers' error is returned as it is. The
// messages that the handlers collect are sent if they succeed, committed messages
// ([Message.Commit]) in any case. Invoke calls the observers' functions about attempts
// and sends, not those about received messages. Invoke ends the registration of handlers,
// as [Endpoint.Run] does.
func (ep *Endpoint) Invoke(ctx context.Context, messageType string, body any) error {
	if err := ep.registry.seal(); err != nil {
		return err
	}
	out, err := ep.composer.compose(IntentSend, ep.name, messageType, body, nil, causation{}, ids.New)
	if err != nil {
		return fmt.Errorf("core: endpoint %q: invoke %q: %w", ep.name, messageType, err)
	}
	out.Headers.Del(HeaderReplyToAddress)
	in := &Incoming{ID: out.ID, NativeID: out.ID, Headers: out.Headers, Body: out.Body, DeliveryCount: 1}
	a := &attempt{Context: ctx}
	a.message.begin(ep.deps, in, ep.handlingOf(messageType))
	a.message.scope = ep.scope
	err = ep.invoke(a)
	toSend := a.message.end()
	if err != nil {
		toSend = a.message.committedSends().withCommitted(nil)
	}
	if len(toSend) > 0 {
		if a.observedCtx != nil {
			ctx = a.observedCtx
		}
		if failed := ep.transportSend(ctx, toSend); failed != nil {
			return errors.Join(err, failed)
		}
	}
	a.message.committedSends().notifySent(ep.observerPanicked)
	return err
}
