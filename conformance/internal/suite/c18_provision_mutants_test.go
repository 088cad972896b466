package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// exist reports whether all the queues do.
func (t *brokenTransport) exist(queues ...string) bool {
	return t.base.Check(context.Background(), topologyOf(queues...)) == nil
}

// onProvision makes changes of a function that replaces Provision.
func onProvision(provision func(t *brokenTransport, topology core.Topology, next func() error) error) func() changes {
	return func() changes { return changes{provision: provision} }
}

// onCheck makes changes of a function that replaces Check.
func onCheck(check func(t *brokenTransport, topology core.Topology, next func() error) error) func() changes {
	return func() changes { return changes{check: check} }
}

var errExpires = errors.New("the queue expires")

// refuseExpiry returns an error if the input queue is to expire.
func refuseExpiry(topology core.Topology, err error) error {
	if topology.QueueExpiry == 0 {
		return nil
	}
	return err
}

// limitingNames is a transport with a limit of the length of names.
var limitingNames = able(func(c *core.Capabilities) { c.MaxQueueName, c.MaxTopicName = 200, 150 })

// addressing makes changes of the error of Address.
func addressing(change func(err error) error) func() changes {
	return func() changes {
		return changes{address: func(queue string, next func(string) (string, error)) (string, error) {
			address, err := next(queue)
			if err != nil {
				err = change(err)
			}
			return address, err
		}}
	}
}

// withoutLimit returns the error of a name without its limit.
func withoutLimit(err error) error {
	if bad, ok := errors.AsType[*core.NameError](err); ok {
		return &core.NameError{Kind: bad.Kind, Name: bad.Name, Reason: bad.Reason}
	}
	return err
}

