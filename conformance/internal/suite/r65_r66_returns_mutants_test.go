package suite

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// isReport reports whether a message tells the outcome of a returned one.
func isReport(o core.Outgoing) bool { return o.Headers.Get(headers.ReplayOutcome) != "" }

// redeliversUnreported delivers a returned message again, once, when its report is refused.
func redeliversUnreported() changes {
	var returns sync.Map // the newest message by the id of its return
	return changes{
		arrive: func(r *brokenReceiver, in *core.Incoming) {
			if in.Headers.Get(headers.Replay) != "" && !in.Redelivered {
				returns.Store(in.Headers.Get(headers.RetryUniqueMessageID), core.Outgoing{ID: in.ID, Queue: r.cfg.Queue, Headers: in.Headers, Body: in.Body})
			}
		},
		send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if err != nil && isReport(out[0]) {
				if m, ok := returns.LoadAndDelete(out[0].Headers.Get(headers.RetryUniqueMessageID)); ok {
					copied := m.(core.Outgoing)
					copied.Headers.Del(headers.Replay)
					_ = t.base.Send(ctx, copied)
				}
			}
			return err
		},
	}
}

var returnMutants = []mutant{
	{rule: "R65", name: "loses the report about a discarded message", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			return slices.DeleteFunc(out, func(o core.Outgoing) bool {
				return o.Headers.Get(headers.ReplayOutcome) == string(headers.OutcomeDiscarded)
			})
		})
	}},
	{rule: "R65", name: "moves a message after the report about it", breaks: func() changes {
		var mu sync.Mutex
		var moves []core.Outgoing
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			mu.Lock()
			defer mu.Unlock()
			var now []core.Outgoing
			for _, o := range out {
				if o.Reason == core.ReasonMoveToError {
					moves = append(moves, o)
					continue
				}
				now = append(now, o)
				if isReport(o) {
					now, moves = append(now, moves...), nil
				}
			}
			return now
		})
	}},
	{rule: "R65", name: "redelivers a message whose report it refuses", breaks: redeliversUnreported},
	{rule: "R65", name: "reports a delayed retry", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for _, o := range out {
				if o.Reason != core.ReasonDelayedRetry || o.Headers.Get(headers.Replay) == "" {
					continue
				}
				var h core.Headers
				h.Set(headers.MessageID, "report of "+o.ID)
				h.Set(headers.RetryUniqueMessageID, o.Headers.Get(headers.RetryUniqueMessageID))
				h.Set(headers.ReplayOutcome, string(headers.OutcomeFailed))
				out = append(out, core.Outgoing{ID: "report of " + o.ID, Queue: o.Headers.Get(headers.RetryAckQueue), Headers: h, Reason: core.ReasonAcknowledgement})
			}
			return out
		})
	}},
	{rule: "R65", name: "loses the header of a return in a delayed retry", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				if out[i].Reason == core.ReasonDelayedRetry {
					out[i].Headers.Del(headers.Replay)
				}
			}
			return out
		})
	}},
	{rule: "R66", name: "drops the header of a return", breaks: altersHeaders(func(h map[string]string) { delete(h, headers.Replay) })},
	{rule: "R66", name: "leaves the header of a return in the error queue", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				if out[i].Reason == core.ReasonMoveToError {
					out[i].Headers.Set(headers.Replay, "once")
				}
			}
			return out
		})
	}},
	{rule: "R66", name: "keeps headers of a dead letter that it should remove", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		d.letter.Headers.Set(headers.Replay, d.in.Headers.Get(headers.Replay))
		return next()
	})},
	{rule: "R66", name: "tries a returned message once although it was deferred", breaks: func() changes {
		var errorQueue atomic.Value // the newest queue
		c := changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				if out[i].Reason == core.ReasonDeferral && out[i].Headers.Get(headers.Replay) != "" {
					out[i].Queue, _ = errorQueue.Load().(string)
					out[i].Delay = 0
				}
			}
			return out
		})
		c.provision = func(_ *brokenTransport, topology core.Topology, next func() error) error {
			errorQueue.Store(topology.Queues[len(topology.Queues)-1])
			return next()
		}
		return c
	}},
}
