package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

var outageMutants = []mutant{
	{rule: "C15", name: "waits for a queue that does not exist", breaks: func() changes {
		return changes{open: func(_ *broken, ctx context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			if errors.Is(err, core.ErrQueueNotFound) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return r, err
		}}
	}},
	{rule: "C15", name: "hides that a queue does not exist", breaks: func() changes {
		return changes{open: func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			if err != nil {
				err = errors.New("cannot open a receiver")
			}
			return r, err
		}}
	}},
	{rule: "C15", name: "takes a queue that does not exist for an outage", breaks: func() changes {
		return changes{open: func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			return r, asOutage(err)
		}}
	}},
	{rule: "C18", name: "takes a queue that does not exist for an outage in Check", breaks: func() changes {
		return changes{check: func(_ *broken, _ core.Topology, next func() error) error { return asOutage(next()) }}
	}},
	{rule: "C18", name: "takes a queue without a name for an outage", breaks: func() changes {
		return changes{provision: func(_ *broken, topology core.Topology, next func() error) error {
			err := next()
			if slices.Contains(topology.Queues, "") {
				err = asOutage(err)
			}
			return err
		}}
	}},
	{rule: "C15", name: "does not say in Check that there is an outage", onServer: true, breaks: func() changes {
		return changes{check: func(_ *broken, _ core.Topology, next func() error) error { return asFailure(next()) }}
	}},
	{rule: "C15", name: "does not say in Provision that there is an outage", onServer: true, breaks: func() changes {
		return changes{provision: func(_ *broken, _ core.Topology, next func() error) error { return asFailure(next()) }}
	}},
	{rule: "C15", name: "does not say in Subscribe that there is an outage", onServer: true, breaks: func() changes {
		return changes{subscribe: func(_ *broken, _ string, _ []string, next func() error) error { return asFailure(next()) }}
	}},
	{rule: "C15", name: "does not say in Purge that there is an outage", onServer: true, breaks: func() changes {
		return changes{purge: func(_ *broken, queue string, next func(string) (int, error)) (int, error) {
			n, err := next(queue)
			return n, asFailure(err)
		}}
	}},
	{rule: "C15", name: "returns an outage from Receive", onServer: true, breaks: func() changes {
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			lost := r.transport.base.(*remote).lost()
			until, cancel := context.WithCancel(ctx)
			defer cancel()
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				select {
				case <-lost:
					cancel()
				case <-until.Done():
				}
			}()
			n, err := next(until, dst)
			cancel()
			<-watched
			if err != nil && ctx.Err() == nil && !errors.Is(err, core.ErrClosed) {
				err = errConnectionLost
			}
			return n, err
		}}
	}},
	{rule: "C15", name: "gives up after three attempts to connect", onServer: true, harness: givesUp},
	{rule: "C15", name: "tells nobody of outages", onServer: true, breaks: func() changes {
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
	{rule: "C15", name: "waits for the broker in Check, whatever its context says", onServer: true, breaks: func() changes {
		return changes{check: func(_ *broken, _ core.Topology, next func() error) error {
			for {
				if err := next(); !errors.Is(err, errRefused) {
					return err
				}
				time.Sleep(time.Second)
			}
		}}
	}},
	{rule: "C15", name: "says in an outage that all is well", onServer: true, breaks: func() changes {
		return changes{check: func(_ *broken, _ core.Topology, next func() error) error {
			if err := next(); !errors.Is(err, errRefused) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C15", name: "gives up after three attempts to connect to a broker that forgets", onServer: true, breaks: forgetful, harness: givesUp},
	{rule: "C2", name: "accepts messages in an outage", onServer: true, breaks: func() changes {
		return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := next(ctx, out...); err != nil && !errors.Is(err, errRefused) && !errors.Is(err, errConnectionLost) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C6", name: "settles without a connection", onServer: true, breaks: func() changes {
		return changes{settle: func(_ *brokenDelivery, _ string, next func() error) error {
			if err := next(); err != nil && !errors.Is(err, core.ErrLockLost) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C6", name: "loses what it holds in an outage", onServer: true, breaks: consumesEarly},
	{rule: "C14", name: "leaves a goroutine behind when it is closed in an outage", onServer: true, breaks: func() changes {
		return changes{close: func(t *broken, next func() error) error {
			if _, err := t.base.(*remote).connected(); errors.Is(err, errRefused) {
				go time.Sleep(time.Hour)
			}
			return next()
		}}
	}, harness: looksSeldom},
	{rule: "C14", name: "waits for the broker in Close", onServer: true, breaks: func() changes {
		return changes{close: func(t *broken, next func() error) error {
			for {
				if _, err := t.base.(*remote).connected(); !errors.Is(err, errRefused) {
					return next()
				}
				time.Sleep(time.Second)
			}
		}}
	}},
}

func givesUp(h *Harness) { h.Broker.(*server).faults.attempts = 3 }

// forgetful claims not to be durable.
func forgetful() changes {
	return changes{capabilities: func(c core.Capabilities) core.Capabilities {
		c.Durable = false
		return c
	}}
}

// observing lets tell come between a transport and its endpoints, or tells them nothing.
func observing(tell func(told func(core.ConnectionChange), c core.ConnectionChange)) func(*broken, context.Context, core.ReceiverConfig, func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
	return func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
		told := cfg.ConnectionChanged
		cfg.ConnectionChanged = nil
		if told != nil && tell != nil {
			cfg.ConnectionChanged = func(c core.ConnectionChange) { tell(told, c) }
		}
		return next(cfg)
	}
}

// asOutage makes an error match core.ErrUnavailable.
func asOutage(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
}

// asFailure keeps the text of an outage alone.
func asFailure(err error) error {
	if !errors.Is(err, core.ErrUnavailable) {
		return err
	}
	return errors.New(err.Error())
}
