package suite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// onSend makes changes of a function that replaces CompleteWith and ReplaceWith.
func onSend(settle func(d *brokenDelivery, next func() error) error) func() changes {
	return func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if !isSend(operation) {
				return next()
			}
			return settle(d, next)
		}}
	}
}

// sendSeparately sends outside of any transaction.
func (d *brokenDelivery) sendSeparately(out []core.Outgoing) error {
	return d.receiver.transport.base.Send(context.Background(), out...)
}

// pretending does something instead of one method of a delivery.
func pretending(method string, do func(d *brokenDelivery) error) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == method {
			return do(d)
		}
		return next()
	}}
}

// alters is a transport that changes received messages.
func alters(change func(in *core.Incoming)) func() changes {
	return func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { change(in) }}
	}
}

func altersHeaders(change func(headers map[string]string)) func() changes {
	return alters(func(in *core.Incoming) {
		headers := in.Headers.Map()
		change(headers)
		in.Headers = core.HeadersFromMap(headers)
	})
}

// failing changes Abandon.
func failing(change func(d *brokenDelivery, next func() error) error) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Abandon" {
			return change(d, next)
		}
		return next()
	}}
}

// onPostpone makes changes of a function that replaces Postpone.
func onPostpone(postpone func(d *brokenDelivery, next func() error) error) func() changes {
	return func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Postpone" {
				return postpone(d, next)
			}
			return next()
		}}
	}
}

// sendAnew consumes the message and sends a copy of it.
func (d *brokenDelivery) sendAnew(delay time.Duration) error {
	ctx := context.Background()
	if err := d.Delivery.Complete(ctx); err != nil {
		return err
	}
	return d.receiver.transport.base.Send(ctx, core.Outgoing{
		ID: d.in.ID, Queue: d.receiver.cfg.Queue, Headers: d.in.Headers, Body: d.in.Body,
		GroupKey: d.in.GroupKey, Properties: d.in.Properties, Delay: delay,
	})
}

// claiming says that locks end at another time than they do.
func claiming(by time.Duration) changes {
	return changes{lockedUntil: func(_ *brokenDelivery, next func() time.Time) time.Time { return next().Add(by) }}
}

// onMalformed makes changes of a function that replaces the settlements of
// malformed messages.
func onMalformed(settle func(d *brokenDelivery, operation string, next func() error) error) func() changes {
	return func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if d.in.Malformed == nil {
				return next()
			}
			return settle(d, operation, next)
		}}
	}
}

// arriving makes changes of a function that changes received messages.
func arriving(change func(in *core.Incoming)) func() changes {
	return func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { change(in) }}
	}
}

// locking adds locks of 10 s.
func locking(cfg inmemory.Config) inmemory.Config {
	cfg.LockDuration = 10 * time.Second
	return cfg
}

// outgoing changes every message that is sent, by any call.
func outgoing(change func(out []core.Outgoing) []core.Outgoing) changes {
	return changes{
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return next(ctx, change(out)...)
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "CompleteWith" || operation == "ReplaceWith" {
				d.out = change(d.out)
			}
			return next()
		},
	}
}

// forgetsNative sends copies without their native properties.
func forgetsNative() changes {
	return outgoing(func(out []core.Outgoing) []core.Outgoing {
		for i := range out {
			out[i].Native = nil
		}
		return out
	})
}

// settling carries another settlement out than was asked for.
func settling(asked string, replacement func(d *brokenDelivery) error) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == asked {
			return replacement(d)
		}
		return next()
	}}
}

// changesDelay does something to every delay.
func changesDelay(change func(time.Duration) time.Duration) changes {
	return outgoing(func(out []core.Outgoing) []core.Outgoing {
		for i := range out {
			out[i].Delay = change(out[i].Delay)
		}
		return out
	})
}

// dropsHeaders carries none of the headers that it does not know.
func dropsHeaders(known func(key string) bool) changes {
	return outgoing(func(out []core.Outgoing) []core.Outgoing {
		for i := range out {
			var kept core.Headers
			for key, value := range out[i].Headers.All() {
				if known(key) {
					kept.Set(key, value)
				}
			}
			out[i].Headers = kept
		}
		return out
	})
}

// cutsHeaders does something to every header's value.
func cutsHeaders(cut func(value string) string) changes {
	return outgoing(func(out []core.Outgoing) []core.Outgoing {
		for i := range out {
			for key, value := range out[i].Headers.All() {
				out[i].Headers.Set(key, cut(value))
			}
		}
		return out
	})
}

// sending is the hook for Send.
type sending func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(ctx context.Context, out ...core.Outgoing) error) error

// refuse returns a SendError that refuses all.
func refuse(out []core.Outgoing, err error) *core.SendError {
	all := &core.SendError{}
	for _, m := range out {
		all.Results = append(all.Results, core.SendResult{ID: m.ID, To: m.Queue + m.Topic, State: core.SendRefused, Err: err})
	}
	return all
}

// results changes the results of a SendError.
func results(change func(r []core.SendResult)) sending {
	return func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
		err := next(ctx, out...)
		if sent, ok := errors.AsType[*core.SendError](err); ok {
			change(sent.Results)
		}
		return err
	}
}

