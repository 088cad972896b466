package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// facts is the declaration of a queue, as far as it could be found out.
type facts struct {
	told error // nil, or why all fields below are unknown; see known

	kind                           string // quorum, classic, stream; "" is a type that could not be read
	durable, autoDelete, exclusive bool
	expiry                         time.Duration // the argument x-expires; 0: none
	limit                          *int          // the argument x-delivery-limit; nil: none
	unread                         error         // nil, or why the value of the existing argument x-delivery-limit is unknown

	managed  bool // the facts are from the management API, and include policies
	policies []*policy
}

// examine verifies that a queue exists and that receiving from it loses no returned
// messages: it has the type in Config, and the broker allows more than maxDeliveries
// deliveries of a message. A maxDeliveries of 0 means no limit; anyLimit means that it is
// unknown.
func (t *Transport) examine(ctx context.Context, queue string, maxDeliveries int) error {
	return within(ctx, func(ctx context.Context) error { return t.tryToExamine(ctx, queue, maxDeliveries) })
}

func (t *Transport) tryToExamine(ctx context.Context, queue string, maxDeliveries int) error {
	conn, err := t.asking.get(ctx)
	if err != nil {
		return err
	}
	if err := t.find(ctx, queue); err != nil {
		return err
	}
	f, err := t.facts(ctx, conn.Config.Vhost, queue)
	if err != nil {
		return err
	}
	if err := f.mismatch(queue, t.cfg.QueueType); err != nil {
		return err
	}
	if t.cfg.QueueType != Quorum {
		return nil
	}
	b, _ := brokerOf(conn)
	l := &limited{
		queue: queue, vhost: conn.Config.Vhost, broker: b, argument: f.limit, policies: f.policies,
		wanted: max(defaultDeliveryLimit, maxDeliveries+1),
	}
	if t.cfg.Topology == NServiceBus && f.managed {
		if _, err := l.checkAsNServiceBus(); err != nil {
			return err
		}
	}
	switch {
	case f.managed || f.limit != nil:
		return l.verdict(maxDeliveries)
	case (b.limits() || f.unread != nil) && !t.cfg.UnverifiedDeliveryLimit:
		return l.unverified(errors.Join(f.told, f.unread))
	}
	return nil
}

// facts asks the management API if it is configured. Without it, and after an error of it
// with UnverifiedDeliveryLimit, facts probes with AMQP.
func (t *Transport) facts(ctx context.Context, vhost, queue string) (*facts, error) {
	if t.cfg.ManagementURL != "" {
		f, err := t.managed(ctx, vhost, queue)
		if err == nil || !t.cfg.UnverifiedDeliveryLimit {
			return f, err
		}
	}
	return t.probe(ctx, vhost, queue)
}

// find returns an error if a queue does not exist.
func (t *Transport) find(ctx context.Context, queue string) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	return locked(queue, err)
}

// locked adds the remedy to the error for a queue that is exclusive to another connection.
func locked(queue string, err error) error {
	if said, ok := errors.AsType[*amqp.Error](err); ok && said.Code == amqp.ResourceLocked {
		return transport.Permanent(fmt.Errorf("the queue %q is exclusive, and ends with the connection that declared it: delete it, so that Provision makes it anew: %w", queue, err))
	}
	return err
}

// Names of arguments of queues.
const (
	typeArgument   = "x-queue-type"
	expiryArgument = "x-expires"

	// bait is an argument that only streams have. The broker ignores it when it compares a
	// declaration of another type of queue, but never creates a queue with it.
	bait = "x-max-age"
)

// declaration returns the arguments of queues that the transport creates. NServiceBus has
// no instance queues, so these are declared our way.
func (t *Transport) declaration(instance bool) amqp.Table {
	asNServiceBus := t.cfg.Topology == NServiceBus && !instance
	arguments := amqp.Table{}
	if t.cfg.QueueType == Quorum || !asNServiceBus {
		arguments[typeArgument] = t.cfg.QueueType.argument()
	}
	if t.cfg.QueueType == Quorum && !asNServiceBus {
		arguments[limitArgument] = int64(t.cfg.DeliveryLimit)
	}
	return arguments
}

// probe finds out how an existing queue was declared. AMQP cannot be asked, but the broker
// compares: it refuses a declaration that differs, and names one argument and its value.
// With that value the next declaration comes closer. The queue stays unchanged, and no
// queue is created.
func (t *Transport) probe(ctx context.Context, vhost, queue string) (*facts, error) {
	guess := guess{durable: true, arguments: t.declaration(false), asText: map[string]bool{}}
	guess.arguments[bait] = "1D"
	for range 64 { // more than there are arguments
		err := t.admin(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(queue, guess.durable, guess.autoDelete, false, false, guess.arguments)
			return err
		})
		switch faultOf(err) {
		case faultMismatch:
		case faultRefused:
			return &facts{told: err}, nil
		default:
			if err != nil {
				return nil, locked(queue, err)
			}
			return guess.facts(), nil
		}
		d, ok := readDifference(err, "queue", queue, vhost)
		switch {
		case !ok && strings.Contains(err.Error(), "'"+bait+"'"): // the declaration would have created it
			return nil, fmt.Errorf("%w: %q; somebody has just deleted it", core.ErrQueueNotFound, queue)
		case !ok:
			return &facts{told: err}, nil
		case d.name == typeArgument:
			f := guess.facts()
			f.kind, f.limit = d.kind(), nil
			return f, nil
		case guess.adopt(d):
		case d.name == limitArgument:
			f := guess.facts()
			f.unread = err
			return f, nil
		default:
			return &facts{told: err}, nil
		}
	}
	return &facts{told: errors.New("its arguments could not be found out")}, nil
}

