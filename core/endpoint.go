package core

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/ids"
	"github.com/reprise-go/reprise/core/internal/unreachable"
)

// Endpoint is one logical receiver: a name, which is also that of its input queue, a
// transport, handlers, and rules for failures. Several endpoints may share a transport. All
// methods are safe for concurrent use.
type Endpoint struct {
	name      string
	instance  string
	transport Transport
	caps      Capabilities
	config    Config
	mode      TransactionMode
	resolved  *resolvedConfig
	rules     *rules // those of resolved

	address      string // of the input queue; "" if send-only
	auditAddress string // "" without audit

	host      hostInfo
	log       *loggers
	observers *observers
	observed  ObservedEndpoint
	criticals criticalErrors

	registry *registry
	deps     *messageDeps
	invoker  *invoker
	sender   *sender

	// Memory of messages and queues, which survives Run because they do.
	unfinished  *unfinished
	suspects    *suspects
	rounds      *groupRounds
	unreachable *unreachable.Queues

	mu          sync.Mutex
	current     *runner // of the Run in progress
	concurrency int
	paused      bool
	ready       chan struct{} // closed while running
	runErr      error         // of the last Run
}

// New makes an endpoint. It checks the whole configuration against the transport's
// capabilities without contacting the broker; its error lists all problems at once.
func New(name string, t Transport, c Config) (*Endpoint, error) {
	fail := func(err error) (*Endpoint, error) {
		return nil, fmt.Errorf("core: new endpoint %q on %T: %w", name, t, err)
	}
	if t == nil || isNilPointer(t) {
		return fail(errors.New("the transport is nil; pass one such as inmemory.Open()"))
	}
	caps := t.Capabilities()
	r, err := resolve(c, caps)
	var errs validationErrors
	errs.addErr(err)
	if name == "" || !utf8.ValidString(name) {
		errs.add("the name %q is empty or not UTF-8; it names the endpoint and, without InputQueue, its input queue", name)
	}
	r.checkTransport(&errs, t)
	r.resolveQueues(&errs, name, t)
	r.resolveGroups(t)
	ep := &Endpoint{
		name: name, transport: t, caps: caps, config: r.config, mode: r.mode,
		address: r.rules.ownAddress, auditAddress: r.auditAddress,
		rules: &r.rules, resolved: r, observers: r.observers,
		unfinished: newUnfinished(), unreachable: unreachable.New(), concurrency: r.config.Concurrency, ready: make(chan struct{}),
	}
	if err := errors.Join(errs.errs...); err != nil {
		return fail(err)
	}

	machine, err := os.Hostname()
	if err != nil {
		machine = "unknown"
	}
	ep.suspects = newSuspects(r.isolation, r.maxDeliveries, ep.unfinished)
	ep.instance = c.Instance
	if ep.instance == "" {
		ep.instance = fmt.Sprintf("%s-%d-%s", machine, os.Getpid(), ids.New()[24:])
	}
	ep.host = hostInfo{endpoint: name, instance: ep.instance, machine: machine, hostID: ids.Derived(machine, name, 0)}
	ep.observed = ObservedEndpoint{Endpoint: name, Instance: ep.instance, Queue: ep.address, Transport: describeTransport(t)}
	ep.log = newLoggers(c.Logger, name, ep.instance)
	ep.observers.onPanic, ep.criticals.log = ep.log.observerPanicked, ep.log.endpoint
	composer := &composer{endpoint: name, machine: machine, replyTo: ep.address, codec: r.codec, caps: caps, address: t.Address, baseTypes: r.original.BaseTypes}
	if s, ok := t.(Subscriber); ok {
		composer.topic = s.CheckTopic
	}
	if composer.sendChain, err = composer.wrapSends(c.SendMiddleware); err != nil {
		return fail(err)
	}
	ep.sender = &sender{transport: t, composer: composer, observers: ep.observers, endpoint: ep.observed, log: ep.log.endpoint}
	ep.sender.unsubscribed.log, ep.sender.unsubscribed.observers = ep.log.endpoint, ep.observers
	if c.SendOnly && len(r.observers.connection) > 0 {
		ep.sender.health.notify = ep.sender.notifyConnectionChange
	}
	ep.registry = &registry{sendOnly: c.SendOnly, checkTopic: composer.checkTopic, scope: MiddlewareScope{
		Endpoint: name, Transactions: r.mode, Capabilities: caps, HasPolicy: r.rules.policy != nil,
		RetrySpan: r.rules.retrySpan(), recoverability: ep.RecoverabilityConfig, logger: ep.log.endpoint,
	}}
	ep.deps = &messageDeps{
		composer: composer, registry: ep.registry, rules: ep.rules, send: ep.sender.send, log: ep.log.endpoint,
		atomic: ep.mode.isAtomic(),
	}
	ep.invoker = &invoker{deps: ep.deps, messageType: r.config.MessageType, observers: ep.observers, endpoint: ep.observed}
	if ep.invoker.chain, ep.registry.surrounding, err = applyMiddleware(dispatch, "Middleware", c.Middleware, ep.registry.scope, nil, ""); err != nil {
		return fail(err)
	}
	if len(c.Middleware) > 0 {
		ep.invoker.scope = middlewareSends(0)
	}
	ep.rounds = newGroupRounds(ep.rules, ep.invoker.typeOf)
	ep.logWarnings()
	return ep, nil
}