// buffering sends the messages of each call with the next one, and loses them
// when it is closed before.
func buffering(keep func([]core.Outgoing) []core.Outgoing) changes {
	var mu sync.Mutex
	kept := map[*brokenTransport][]core.Outgoing{}
	flush := func(t *brokenTransport) {
		mu.Lock()
		defer mu.Unlock()
		_ = t.base.Send(context.Background(), kept[t]...)
		delete(kept, t)
	}
	return changes{
		send: func(t *brokenTransport, _ context.Context, out []core.Outgoing, _ func(context.Context, ...core.Outgoing) error) error {
			flush(t)
			mu.Lock()
			defer mu.Unlock()
			kept[t] = keep(out)
			return nil
		},
		open: func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			flush(t)
			return next(cfg)
		},
	}
}

// withLocks is a transport that can do everything, and whose locks end.
var withLocks = inmemory.Config{LockDuration: 12 * time.Second}

// answering changes the errors of settlements.
func answering(change func(d *brokenDelivery, operation string, err error) error) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		return change(d, operation, next())
	}}
}

// replaceErr answers one error of all settlements with another, or with success.
func replaceErr(replaced, with error) changes {
	return answering(func(_ *brokenDelivery, operation string, err error) error {
		if errors.Is(err, replaced) && operation != "Renew" && operation != "Reset" {
			return with
		}
		return err
	})
}

// onRefusal does something after settlements that were refused with an error.
func onRefusal(with error, do func(d *brokenDelivery, operation string)) changes {
	return answering(func(d *brokenDelivery, operation string, err error) error {
		if errors.Is(err, with) {
			do(d, operation)
		}
		return err
	})
}

// resend puts a copy of a delivery's message into its queue.
func resend(d *brokenDelivery) {
	in := d.Delivery.Incoming()
	_ = d.receiver.transport.base.Send(ctxBackground, core.Outgoing{ID: in.ID, Queue: d.receiver.cfg.Queue, Headers: in.Headers, Body: in.Body})
}

// countingMore lets something raise the counts of messages.
func countingMore(when func(more func(d *brokenDelivery)) changes) changes {
	var mu sync.Mutex
	extra := map[string]int{}
	c := when(func(d *brokenDelivery) {
		mu.Lock()
		defer mu.Unlock()
		extra[d.in.NativeID]++
	})
	c.arrive = func(_ *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		in.DeliveryCount += extra[in.NativeID]
	}
	return c
}

// deliveryRecord remember what receivers were delivered, in that order.
type deliveryRecord struct {
	mu         sync.Mutex
	byReceiver map[*brokenReceiver][]core.Delivery
}

// recordDeliveries returns changes that record deliveries.
func recordDeliveries() (*deliveryRecord, changes) {
	h := &deliveryRecord{byReceiver: map[*brokenReceiver][]core.Delivery{}}
	return h, changes{deliver: func(r *brokenReceiver, d core.Delivery) core.Delivery {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.byReceiver[r] = append(h.byReceiver[r], d)
		return d
	}}
}

// all returns the deliveries to a receiver.
func (h *deliveryRecord) all(r *brokenReceiver) []core.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.byReceiver[r])
}

// upTo returns the deliveries to a delivery's receiver until then.
func (h *deliveryRecord) upTo(d *brokenDelivery) []core.Delivery {
	all := h.all(d.receiver)
	return all[:slices.Index(all, d.Delivery)+1]
}

// acknowledgesUpTo settles more than was asked for, as basic.ack with multiple
// does, and answers for the others as told.
func acknowledgesUpTo(answer func(err error) error) changes {
	held, c := recordDeliveries()
	c.settle = func(d *brokenDelivery, operation string, next func() error) error {
		if operation != "Complete" {
			return answer(next())
		}
		err := next()
		for _, earlier := range held.upTo(d) {
			_ = earlier.Complete(ctxBackground)
		}
		return answer(err)
	}
	return c
}

// deleteByNativeID takes a message out of its queue if it is there.
func deleteByNativeID(d *brokenDelivery) {
	r, err := d.receiver.transport.base.OpenReceiver(ctxBackground, core.ReceiverConfig{Queue: d.receiver.cfg.Queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 100})
	if err != nil {
		return // the transport is closed
	}
	ended, cancel := context.WithTimeout(ctxBackground, time.Millisecond)
	defer cancel()
	dst := make([]core.Delivery, 100)
	n, _ := r.Receive(ended, dst)
	for _, other := range dst[:n] {
		if other.Incoming().NativeID == d.in.NativeID {
			_ = other.Complete(ctxBackground)
		}
	}
	_ = r.Close(ctxBackground)
}

// changesOutgoing changes sent messages, by Send or with a settlement. change may
// write to the slice.
func changesOutgoing(change func(out []core.Outgoing) []core.Outgoing) changes {
	return changes{
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return next(ctx, change(slices.Clone(out))...)
		},
		settle: func(d *brokenDelivery, _ string, next func() error) error {
			d.out = change(slices.Clone(d.out))
			return next()
		},
	}
}

// onOperation makes changes of a function that replaces settlements.
func onOperation(settle func(d *brokenDelivery, next func() error) error, operations ...string) func() changes {
	return func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if !slices.Contains(operations, operation) {
				return next()
			}
			return settle(d, next)
		}}
	}
}

func undoing(d *brokenDelivery, next func() error) error {
	d.work.undo()
	return next()
}

func committing(d *brokenDelivery, next func() error) error {
	d.work.commit()
	return next()
}

// afresh gives the delivery a transaction that no context knows yet.
func (d *brokenDelivery) afresh() { d.work = &transaction{db: d.work.db} }
