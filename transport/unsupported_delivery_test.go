package transport_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// plainDelivery is that of a transport with nothing but ReceiveOnly.
type plainDelivery struct{ transport.UnsupportedDelivery }

func (plainDelivery) Incoming() *core.Incoming             { return &core.Incoming{} }
func (plainDelivery) Complete(context.Context) error       { return nil }
func (plainDelivery) Abandon(context.Context, error) error { return nil }
func (plainDelivery) Release(context.Context) error        { return nil }

func TestUnsupportedDelivery_RefusesMethodsThatAreNotOverridden(t *testing.T) {
	var d core.Delivery = plainDelivery{}
	for name, err := range map[string]error{
		"Postpone":     d.Postpone(t.Context(), time.Second, nil),
		"CompleteWith": d.CompleteWith(t.Context(), nil),
		"ReplaceWith":  d.ReplaceWith(t.Context(), nil),
		"Reset":        d.Reset(t.Context()),
		"Renew":        d.Renew(t.Context()),
		"DeadLetter":   d.DeadLetter(t.Context(), core.DeadLetter{Reason: "reason", Description: "description"}),
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want errors.ErrUnsupported with the method's name", name, err)
		}
	}
	if lockedUntil := d.LockedUntil(); !lockedUntil.IsZero() {
		t.Errorf("LockedUntil: %v, want the zero time", lockedUntil)
	}
	if bound := d.BindContext(t.Context()); bound != t.Context() {
		t.Errorf("BindContext: %v, want its argument", bound)
	}
}
