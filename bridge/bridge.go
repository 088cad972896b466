package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// Bridge carries messages between two transports. It consists of endpoints, one for each
// queue that it receives from, and keeps state only in the process: several instances may
// run at the same time.
type Bridge struct {
	endpoints []*core.Endpoint
}

// New makes a bridge. The name is that of the queue in which the bridge receives events,
// on each side, and marks the messages that it has carried. All instances of a bridge must
// have the same name, and different bridges different names. New checks the whole
// configuration without contacting a broker; its error lists all mistakes.
func New(name string, c Config) (*Bridge, error) {
	var p problems
	c.check(&p, name)
	c.SendTimeout = cmp.Or(c.SendTimeout, defaultSendTimeout)
	b := &Bridge{}
	if c.hasTransports() {
		b.endpoints = slices.Concat(
			newDirection(&p, name, "Near", "Far", &c, &c.Near, &c.Far),
			newDirection(&p, name, "Far", "Near", &c, &c.Far, &c.Near),
		)
	}
	if err := p.err(); err != nil {
		return nil, fmt.Errorf("bridge: new bridge %q: %w", name, err)
	}
	return b, nil
}

// Endpoints returns the endpoints of the bridge, to run them with others by core.RunAll,
// and for their Health: its field Middleware has the state of each destination (Kind is
// "bridge").
func (b *Bridge) Endpoints() []*core.Endpoint { return slices.Clone(b.endpoints) }

// Provision creates the queues from which the bridge receives, and their error queues,
// regardless of core.Config.Provision. It creates no queue or topic to which the bridge
// sends.
func (b *Bridge) Provision(ctx context.Context) error {
	var errs []error
	for _, ep := range b.endpoints {
		errs = append(errs, ep.Provision(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	return nil
}

// Run carries messages until ctx ends, as core.RunAll runs endpoints. The first Run
// subscribes to the topics; events published before it do not reach the other side.
func (b *Bridge) Run(ctx context.Context) error { return core.RunAll(ctx, b.endpoints...) }

// direction is one of the two directions of a bridge.
type direction struct {
	bridge    string
	to        core.Transport
	caps      core.Capabilities // of to
	addresses addresses
	reached   *destinations
	config    *Config
	log       *slog.Logger
}

// newDirection returns the endpoints that receive on one side and send to the other. source
// and target are the names of the sides.
func newDirection(p *problems, name, source, target string, c *Config, from, to *Side) []*core.Endpoint {
	log := cmp.Or(c.Endpoint.Logger, slog.Default()).With("logger", "reprise.Bridge", "bridge", name, "to", target)
	d := &direction{
		bridge: name, to: to.Transport, caps: to.Transport.Capabilities(), config: c, log: log,
		reached: newDestinations(log, c.GiveUpAfter),
	}
	var err error
	if d.addresses, err = newAddresses(from, to); err != nil {
		if source == "Near" { // the error is the same in both directions
			p.add("%w", err)
		}
	}
	d.checkTopics(p, source, target, from)
	var endpoints []*core.Endpoint
	add := func(ep *core.Endpoint, err error) {
		if err != nil {
			p.add("%s: %w", source, err)
		}
		endpoints = append(endpoints, ep)
	}
	if len(from.Topics) > 0 {
		add(d.topicsEndpoint(from))
	}
	for _, queue := range to.Queues {
		add(d.queueEndpoint(from, queue))
	}
	return endpoints
}

// checkTopics adds an error for each topic that the other side cannot have.
func (d *direction) checkTopics(p *problems, source, target string, from *Side) {
	if len(from.Topics) > 0 && !d.caps.PublishSubscribe {
		p.add("%s.Topics are listed, but the transport of %s has no events (Capabilities.PublishSubscribe): %w", source, target, errors.ErrUnsupported)
	}
	checker, ok := d.to.(core.Subscriber)
	if !ok {
		return
	}
	for _, topic := range from.Topics {
		if err := checker.CheckTopic(topic); err != nil {
			p.add("the topic %q of %s is not possible on the transport of %s: %w", topic, source, target, err)
		}
	}
}

// topicsEndpoint returns the endpoint that receives the events of a side.
func (d *direction) topicsEndpoint(from *Side) (*core.Endpoint, error) {
	config := d.config.Endpoint
	config.InputQueue = d.bridge
	config.Recoverability.Unrecoverable = append(slices.Clone(config.Recoverability.Unrecoverable), core.ErrNoHandler)
	ep, err := d.endpoint(d.bridge, from, config)
	if err != nil {
		return nil, err
	}
	for _, topic := range from.Topics {
		r := &route{direction: d, topic: topic, shared: len(from.Topics) > 1}
		core.HandleEvent(ep, core.NewEvent[[]byte](topic), func(ctx context.Context, m *core.Message, _ []byte) error { return r.handle(ctx, m) }, r.options())
	}
	return ep, ep.Err()
}

// queueEndpoint returns the endpoint that receives the messages for a queue of the other
// side.
func (d *direction) queueEndpoint(from *Side, queue string) (*core.Endpoint, error) {
	config := d.config.Endpoint
	config.InputQueue = queue
	config.MessageType = typeOfUntyped
	ep, err := d.endpoint(d.bridge+"/"+queue, from, config)
	if err != nil {
		return nil, err
	}
	r := &route{direction: d, queue: queue}
	core.HandleDefault(ep, r.handle, r.options())
	return ep, ep.Err()
}

func (d *direction) endpoint(name string, from *Side, config core.Config) (*core.Endpoint, error) {
	if config.Transactions == core.TransactionDefault && from.Transport.Capabilities().Supports(core.TransactionReceiveOnly) {
		config.Transactions = core.TransactionReceiveOnly
	}
	return core.New(name, from.Transport, config)
}

// untyped is the message type under which the bridge handles messages without one.
// Otherwise the engine would consume control messages without a type.
const untyped = "(untyped)"

// typeOfUntyped is the core.Config.MessageType of queues.
func typeOfUntyped(in *core.Incoming) string {
	if in.Headers.Get(headers.MessageTypes) == "" {
		return untyped
	}
	return ""
}
