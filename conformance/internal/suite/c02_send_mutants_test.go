package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var sendMutants = []mutant{
	{rule: "C2", name: "drops the messages after the first 1,000 of a Send", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return next(ctx, out[:min(len(out), 1000)]...)
		}}
	}},
	{rule: "C2", name: "reports the unroutable messages of a Send after the first 2,048 as accepted", breaks: func() changes {
		return changes{send: results(func(r []core.SendResult) {
			for i := 2048; i < len(r); i++ {
				r[i].State, r[i].Err = core.SendAccepted, nil
			}
		})}
	}},
	{rule: "C2", name: "sends the first ten of a batch alone", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return next(ctx, out[:min(10, len(out))]...)
		}}
	}},
	{rule: "C2", name: "sends a batch again whose confirm was late", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if len(out) > 50 {
				if err := next(ctx, out...); err != nil {
					return err
				}
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C2", name: "refuses to send nothing", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if len(out) == 0 {
				return errors.New("the request has no entries")
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C2", name: "holds a whole Send against the limit of one message", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			size := 0
			for _, m := range out {
				size += len(m.Body)
			}
			if size > 1<<20 {
				return refuse(out, errors.New("the batch is too large"))
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C2", name: "sends a batch to the queue of its first message", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				out[i].Queue = out[0].Queue
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C2", name: "confirms one of two Sends at a time by the other's confirm", breaks: func() changes {
		var under atomic.Int64
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			defer under.Add(-1)
			if under.Add(1) == 2 {
				return nil
			}
			time.Sleep(time.Millisecond) // for the broker's answer
			return next(ctx, out...)
		}}
	}},
	{rule: "C2", name: "drops unroutable messages in silence", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := next(ctx, out...); !errors.Is(err, core.ErrQueueNotFound) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C2", name: "says that a queue is missing without a SendError", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if errors.Is(err, core.ErrQueueNotFound) {
				return fmt.Errorf("send: %w", core.ErrQueueNotFound)
			}
			return err
		}}
	}},
	{rule: "C2", name: "calls a message to a missing queue unknown", breaks: func() changes {
		return changes{send: results(func(r []core.SendResult) {
			for i := range r {
				if r[i].State == core.SendRefused {
					r[i].State = core.SendUnknown
				}
			}
		})}
	}},
	{rule: "C2", name: "calls everything refused when one message is", breaks: func() changes {
		return changes{send: results(func(r []core.SendResult) {
			for i := range r {
				r[i].State, r[i].Err = core.SendRefused, cmp.Or(r[i].Err, errors.New("another message was refused"))
			}
		})}
	}},
	{rule: "C2", name: "stops at the first message that is refused and calls the others accepted", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			for i := range out {
				if err := next(ctx, out[i]); err != nil {
					all := refuse(out, err)
					for j := range all.Results {
						if j != i {
							all.Results[j].State, all.Results[j].Err = core.SendAccepted, nil
						}
					}
					return all
				}
			}
			return nil
		}}
	}},
	{rule: "C2", name: "lists the results in the order of the queues", breaks: func() changes {
		return changes{send: results(func(r []core.SendResult) {
			slices.SortStableFunc(r, func(a, b core.SendResult) int { return cmp.Compare(a.To, b.To) })
		})}
	}},
	{rule: "C2", name: "lists the refused messages alone", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if sent, ok := errors.AsType[*core.SendError](err); ok {
				return &core.SendError{Results: slices.DeleteFunc(sent.Results, func(r core.SendResult) bool { return r.State == core.SendAccepted })}
			}
			return err
		}}
	}},
	{rule: "C2", name: "loses its channel, and the messages of other Sends on it, to a missing queue", breaks: func() changes {
		var lost atomic.Bool
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if lost.Swap(false) {
				return refuse(out, errors.New("the channel was closed"))
			}
			err := next(ctx, out...)
			if errors.Is(err, core.ErrQueueNotFound) {
				lost.Store(true)
			}
			return err
		}}
	}},
	{rule: "C2", name: "remembers for ever that a queue did not exist", breaks: func() changes {
		var mu sync.Mutex
		missing := map[string]bool{}
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			mu.Lock()
			defer mu.Unlock()
			if len(out) > 0 && missing[out[0].Queue] {
				return refuse(out, core.ErrQueueNotFound)
			}
			err := next(ctx, out...)
			if errors.Is(err, core.ErrQueueNotFound) {
				missing[out[0].Queue] = true
			}
			return err
		}}
	}},
	{rule: "C2", name: "sends although the context has ended", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return next(context.WithoutCancel(ctx), out...)
		}}
	}},
	{rule: "C2", name: "calls the end of a context a broken connection", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if ctx.Err() != nil {
				return refuse(out, errors.New("connection reset"))
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C2", name: "calls refused whose confirm it did not wait for", breaks: func() changes {
		return changes{send: withConfirms(func(out []core.Outgoing, err error) error { return refuse(out, err) })}
	}},
	{rule: "C2", name: "reports messages as accepted that it had no time to send", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			for i := range out {
				select {
				case <-time.After(2 * time.Millisecond):
				case <-ctx.Done():
					all := refuse(out, ctx.Err())
					for j := range all.Results[:min(i+1, len(out))] {
						all.Results[j].State, all.Results[j].Err = core.SendAccepted, nil
					}
					return all
				}
				if err := next(ctx, out[i]); err != nil {
					return err
				}
			}
			return nil
		}}
	}},
	{rule: "C2", name: "hides that it was closed", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := next(ctx, out...); !errors.Is(err, core.ErrClosed) {
				return err
			}
			return refuse(out, errors.New("no connection"))
		}}
	}},
	{rule: "C2", name: "sends messages in the background that it reported as accepted", breaks: func() changes { return buffering(slices.Clone) }},
	{rule: "C2", name: "keeps the slice that it was given", breaks: func() changes {
		return buffering(func(out []core.Outgoing) []core.Outgoing { return out })
	}},
	{rule: "C2", name: "writes a header into the sender's message", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			for i := range out {
				out[i].Headers.Set("Content-Length", fmt.Sprint(len(out[i].Body)))
			}
			return err
		}}
	}},
	{rule: "C2", name: "encodes the sender's body in place", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			for _, m := range out {
				for i := range m.Body {
					m.Body[i] ^= 0xff
				}
			}
			return err
		}}
	}},
	{rule: "C2", name: "detects duplicates by their id", breaks: func() changes {
		var mu sync.Mutex
		known := map[string]bool{}
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			mu.Lock()
			defer mu.Unlock()
			return next(ctx, slices.DeleteFunc(slices.Clone(out), func(m core.Outgoing) bool {
				was := known[m.ID]
				known[m.ID] = true
				return was
			})...)
		}}
	}},
	{rule: "C2", name: "sends nothing to a queue that it receives from", breaks: func() changes {
		var mu sync.Mutex
		receives := map[*brokenTransport]map[string]bool{}
		return changes{
			open: func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				mu.Lock()
				defer mu.Unlock()
				if receives[t] == nil {
					receives[t] = map[string]bool{}
				}
				receives[t][cfg.Queue] = true
				return next(cfg)
			},
			send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				mu.Lock()
				defer mu.Unlock()
				return next(ctx, slices.DeleteFunc(slices.Clone(out), func(m core.Outgoing) bool { return receives[t][m.Queue] })...)
			},
		}
	}},
	{rule: "C2", name: "keeps its messages to itself", harness: func(h *Harness) {
		h.Open = func(t testing.TB) core.Transport {
			transport, err := inmemory.New(inmemory.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return transport
		}
	}},
	{rule: "C2", name: "says that a Send without an answer was refused", onServer: true, breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if errors.Is(err, errNoAnswer) {
				return sendFailed(out, core.SendRefused, err)
			}
			return err
		}}
	}},
	{rule: "C2", name: "accepts messages in an outage", onServer: true, breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := next(ctx, out...); err != nil && !errors.Is(err, errRefused) && !errors.Is(err, errConnectionLost) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C2", name: "accepts messages, and sends them a moment later", onServer: true, breaks: func() changes {
		return changes{send: func(_ *brokenTransport, _ context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out) // the caller may write to its own
			time.AfterFunc(time.Millisecond, func() { _ = next(ctxBackground, out...) })
			return nil
		}}
	}},
	{rule: "C2", name: "says that a message was refused when there was no answer", onServer: true, breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if sent, ok := errors.AsType[*core.SendError](err); ok {
				for i := range sent.Results {
					if sent.Results[i].State == core.SendUnknown {
						sent.Results[i].State = core.SendRefused
					}
				}
			}
			return err
		}}
	}},
	{rule: "C2", name: "keeps waiting messages in memory, and claims to be durable", onServer: true, harness: atDeath(func(s *server, t *inmemory.Transport) {
		s.takeAll(t)
	})},
}

// withConfirms sends, and waits for the broker to confirm it. confirm decides what
// becomes of it when the context ends before.
func withConfirms(confirm func(out []core.Outgoing, err error) error) sending {
	return func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
		if err := next(ctx, out...); err != nil {
			return err
		}
		confirmed := time.NewTimer(4 * time.Millisecond)
		defer confirmed.Stop()
		select {
		case <-confirmed.C:
			return nil
		case <-ctx.Done():
			return confirm(out, ctx.Err())
		}
	}
}
