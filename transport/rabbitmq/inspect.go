package rabbitmq

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/deliverylimit"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/management"
)

// queueInfo is the declaration of a queue, as far as it could be found out.
type queueInfo struct {
	unknownErr error // nil, or why all fields below are unknown; see isKnown

	kind                           string // quorum, classic, stream; "" is a type that could not be read
	durable, autoDelete, exclusive bool
	expiry                         time.Duration // the argument x-expires; 0: none
	singleActive                   bool          // the argument x-single-active-consumer
	limit                          *int          // the argument x-delivery-limit; nil: none
	limitErr                       error         // nil, or why the value of the existing argument x-delivery-limit is unknown

	fromManagement bool // the information is from the management API, and includes policies
	policies       []*deliverylimit.Policy
}

// examine verifies that a queue exists and that receiving from it loses no returned
// messages: it has the type in Config, and the broker allows more than maxDeliveries
// deliveries of a message. A maxDeliveries of 0 means no limit; deliverylimit.AnyLimit
// means that it is unknown.
func (t *Transport) examine(ctx context.Context, queue string, maxDeliveries int) error {
	return withTimeout(ctx, func(ctx context.Context) error { return t.tryToExamine(ctx, queue, maxDeliveries) })
}

func (t *Transport) tryToExamine(ctx context.Context, queue string, maxDeliveries int) error {
	conn, err := t.adminConn.get(ctx)
	if err != nil {
		return err
	}
	if err := t.checkQueueExists(ctx, queue); err != nil {
		return err
	}
	info, err := t.inspectQueue(ctx, conn.Config.Vhost, queue)
	if err != nil {
		return err
	}
	if err := info.mismatch(queue, t.cfg.QueueType); err != nil {
		return err
	}
	if t.cfg.QueueType != Quorum {
		return nil
	}
	v, _ := brokerVersion(conn)
	c := &deliverylimit.Queue{
		Name: queue, VHost: conn.Config.Vhost, Broker: v, Argument: info.limit, Policies: info.policies,
		Wanted: max(deliverylimit.Default, maxDeliveries+1),
	}
	if t.cfg.Topology == NServiceBus && info.fromManagement {
		if _, err := c.CheckAsNServiceBus(); err != nil {
			return err
		}
	}
	switch {
	case info.fromManagement || info.limit != nil:
		return c.Check(maxDeliveries)
	case (v.HasDefaultLimit() || info.limitErr != nil) && !t.cfg.UnverifiedDeliveryLimit:
		return c.Unverified(errors.Join(info.unknownErr, info.limitErr))
	}
	return nil
}

// inspectQueue asks the management API if it is configured. Without it, and after an error
// of it with UnverifiedDeliveryLimit, inspectQueue probes with AMQP.
func (t *Transport) inspectQueue(ctx context.Context, vhost, queue string) (*queueInfo, error) {
	if t.cfg.ManagementURL != "" {
		info, err := t.queryManagement(ctx, vhost, queue)
		if err == nil || !t.cfg.UnverifiedDeliveryLimit {
			return info, err
		}
	}
	return t.probe(ctx, vhost, queue)
}

// queryManagement asks the management API how a queue was declared and which policies apply
// to it. The answer is up to date. The statistics, which include the policy in force, can
// be ten seconds old and are not used.
func (t *Transport) queryManagement(ctx context.Context, vhost, queue string) (*queueInfo, error) {
	m, err := t.managementClient()
	if err != nil {
		return nil, err
	}
	q, err := m.Queue(ctx, vhost, queue)
	if err != nil {
		return nil, err
	}
	info := &queueInfo{fromManagement: true, kind: q.Type, durable: q.Durable, autoDelete: q.AutoDelete, exclusive: q.Exclusive}
	if text, ok := q.Arguments[deliverylimit.Argument]; ok {
		var n int
		if err := json.Unmarshal(text, &n); err != nil {
			return nil, transport.Permanent(fmt.Errorf("the queue %q has the argument %s %s, which is no number", queue, deliverylimit.Argument, text))
		}
		info.limit = &n
	}
	if q.Type != Quorum.argument() {
		return info, nil
	}
	if q.Policy != "" {
		list, err := m.Policies(ctx, vhost)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if p.Name == q.Policy {
				info.policies = append(info.policies, p)
			}
		}
	}
	list, err := m.OperatorPolicies(ctx, vhost)
	if err != nil {
		return nil, err
	}
	if p := deliverylimit.OperatorPolicy(list, queue); p != nil {
		info.policies = append(info.policies, p)
	}
	return info, nil
}

