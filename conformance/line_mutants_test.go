package conformance

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
)

var lineMutants = []mutant{
	{rule: "C15", name: "has no heartbeat", onServer: true, harness: func(h *Harness) {
		h.Broker.(*server).faults.noHeartbeat = true
	}},
	{rule: "C2", name: "says that a Send without an answer was refused", onServer: true, breaks: func() changes {
		return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if errors.Is(err, errNoAnswer) {
				return sendFailed(out, core.SendRefused, err)
			}
			return err
		}}
	}},
}