var provisionMutants = []mutant{
	{rule: "C18", name: "says in a text only that it does not accept a name", breaks: addressing(func(err error) error { return errors.New(err.Error()) })},
	{rule: "C18", name: "does not say how long a name may be", config: limitingNames, breaks: addressing(withoutLimit)},
	{rule: "C18", name: "accepts names that are shorter than it claims", config: limitingNames, breaks: func() changes {
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.MaxQueueName++
			return c
		}}
	}},
	{rule: "C18", name: "accepts longer names than it claims", config: limitingNames, breaks: func() changes {
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.MaxQueueName--
			return c
		}}
	}},
	{rule: "C18", name: "accepts any topic in CheckTopic", breaks: func() changes {
		return changes{checkTopic: func(string, func(string) error) error { return nil }}
	}},
	{rule: "C18", name: "does not say how long a topic may be", config: limitingNames, breaks: func() changes {
		return changes{checkTopic: func(topic string, next func(string) error) error { return withoutLimit(next(topic)) }}
	}},
	{rule: "C18", name: "says in Subscribe in a text only that it does not accept a topic", config: limitingNames, breaks: func() changes {
		return changes{subscribe: func(_ *brokenTransport, _ string, topics []string, next func() error) error {
			err := next()
			if _, ok := errors.AsType[*core.NameError](err); ok {
				err = errors.New(err.Error())
			}
			return err
		}}
	}},
	{rule: "C18", name: "takes a queue whose name is too long for a missing one", config: limitingNames, breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if bad, ok := errors.AsType[*core.NameError](err); ok && bad.Kind == "queue" {
				err = core.ErrQueueNotFound
			}
			return err
		}}
	}},
	{rule: "C18", name: "takes names that differ in case for one", breaks: func() changes { return renamesQueues(strings.ToLower) }},
	{rule: "C18", name: "drops quotes from names", breaks: func() changes {
		return renamesQueues(strings.NewReplacer("'", "", `"`, "", "`", "").Replace)
	}},
	{rule: "C18", name: "matches a delayed message's queue by the end of its name", breaks: func() changes {
		return changes{send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			for _, o := range out {
				if _, rest, found := strings.Cut(o.Queue, "."); found && o.Delay > 0 && t.exist(rest) {
					o.Queue = rest
					out = append(slices.Clone(out), o)
				}
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C18", name: "makes a queue anew that exists", breaks: onProvision(func(t *brokenTransport, topology core.Topology, next func() error) error {
		for _, queue := range topology.Queues {
			t.fixture.purge(queue, func(*core.Incoming) bool { return true })
		}
		return next()
	})},
	{rule: "C18", name: "refuses a queue that exists", breaks: onProvision(func(t *brokenTransport, topology core.Topology, next func() error) error {
		for _, queue := range topology.Queues {
			if t.exist(queue) {
				return fmt.Errorf("provision: queue %q exists already", queue)
			}
		}
		return next()
	})},
	{rule: "C18", name: "creates nothing if the first queue exists", breaks: onProvision(func(t *brokenTransport, topology core.Topology, next func() error) error {
		if len(topology.Queues) > 0 && t.exist(topology.Queues[0]) {
			return nil
		}
		return next()
	})},
	{rule: "C18", name: "creates the first queue alone", breaks: onProvision(func(t *brokenTransport, topology core.Topology, _ func() error) error {
		topology.Queues = topology.Queues[:min(1, len(topology.Queues))]
		return t.base.Provision(context.Background(), topology)
	})},
	{rule: "C18", name: "sends to those queues alone that it created itself", breaks: func() changes {
		var mu sync.Mutex
		created := map[*brokenTransport][]string{}
		return changes{
			provision: func(t *brokenTransport, topology core.Topology, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				created[t] = append(created[t], topology.Queues...)
				return next()
			},
			send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, o := range out {
					if !slices.Contains(created[t], o.Queue) {
						return core.ErrQueueNotFound
					}
				}
				return next(ctx, out...)
			},
		}
	}},
	{rule: "C18", name: "fails when another instance creates the queue at the same time", breaks: onProvision(func(t *brokenTransport, topology core.Topology, next func() error) error {
		existed := t.exist(topology.Queues...)
		time.Sleep(time.Millisecond)
		if !existed && t.exist(topology.Queues...) {
			return errors.New("provision: duplicate key value violates unique constraint")
		}
		return next()
	})},
	{rule: "C18", name: "closes the receivers of a queue that it declares again", breaks: func() changes {
		var mu sync.Mutex
		open := map[string][]core.Receiver{}
		return changes{
			open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				r, err := next(cfg)
				mu.Lock()
				defer mu.Unlock()
				open[cfg.Queue] = append(open[cfg.Queue], r)
				return r, err
			},
			provision: func(_ *brokenTransport, topology core.Topology, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, queue := range topology.Queues {
					for _, r := range open[queue] {
						_ = r.Close(context.Background())
					}
				}
				return next()
			},
		}
	}},
	{rule: "C18", name: "leaves out a queue without a name", breaks: onProvision(func(t *brokenTransport, topology core.Topology, _ func() error) error {
		topology.Queues = slices.DeleteFunc(slices.Clone(topology.Queues), func(queue string) bool { return queue == "" })
		return t.base.Provision(context.Background(), topology)
	})},
	{rule: "C18", name: "refuses a queue that expires after it has created it", breaks: onProvision(func(_ *brokenTransport, topology core.Topology, next func() error) error {
		return errors.Join(next(), refuseExpiry(topology, errExpires))
	})},
	{rule: "C18", name: "refuses a queue that expires as unsupported", breaks: func() changes {
		refuse := func(_ *brokenTransport, topology core.Topology, next func() error) error {
			if err := refuseExpiry(topology, fmt.Errorf("%w: %w", errExpires, errors.ErrUnsupported)); err != nil {
				return err
			}
			return next()
		}
		return changes{provision: refuse, check: refuse}
	}},
	{rule: "C18", name: "refuses a queue that expires in Provision alone", breaks: onProvision(func(_ *brokenTransport, topology core.Topology, next func() error) error {
		if err := refuseExpiry(topology, errExpires); err != nil {
			return err
		}
		return next()
	})},
	{rule: "C18", name: "takes its own queue that expires for another one", breaks: onProvision(func(t *brokenTransport, topology core.Topology, next func() error) error {
		if topology.QueueExpiry > 0 && t.exist(topology.InputQueue) {
			return errExpires
		}
		return next()
	})},
	{rule: "C18", name: "must be told of one queue at least", breaks: onProvision(func(_ *brokenTransport, topology core.Topology, next func() error) error {
		if len(topology.Queues) == 0 {
			return errors.New("provision: there is nothing to create")
		}
		return next()
	})},
	{rule: "C18", name: "creates a queue that is sent to", breaks: func() changes {
		return changes{send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			for _, o := range out {
				_ = t.base.Provision(ctx, core.Topology{InputQueue: o.Queue, Queues: []string{o.Queue}})
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C18", name: "creates a queue that is received from", breaks: func() changes {
		return changes{open: func(t *brokenTransport, ctx context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			_ = t.base.Provision(ctx, core.Topology{InputQueue: cfg.Queue, Queues: []string{cfg.Queue}})
			return next(cfg)
		}}
	}},
	{rule: "C18", name: "cannot create a queue by its address", breaks: func() changes {
		const scheme = "queue:"
		return changes{
			address: func(queue string, next func(string) (string, error)) (string, error) {
				name, err := next(strings.TrimPrefix(queue, scheme))
				return scheme + name, err
			},
			provision: func(_ *brokenTransport, topology core.Topology, next func() error) error {
				if slices.ContainsFunc(topology.Queues, func(queue string) bool { return strings.HasPrefix(queue, scheme) }) {
					return errors.New("provision: a queue's name has no colon")
				}
				return next()
			},
		}
	}},
	{rule: "C18", name: "takes a queue as it is", breaks: onProvision(func(t *brokenTransport, topology core.Topology, _ func() error) error {
		return t.base.Provision(context.Background(), topology)
	})},
	{rule: "C18", name: "makes a queue anew that is not as it would make it", breaks: onProvision(func(t *brokenTransport, topology core.Topology, next func() error) error {
		err := next()
		if err == nil {
			return nil
		}
		for _, queue := range topology.Queues {
			t.fixture.purge(queue, func(*core.Incoming) bool { return true })
		}
		return err
	})},
	{rule: "C18", name: "does not say how a queue differs", breaks: onProvision(func(_ *brokenTransport, _ core.Topology, next func() error) error {
		if err := next(); err != nil {
			return errors.New("provision: PRECONDITION_FAILED")
		}
		return nil
	})},
	{rule: "C18", name: "checks that the broker is there, and no more", breaks: onCheck(func(*brokenTransport, core.Topology, func() error) error { return nil })},
	{rule: "C18", name: "does not say which queue is missing", breaks: onCheck(func(_ *brokenTransport, _ core.Topology, next func() error) error {
		if next() != nil {
			return core.ErrQueueNotFound
		}
		return nil
	})},
	{rule: "C18", name: "creates the queues that it checks", breaks: onCheck(func(t *brokenTransport, topology core.Topology, next func() error) error {
		err := next()
		_ = t.base.Provision(context.Background(), topology)
		return err
	})},
	{rule: "C18", name: "takes a queue that does not exist for an outage in Check", breaks: func() changes {
		return changes{check: func(_ *brokenTransport, _ core.Topology, next func() error) error { return asOutage(next()) }}
	}},
	{rule: "C18", name: "takes a queue without a name for an outage", breaks: func() changes {
		return changes{provision: func(_ *brokenTransport, topology core.Topology, next func() error) error {
			err := next()
			if slices.Contains(topology.Queues, "") {
				err = asOutage(err)
			}
			return err
		}}
	}},
}

// renamesQueues is a transport for which names are the same that rename makes the same.
func renamesQueues(rename func(string) string) changes {
	return changes{
		provision: func(t *brokenTransport, topology core.Topology, _ func() error) error {
			topology.Queues = slices.Clone(topology.Queues)
			for i := range topology.Queues {
				topology.Queues[i] = rename(topology.Queues[i])
			}
			topology.InputQueue = rename(topology.InputQueue)
			return t.base.Provision(context.Background(), topology)
		},
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				out[i].Queue = rename(out[i].Queue)
			}
			return next(ctx, out...)
		},
		open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			cfg.Queue = rename(cfg.Queue)
			return next(cfg)
		},
	}
}