// managementClient returns a client of the management API for a few requests.
func (t *Transport) managementClient() (*management.Client, error) {
	u, err := readManagementURL(t.cfg.ManagementURL)
	if err != nil {
		return nil, transport.Permanent(err)
	}
	return management.NewClient(u, "Config.ManagementURL", t.managementTLS(t.hosts[0])), nil
}

// managementTLS returns the settings of TLS to the management API.
func (t *Transport) managementTLS(host *brokerHost) *tls.Config {
	secure := t.cfg.TLS.Clone()
	if secure == nil && host.tls != nil { // the URL's options apply to both, except the name in the certificate
		secure = host.tls.Clone()
		secure.ServerName = ""
	}
	return secure
}

// Names of arguments of queues.
const (
	typeArgument         = "x-queue-type"
	expiryArgument       = "x-expires"
	singleActiveArgument = "x-single-active-consumer"

	// probeArgument is an argument that only streams have. The broker ignores it when it
	// compares a declaration of another type of queue, but never creates a queue with it.
	probeArgument = "x-max-age"
)

// queueArguments returns the arguments of queues that the transport creates. NServiceBus
// has no queues that expire, so these are declared our way.
func (t *Transport) queueArguments(expires bool) amqp.Table {
	asNServiceBus := t.cfg.Topology == NServiceBus && !expires
	arguments := amqp.Table{}
	if t.cfg.QueueType == Quorum || !asNServiceBus {
		arguments[typeArgument] = t.cfg.QueueType.argument()
	}
	if t.cfg.QueueType == Quorum && !asNServiceBus {
		arguments[deliverylimit.Argument] = int64(t.cfg.DeliveryLimit)
	}
	return arguments
}

// probe finds out how an existing queue was declared. AMQP cannot be asked, but the broker
// compares: it refuses a declaration that differs, and names one argument and its value.
// With that value the next declaration comes closer. The queue stays unchanged, and no
// queue is created.
func (t *Transport) probe(ctx context.Context, vhost, queue string) (*queueInfo, error) {
	candidate := candidate{durable: true, arguments: t.queueArguments(false), asText: map[string]bool{}}
	candidate.arguments[probeArgument] = "1D"
	for range 64 { // more than there are arguments
		err := t.admin(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(queue, candidate.durable, candidate.autoDelete, false, false, candidate.arguments)
			return err
		})
		switch amqperror.KindOf(err) {
		case amqperror.Mismatch:
		case amqperror.Refused:
			return &queueInfo{unknownErr: err}, nil
		default:
			if err != nil {
				return nil, explainExclusive(queue, err)
			}
			return candidate.queueInfo(), nil
		}
		m, ok := parseMismatch(err, "queue", queue, vhost)
		switch {
		case !ok && strings.Contains(err.Error(), "'"+probeArgument+"'"): // the declaration would have created it
			return nil, fmt.Errorf("%w: %q; somebody has just deleted it", core.ErrQueueNotFound, queue)
		case !ok:
			return &queueInfo{unknownErr: err}, nil
		case m.name == typeArgument:
			info := candidate.queueInfo()
			info.kind, info.limit = m.kind(), nil
			return info, nil
		case candidate.apply(m):
		case m.name == deliverylimit.Argument:
			info := candidate.queueInfo()
			info.limitErr = err
			return info, nil
		default:
			return &queueInfo{unknownErr: err}, nil
		}
	}
	return &queueInfo{unknownErr: errors.New("its arguments could not be found out")}, nil
}

// candidate is an assumed declaration of a queue.
type candidate struct {
	durable, autoDelete bool
	arguments           amqp.Table
	asText              map[string]bool // arguments that are certainly text
}

// apply takes a value of the queue into the candidate. It reports whether the value could
// be read.
func (c *candidate) apply(m argumentMismatch) bool {
	switch {
	case m.name == "durable":
		c.durable = !c.durable
		return true
	case m.name == "auto_delete":
		c.autoDelete = !c.autoDelete
		return true
	case m.name == probeArgument, m.current == "none", m.name == deliverylimit.Argument && !m.readable:
		_, had := c.arguments[m.name]
		delete(c.arguments, m.name)
		return had
	case !m.readable:
		return false
	}
	// The broker names the type only if one side lacks the argument.
	value, text := m.value, m.text || c.asText[m.name]
	_, had := c.arguments[m.name]
	switch n, err := strconv.ParseInt(value, 10, 64); {
	case text && had && c.arguments[m.name] == value:
		return false // and it still differs
	case text:
		c.arguments[m.name] = value
	case err == nil:
		c.arguments[m.name] = n
	case value == "true" || value == "false":
		c.arguments[m.name] = value == "true"
	default:
		c.arguments[m.name] = value
	}
	c.asText[m.name] = true // if a number or bool was wrong
	return true
}

