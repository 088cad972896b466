package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// leaksItsHeaders hands over headers of the broker's own with the message's.
func leaksItsHeaders() changes {
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		in.Headers.Set("x-received-by", "node-3")
	}}
}

// swallowsUnroutable sends as RabbitMQ does without the mandatory flag.
func swallowsUnroutable() changes {
	return changes{
		send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := next(ctx, out...); !errors.Is(err, core.ErrQueueNotFound) {
				return err
			}
			return nil
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrQueueNotFound) {
				return d.Delivery.Complete(context.Background())
			}
			return err
		},
	}
}

// hidesMissingQueue has an error of its own for a queue that does not exist.
func hidesMissingQueue() changes {
	hide := func(out []core.Outgoing, err error) error {
		if !errors.Is(err, core.ErrQueueNotFound) {
			return err
		}
		sent := &core.SendError{}
		for _, o := range out {
			sent.Results = append(sent.Results, core.SendResult{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: errors.New("NOT_FOUND")})
		}
		return sent
	}
	return changes{
		send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return hide(out, next(ctx, out...))
		},
		settle: func(d *brokenDelivery, _ string, next func() error) error { return hide(d.out, next()) },
	}
}

// sendsTwice repeats what it sends to a queue under a condition.
func sendsTwice(which func(o core.Outgoing) bool) changes {
	return outgoing(func(out []core.Outgoing) (twice []core.Outgoing) {
		for _, o := range out {
			twice = append(twice, o)
			if which(o) {
				twice = append(twice, o)
			}
		}
		return twice
	})
}

func firstLine(value string) string {
	line, _, _ := strings.Cut(value, "\n")
	return line
}

func hasFailed(o core.Outgoing) bool { return o.Headers.Get(core.HeaderFailedQ) != "" }

// movesWhatItHolds moves a message to another queue as brokers do that have an operation for
// it: the body stays, whatever the copy has.
func movesWhatItHolds() changes {
	var mu sync.Mutex
	held := map[string][]byte{} // bodies by message id
	c := outgoing(func(out []core.Outgoing) []core.Outgoing {
		mu.Lock()
		defer mu.Unlock()
		for i, o := range out {
			if body, ok := held[o.ID]; ok && hasFailed(o) {
				out[i].Body = body
			}
		}
		return out
	})
	c.arrive = func(_ *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		if _, ok := held[in.ID]; !ok {
			held[in.ID] = in.Body
		}
	}
	return c
}

var failureMutants = []mutant{
	{rule: "R22", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R22", name: "hands over headers of its own", breaks: leaksItsHeaders},
	{rule: "R22", name: "sends a delayed message twice", breaks: func() changes {
		return sendsTwice(func(o core.Outgoing) bool { return o.Delay > 0 })
	}},
	{rule: "R22", name: "gives back what it replaced", breaks: givesBackReplaced},
	{rule: "R22", name: "loses what replaces a message", breaks: losesWhatReplaces},
	{rule: "R22", name: "remembers a message's time to be received by its id", breaks: func() changes {
		var mu sync.Mutex
		brief := map[string]time.Duration{}
		return outgoing(func(out []core.Outgoing) []core.Outgoing {
			mu.Lock()
			defer mu.Unlock()
			for i, o := range out {
				if o.TimeToBeReceived > 0 {
					brief[o.ID] = o.TimeToBeReceived
				}
				out[i].TimeToBeReceived = brief[o.ID]
			}
			return out
		})
	}},
	{rule: "R23", name: "hands over headers of its own", breaks: leaksItsHeaders},
	{rule: "R23", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R23", name: "sends a failed message twice", breaks: func() changes { return sendsTwice(hasFailed) }},
	{rule: "R23", name: "gives back what it replaced", breaks: givesBackReplaced},
	{rule: "R23", name: "forgets to acknowledge", breaks: forgetsToAcknowledge},
	{rule: "R23", name: "carries text bodies alone", breaks: func() changes {
		return outgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				out[i].Body = []byte(strings.ToValidUTF8(string(out[i].Body), "\uFFFD"))
			}
			return out
		})
	}},
	{rule: "R23", name: "has addresses to which it cannot send", breaks: func() changes {
		return changes{address: func(queue string, next func(string) (string, error)) (string, error) {
			address, err := next(queue)
			if !strings.HasPrefix(address, "amqp://") {
				address = "amqp://broker/" + address
			}
			return address, err
		}}
	}},
	{rule: "R23", name: "moves the message that it holds, with the headers that it is to have", breaks: movesWhatItHolds},
	{rule: "R23", name: "puts back the headers that a failed message was received with", breaks: func() changes {
		var mu sync.Mutex
		held := map[string]core.Headers{} // by message id
		c := outgoing(func(out []core.Outgoing) []core.Outgoing {
			mu.Lock()
			defer mu.Unlock()
			for i, o := range out {
				if hasFailed(o) {
					for key, value := range held[o.ID].All() {
						out[i].Headers.Set(key, value)
					}
				}
			}
			return out
		})
		c.arrive = func(_ *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := held[in.ID]; !ok {
				held[in.ID] = in.Headers
			}
		}
		return c
	}},
	{rule: "R26", name: "ends a header at its first line", breaks: func() changes { return cutsHeaders(firstLine) }},
	{rule: "R26", name: "makes one space of each white space", breaks: func() changes {
		return cutsHeaders(func(value string) string { return strings.Join(strings.Fields(value), " ") })
	}},
	{rule: "R29", name: "hands over headers of its own", breaks: leaksItsHeaders},
	{rule: "R29", name: "clears the body of a message that it delivers again", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
			if in.Redelivered {
				in.Body = make([]byte, len(in.Body))
			}
		}}
	}},
	{rule: "R30", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R30", name: "delivers again in mode None what is not completed", breaks: func() changes {
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if r.cfg.Mode != core.TransactionNone {
				return n, err
			}
			for _, d := range dst[:n] {
				if in := d.Incoming(); in.Headers.Get("x-again") == "" && in.Headers.Get(core.HeaderFailedQ) == "" {
					again := core.Outgoing{ID: in.ID, Queue: r.cfg.Queue, Headers: in.Headers, Body: in.Body}
					again.Headers.Set("x-again", "true")
					_ = r.transport.base.Send(context.Background(), again)
				}
			}
			return n, err
		}}
	}},
	{rule: "R31", name: "accepts what it sends to a queue that does not exist", breaks: swallowsUnroutable},
	{rule: "R31", name: "does not say that a queue does not exist", breaks: hidesMissingQueue},
	{rule: "R33", name: "cuts long headers", breaks: func() changes {
		return cutsHeaders(func(value string) string { return value[:min(len(value), 128)] })
	}},
	{rule: "R33", name: "carries no header that it does not know", breaks: func() changes {
		return dropsHeaders(func(key string) bool { return strings.HasPrefix(key, "NServiceBus.") })
	}},
}
