package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

// Purge empties the input queue, and nothing else.
func TestPurge_EmptiesTheInputQueue(t *testing.T) {
	bubble(t, func(fx *fixture) {
		elsewhere, late := order("m2"), order("m3")
		elsewhere.Queue = "shipping"
		late.Delay = time.Minute
		fx.send(order("m1"), elsewhere, late)
		ep := fx.newEndpoint("orders", core.Config{})
		removed, err := ep.Purge(fx.Context())
		fx.noError(err)
		equal(fx, "removed", removed, 1)
		equal(fx, "left", fx.depth("orders"), queues.Depth{Delayed: 1})
		fx.wantDepth("shipping", 1)
	})
}

// unpurgeable is a transport that answers Purge with an error.
type unpurgeable struct {
	*faultyTransport
	err error
}

func (u unpurgeable) Purge(context.Context, string) (int, error) { return 0, u.err }

// unable is a transport without optional interfaces.
type unable struct{ core.Transport }

// A queue that does not exist yet is empty; another error is returned.
func TestPurge_Errors(t *testing.T) {
	bubble(t, func(fx *fixture) {
		for name, test := range map[string]struct {
			transport core.Transport
			config    core.Config
			is        error
			text      string
		}{
			"missing queue": {transport: unpurgeable{fx.broker, core.ErrQueueNotFound}},
			"another error": {transport: unpurgeable{fx.broker, errBoom}, is: errBoom, text: `purge endpoint "orders"`},
			"unable":        {transport: unable{fx.broker}, is: errors.ErrUnsupported, text: `empty "orders" yourself`},
			"send-only":     {transport: fx.broker, config: core.Config{SendOnly: true}, text: "send-only"},
		} {
			ep, err := core.New("orders", test.transport, test.config)
			fx.noError(err)
			removed, err := ep.Purge(fx.Context())
			switch {
			case test.text == "" && err != nil:
				fx.Errorf("%s: %v", name, err)
			case test.text != "" && (err == nil || !containsAll(err.Error(), test.text)):
				fx.Errorf("%s: %v, want %q in it", name, err, test.text)
			case test.is != nil && !errors.Is(err, test.is):
				fx.Errorf("%s: %v, which is no %v", name, err, test.is)
			}
			equal(fx, name+": removed", removed, 0)
		}
	})
}
