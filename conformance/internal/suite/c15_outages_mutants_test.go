package suite

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/reprise-go/reprise/core"
)

var outageMutants = []mutant{
	{rule: "C15", name: "waits for a queue that does not exist", breaks: func() changes {
		return changes{open: func(_ *brokenTransport, ctx context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			if errors.Is(err, core.ErrQueueNotFound) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return r, err
		}}
	}},
	{rule: "C15", name: "hides that a queue does not exist", breaks: func() changes {
		return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			if err != nil {
				err = errors.New("cannot open a receiver")
			}
			return r, err
		}}
	}},
	{rule: "C15", name: "takes a queue that does not exist for an outage", breaks: func() changes {
		return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			return r, asOutage(err)
		}}
	}},
	{rule: "C15", name: "does not say in Check that there is an outage", onServer: true, breaks: func() changes {
		return changes{check: func(_ *brokenTransport, _ core.Topology, next func() error) error { return asFailure(next()) }}
	}},
	{rule: "C15", name: "does not say in Provision that there is an outage", onServer: true, breaks: func() changes {
		return changes{provision: func(_ *brokenTransport, _ core.Topology, next func() error) error { return asFailure(next()) }}
	}},
	{rule: "C15", name: "does not say in Subscribe that there is an outage", onServer: true, breaks: func() changes {
		return changes{subscribe: func(_ *brokenTransport, _ string, _ []string, next func() error) error { return asFailure(next()) }}
	}},
	{rule: "C15", name: "does not say in Purge that there is an outage", onServer: true, breaks: func() changes {
		return changes{purge: func(_ *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
			n, err := next(queue)
			return n, asFailure(err)
		}}
	}},
	{rule: "C15", name: "does not say in Remove that there is an outage", onServer: true, breaks: func() changes {
		return changes{remove: func(_ *brokenTransport, queues, topics []string, next func(queues, topics []string) error) error {
			return asFailure(next(queues, topics))
		}}
	}},
	{rule: "C15", name: "does not say in Send that there is an outage", onServer: true, breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return asFailure(next(ctx, out...))
		}}
	}},
	{rule: "C15", name: "takes an outage in Send for a missing queue", onServer: true, breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if errors.Is(err, core.ErrUnavailable) {
				err = errors.Join(core.ErrQueueNotFound, core.ErrUnavailable)
			}
			return err
		}}
	}},
	{rule: "C15", name: "does not say in OpenReceiver that there is an outage", onServer: true, breaks: func() changes {
		return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			return r, asFailure(err)
		}}
	}},
	{rule: "C15", name: "says in OpenReceiver only that the deadline has passed", onServer: true, breaks: func() changes {
		return changes{open: func(_ *brokenTransport, ctx context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			if ctx.Err() != nil {
				cfg.ConnectionChanged(core.ConnectionChange{Err: errRefused})
				err = bareOutage{ctx.Err()}
			}
			return r, err
		}}
	}},
	{rule: "C15", name: "settles until long after the deadline", onServer: true, breaks: func() changes {
		return changes{settle: func(_ *brokenDelivery, _ string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrUnavailable) {
				time.Sleep(2 * deadlineTolerance)
			}
			return err
		}}
	}},
	{rule: "C15", name: "says of a settlement whose deadline passed that it was cancelled", onServer: true, breaks: func() changes {
		return changes{settle: func(_ *brokenDelivery, _ string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrUnavailable) {
				err = context.Canceled
			}
			return err
		}}
	}},
	{rule: "C15", name: "says of a settlement only that there is an outage", onServer: true, breaks: func() changes {
		return changes{settle: func(_ *brokenDelivery, _ string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrUnavailable) {
				err = core.ErrUnavailable
			}
			return err
		}}
	}},
	{rule: "C15", name: "returns an outage from Receive", onServer: true, breaks: func() changes {
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			lost := r.transport.base.(*remote).lost()
			limited, cancel := context.WithCancel(ctx)
			defer cancel()
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				select {
				case <-lost:
					cancel()
				case <-limited.Done():
				}
			}()
			n, err := next(limited, dst)
			cancel()
			<-watched
			if err != nil && ctx.Err() == nil && !errors.Is(err, core.ErrClosed) {
				err = errConnectionLost
			}
			return n, err
		}}
	}},
	{rule: "C15", name: "gives up after three attempts to connect", onServer: true, harness: givesUp},
	{rule: "C15", name: "does not report outages", onServer: true, breaks: func() changes {
		return changes{open: observing(nil)}
	}},
	{rule: "C15", name: "does not tell of the end of an outage", onServer: true, breaks: func() changes {
		return changes{open: observing(func(told func(core.ConnectionChange), c core.ConnectionChange) {
			if !c.Connected {
				told(c)
			}
		})}
	}},
	{rule: "C15", name: "says that it is connected before each attempt to connect", onServer: true, breaks: func() changes {
		return changes{open: observing(func(told func(core.ConnectionChange), c core.ConnectionChange) {
			if !c.Connected {
				told(core.ConnectionChange{Connected: true, Since: c.Since})
			}
			told(c)
		})}
	}},
	{rule: "C15", name: "does not say why there is no connection", onServer: true, breaks: func() changes {
		return changes{open: observing(func(told func(core.ConnectionChange), c core.ConnectionChange) {
			c.Err = nil
			told(c)
		})}
	}},
	{rule: "C15", name: "tries to connect every millisecond", onServer: true, harness: func(h *Harness) {
		h.Broker.(*server).faults.backOff = func(int) time.Duration { return time.Millisecond }
	}},
	{rule: "C15", name: "pauses between attempts to connect without jitter", onServer: true, harness: func(h *Harness) {
		h.Broker.(*server).faults.backOff = func(attempt int) time.Duration {
			return min(10*time.Millisecond<<min(attempt, 10), time.Second)
		}
	}},
	{rule: "C15", name: "pauses for as long before each attempt to connect", onServer: true, harness: func(h *Harness) {
		h.Broker.(*server).faults.backOff = func(int) time.Duration { return 25*time.Millisecond + rand.N(50*time.Millisecond) }
	}},
	{rule: "C15", name: "tells of the end of an outage at each success after it", onServer: true, breaks: func() changes {
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if told := r.cfg.ConnectionChanged; told != nil && n > 0 {
				told(core.ConnectionChange{Connected: true})
			}
			return n, err
		}}
	}},
	{rule: "C15", name: "waits for the broker in Check, also when its context has ended", onServer: true, breaks: func() changes {
		return changes{check: func(_ *brokenTransport, _ core.Topology, next func() error) error {
			for {
				if err := next(); !errors.Is(err, errRefused) {
					return err
				}
				time.Sleep(time.Second)
			}
		}}
	}},
	{rule: "C15", name: "says in an outage that all is well", onServer: true, breaks: func() changes {
		return changes{check: func(_ *brokenTransport, _ core.Topology, next func() error) error {
			if err := next(); !errors.Is(err, errRefused) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C15", name: "gives up after three attempts to connect to a broker that forgets", onServer: true, breaks: forgetful, harness: givesUp},
	{rule: "C15", name: "has no heartbeat", onServer: true, harness: func(h *Harness) {
		h.Broker.(*server).faults.noHeartbeat = true
	}},
}

// observing lets tell come between a transport and its endpoints, or tells them nothing.
func observing(tell func(told func(core.ConnectionChange), c core.ConnectionChange)) func(*brokenTransport, context.Context, core.ReceiverConfig, func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
	return func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
		told := cfg.ConnectionChanged
		cfg.ConnectionChanged = nil
		if told != nil && tell != nil {
			cfg.ConnectionChanged = func(c core.ConnectionChange) { tell(told, c) }
		}
		return next(cfg)
	}
}

// asFailure keeps the text of an outage alone.
// bareOutage is an outage that does not say its cause.
type bareOutage struct{ error }

func (e bareOutage) Error() string        { return "open: " + e.error.Error() }
func (e bareOutage) Unwrap() error        { return e.error }
func (e bareOutage) Is(target error) bool { return target == core.ErrUnavailable }

func asFailure(err error) error {
	if !errors.Is(err, core.ErrUnavailable) {
		return err
	}
	return errors.New(err.Error())
}