// queueInfo returns the information about a queue that equals the candidate.
func (c *candidate) queueInfo() *queueInfo {
	info := &queueInfo{durable: c.durable, autoDelete: c.autoDelete, kind: Classic.argument()}
	if kind, ok := c.arguments[typeArgument].(string); ok {
		info.kind = kind
	}
	if n, ok := c.arguments[deliverylimit.Argument].(int64); ok {
		limit := int(n)
		info.limit = &limit
	}
	info.singleActive, _ = c.arguments[singleActiveArgument].(bool)
	if n, ok := c.arguments[expiryArgument].(int64); ok {
		info.expiry = time.Duration(n) * time.Millisecond
	}
	return info
}

// argumentMismatch is the broker's description of how a declaration differs from the
// existing queue or exchange: "inequivalent arg 'x-message-ttl' for queue 'billing' in
// vhost '/': received none but current is the value '60000' of type 'signedint'".
type argumentMismatch struct {
	name     string
	readable bool   // the text, which has at most 255 bytes, includes the current value
	current  string // as in the broker's text
	value    string // without the text around it
	text     bool   // it is certainly text
}

// parseMismatch reads an argumentMismatch from err. The names may contain quotation marks.
func parseMismatch(err error, kind, name, vhost string) (argumentMismatch, bool) {
	said, ok := errors.AsType[*amqp.Error](err)
	if !ok || said.Code != amqp.PreconditionFailed {
		return argumentMismatch{}, false
	}
	_, text, ok := strings.Cut(said.Reason, "inequivalent arg '")
	if !ok {
		return argumentMismatch{}, false
	}
	var m argumentMismatch
	m.name, text, ok = strings.Cut(text, "' for "+kind+" '")
	if !ok {
		return argumentMismatch{}, false
	}
	text, ok = strings.CutPrefix(text, name+"' in vhost '"+vhost+"': received ")
	if !ok || strings.HasSuffix(text, "...") {
		return m, true
	}
	_, m.current, m.readable = strings.Cut(text, " but current is ")
	if value, ok := strings.CutPrefix(m.current, "the value '"); ok {
		if at := strings.LastIndex(value, "' of type '"); at >= 0 {
			m.value, m.text = value[:at], strings.HasSuffix(value[at:], "str'")
			return m, true
		}
	}
	m.value = strings.TrimSuffix(strings.TrimPrefix(m.current, "'"), "'")
	return m, true
}

// kind returns the type of the queue, if the difference is the type. A queue without the
// argument is a classic queue.
func (m argumentMismatch) kind() string {
	switch {
	case !m.readable:
		return ""
	case m.current == "none":
		return Classic.argument()
	}
	return m.value
}

func (info *queueInfo) isKnown() bool { return info.unknownErr == nil }

// mismatch returns an error with all differences between the queue and Config.
func (info *queueInfo) mismatch(queue string, want QueueType) error {
	if !info.isKnown() {
		return nil
	}
	var errs []error
	differs := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("the queue %q "+format, append([]any{queue}, args...)...))
	}
	const deleteIt = "delete it, so that Provision makes it anew"
	switch info.kind {
	case want.argument():
	case "":
		differs("is of another type than %s, which Config.QueueType says: %s, or set Config.QueueType", want.argument(), deleteIt)
	case "stream":
		differs("is a stream, whose messages are read by position and not consumed: an endpoint needs another queue; choose another name")
	default:
		also := ""
		for other := Quorum; other <= Classic; other++ {
			if other.argument() == info.kind {
				also = fmt.Sprintf(", or set Config.QueueType to %v", other)
			}
		}
		differs("is of type %s, but Config.QueueType says %s: %s%s", info.kind, want.argument(), deleteIt, also)
	}
	if !info.durable {
		differs("is not durable (durable is false, but must be true), and ends with the broker: %s", deleteIt)
	}
	if info.autoDelete {
		differs("is deleted with its last consumer (auto_delete is true, but must be false): %s", deleteIt)
	}
	if info.exclusive {
		differs("is exclusive (exclusive is true, but must be false), and ends with a connection: %s", deleteIt)
	}
	if len(errs) == 0 {
		return nil
	}
	return transport.Permanent(errors.Join(errs...))
}