// guess is an assumed declaration of a queue.
type guess struct {
	durable, autoDelete bool
	arguments           amqp.Table
	asText              map[string]bool // arguments that are certainly text
}

// adopt takes a value of the queue into the guess. It reports whether the value could be
// read.
func (g *guess) adopt(d difference) bool {
	switch {
	case d.name == "durable":
		g.durable = !g.durable
		return true
	case d.name == "auto_delete":
		g.autoDelete = !g.autoDelete
		return true
	case d.name == bait, d.current == "none", d.name == limitArgument && !d.readable:
		_, had := g.arguments[d.name]
		delete(g.arguments, d.name)
		return had
	case !d.readable:
		return false
	}
	// The broker names the type only if one side lacks the argument.
	value, text := d.value, d.text || g.asText[d.name]
	_, had := g.arguments[d.name]
	switch n, err := strconv.ParseInt(value, 10, 64); {
	case text && had && g.arguments[d.name] == value:
		return false // and it still differs
	case text:
		g.arguments[d.name] = value
	case err == nil:
		g.arguments[d.name] = n
	case value == "true" || value == "false":
		g.arguments[d.name] = value == "true"
	default:
		g.arguments[d.name] = value
	}
	g.asText[d.name] = true // if a number or bool was wrong
	return true
}

// facts returns the facts of a queue that equals the guess.
func (g *guess) facts() *facts {
	f := &facts{durable: g.durable, autoDelete: g.autoDelete, kind: Classic.argument()}
	if kind, ok := g.arguments[typeArgument].(string); ok {
		f.kind = kind
	}
	if n, ok := g.arguments[limitArgument].(int64); ok {
		limit := int(n)
		f.limit = &limit
	}
	if n, ok := g.arguments[expiryArgument].(int64); ok {
		f.expiry = time.Duration(n) * time.Millisecond
	}
	return f
}

// difference is the broker's description of how a declaration differs from the existing
// queue or exchange: "inequivalent arg 'x-message-ttl' for queue 'billing' in vhost '/':
// received none but current is the value '60000' of type 'signedint'".
type difference struct {
	name     string
	readable bool   // the text, which has at most 255 bytes, includes the current value
	current  string // as in the broker's text
	value    string // without the text around it
	text     bool   // it is certainly text
}

// readDifference reads a difference from err. The names may contain quotation marks.
func readDifference(err error, what, name, vhost string) (difference, bool) {
	said, ok := errors.AsType[*amqp.Error](err)
	if !ok || said.Code != amqp.PreconditionFailed {
		return difference{}, false
	}
	_, text, ok := strings.Cut(said.Reason, "inequivalent arg '")
	if !ok {
		return difference{}, false
	}
	var d difference
	d.name, text, ok = strings.Cut(text, "' for "+what+" '")
	if !ok {
		return difference{}, false
	}
	text, ok = strings.CutPrefix(text, name+"' in vhost '"+vhost+"': received ")
	if !ok || strings.HasSuffix(text, "...") {
		return d, true
	}
	_, d.current, d.readable = strings.Cut(text, " but current is ")
	if value, ok := strings.CutPrefix(d.current, "the value '"); ok {
		if at := strings.LastIndex(value, "' of type '"); at >= 0 {
			d.value, d.text = value[:at], strings.HasSuffix(value[at:], "str'")
			return d, true
		}
	}
	d.value = strings.TrimSuffix(strings.TrimPrefix(d.current, "'"), "'")
	return d, true
}

// kind returns the type of the queue, if the difference is the type. A queue without the
// argument is a classic queue.
func (d difference) kind() string {
	switch {
	case !d.readable:
		return ""
	case d.current == "none":
		return Classic.argument()
	}
	return d.value
}

func (f *facts) known() bool { return f.told == nil }

// mismatch returns an error with all differences between the queue and Config.
func (f *facts) mismatch(queue string, want QueueType) error {
	if !f.known() {
		return nil
	}
	var errs []error
	differs := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("the queue %q "+format, append([]any{queue}, args...)...))
	}
	const anew = "delete it, so that Provision makes it anew"
	switch f.kind {
	case want.argument():
	case "":
		differs("is of another type than %s, which Config.QueueType says: %s, or set Config.QueueType", want.argument(), anew)
	default:
		also := ""
		for other := Quorum; other <= Classic; other++ {
			if other.argument() == f.kind {
				also = fmt.Sprintf(", or set Config.QueueType to %v", other)
			}
		}
		differs("is of type %s, but Config.QueueType says %s: %s%s", f.kind, want.argument(), anew, also)
	}
	if !f.durable {
		differs("is not durable (durable is false, but must be true), and ends with the broker: %s", anew)
	}
	if f.autoDelete {
		differs("is deleted with its last consumer (auto_delete is true, but must be false): %s", anew)
	}
	if f.exclusive {
		differs("is exclusive (exclusive is true, but must be false), and ends with a connection: %s", anew)
	}
	if len(errs) == 0 {
		return nil
	}
	return transport.Permanent(errors.Join(errs...))
}