// logWarnings logs the warnings of the transport.
func (ep *Endpoint) logWarnings() {
	for _, text := range describerOf(ep.transport).Warnings() {
		ep.logWarning(text)
	}
}

func (ep *Endpoint) logWarning(text string) {
	ep.log.endpoint.Warn("the transport should be configured differently", "reason", text)
}

// isNilPointer reports whether v is an interface that holds a nil pointer, and so is not
// nil itself.
func isNilPointer(v any) bool {
	value := reflect.ValueOf(v)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

// String identifies the endpoint, for logs.
func (ep *Endpoint) String() string {
	if ep == nil {
		return "<nil>"
	}
	return fmt.Sprintf("endpoint %q (%s)", ep.name, ep.instance)
}

// GoString returns the result of [Endpoint.String].
func (ep *Endpoint) GoString() string { return ep.String() }

// Name returns the endpoint's name.
func (ep *Endpoint) Name() string { return ep.name }

// Config returns the configuration in force: the one that [New] got, with the defaults for
// this transport filled in. New accepts it again, with the same effect.
func (ep *Endpoint) Config() Config { return ep.resolved.effective() }

// MessageTypes returns the message types that have handlers, in order. [HandleDefault] adds
// none.
func (ep *Endpoint) MessageTypes() []string {
	types := ep.registry.types()
	slices.Sort(types)
	return slices.DeleteFunc(types, func(t string) bool { return t == anyType })
}

// RecoverabilityConfig returns the settings in force for a message type, as a [Policy] gets
// them: for tests of policies.
func (ep *Endpoint) RecoverabilityConfig(messageType string) RecoverabilityConfig {
	return ep.rules.configFor(messageType).copyLists()
}

// Send sends a message to a queue, at any time. It returns nil when the broker has accepted
// it durably. In a handler use [Message.Send], which sends only if the handler succeeds, or
// [Message.SendNow]; [MessageFromContext] finds the [Message]. With a handler's context
// Send sends at once, or with the transaction that the context carries, and at each attempt
// with another id. The first such call logs a warning.
func (ep *Endpoint) Send(ctx context.Context, queue string, d Draft) error {
	return ep.sender.composeAndSend(ctx, headers.IntentSend, queue, &d)
}

// Publish publishes an event to all its subscribers, with the guarantees of
// [Endpoint.Send]. An event without subscribers is no error, unless its draft has
// [SendOptions.RequireSubscriber]. A subscriber whose queue cannot be reached is no error either: the
// others get the event, and it is logged, counted ([health.Sends]) and reported to
// [Observer.MessageUndeliverable].
func (ep *Endpoint) Publish(ctx context.Context, e EventDraft) error {
	return ep.sender.composeAndSend(ctx, headers.IntentPublish, "", &e.draft)
}

// Invoke runs middleware and handlers for a message in this process, without a queue: no
// retries, no error queue; the handlers' error is returned. The messages that the handlers
// collect are sent if they succeed, committed messages (messagekit.Commit) in any case.
// Observers see the attempt and its sends. No handlers may be registered afterwards.
func (ep *Endpoint) Invoke(ctx context.Context, d Draft) error {
	if err := ep.registry.seal(); err != nil {
		return err
	}
	out, err := ep.sender.composer.compose(headers.IntentSend, ep.name, &d, causation{}, ids.New)
	if err != nil {
		return fmt.Errorf("core: endpoint %q: invoke %q: %w", ep.name, d.messageType, err)
	}
	out.Headers.Del(headers.ReplyToAddress)
	in := &Incoming{ID: out.ID, NativeID: out.ID, Headers: out.Headers, Body: out.Body, DeliveryCount: 1}
	a := &attempt{Context: ctx}
	ep.invoker.begin(a, in, d.messageType)
	a.message.sends.scope = ep.invoker.scope
	err = ep.invoker.invoke(a)
	toSend := a.message.sends.end()
	if err != nil {
		toSend = a.message.sends.committedSends().withCommitted(nil)
	}
	if len(toSend) > 0 {
		if a.observedCtx != nil {
			ctx = a.observedCtx
		}
		if failed := ep.sender.send(ctx, toSend...); failed != nil {
			return errors.Join(err, failed)
		}
	}
	a.message.sends.committedSends().notifySent(ep.observers.onPanic)
	return err
}

// Provision creates the queues that the endpoint needs, regardless of [Config.Provision],
// and subscribes to the events that have handlers by now: for a deployment step. It waits up to
// two minutes for a broker that applies the subscriptions late. If
// [Endpoint.Err] returns an error, Provision returns it and creates nothing.
func (ep *Endpoint) Provision(ctx context.Context) error {
	if err := ep.Err(); err != nil {
		return err
	}
	p, ok := ep.transport.(Provisioner)
	if !ok {
		return fmt.Errorf("core: provision endpoint %q: the transport cannot create queues; create %v yourself: %w",
			ep.name, ep.resolved.topology().Queues, errors.ErrUnsupported)
	}
	err := p.Provision(ctx, ep.resolved.topology())
	if err == nil {
		err = ep.subscribeWithRetry(ctx)
	}
	if err != nil {
		return fmt.Errorf("core: provision endpoint %q: %w", ep.name, err)
	}
	return nil
}

// subscribeTimeout is how long Provision waits for its subscriptions.
const subscribeTimeout = 2 * time.Minute

// subscribeWithRetry retries to subscribe while the broker is unavailable.
func (ep *Endpoint) subscribeWithRetry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	for tries := 1; ; tries++ {
		err := ep.subscribe(ctx)
		if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		pause := connectBackoff.After(tries)
		ep.log.endpoint.Warn("endpoint waits to subscribe", "error", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Purge permanently removes the waiting messages from the input queue, also those for other
// instances and failed ones that wait for their error queue, and returns their number, or
// -1 if the broker does not tell it: for development and tests, before [Endpoint.Run]. On a
// transport that is no [Remover] the error matches errors.ErrUnsupported.
func (ep *Endpoint) Purge(ctx context.Context) (removed int, err error) {
	p, ok := ep.transport.(Remover)
	switch {
	case ep.config.SendOnly:
		err = errors.New("it is send-only, so it has no input queue")
	case !ok:
		err = fmt.Errorf("the transport cannot empty queues (it is no core.Remover); empty %q yourself: %w", ep.address, errors.ErrUnsupported)
	default:
		removed, err = p.Purge(ctx, ep.resolved.inputQueue)
	}
	if err != nil && !errors.Is(err, ErrQueueNotFound) {
		return 0, fmt.Errorf("core: purge endpoint %q: %w", ep.name, err)
	}
	return removed, nil
}

// subscribe subscribes to the events that the endpoint handles.
func (ep *Endpoint) subscribe(ctx context.Context) error {
	topics := ep.registry.topics()
	if len(topics) == 0 {
		return nil
	}
	s, ok := ep.transport.(Subscriber)
	if !ok || !ep.caps.PublishSubscribe {
		return fmt.Errorf("subscribe to %v: the transport has no PublishSubscribe: %w", topics, errors.ErrUnsupported)
	}
	if err := s.Subscribe(ctx, ep.resolved.inputQueue, topics...); err != nil {
		return fmt.Errorf("subscribe to %v: %w", topics, err)
	}
	return nil
}
