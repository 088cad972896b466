package rabbitmq

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/copylog"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/declarations"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/message"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Transport connects endpoints to the queues of a RabbitMQ broker or cluster. It implements
// core.Transport, core.Provisioner, core.Checker, core.Subscriber, core.Remover and
// core.Describer, and queues.DepthReader and queues.Lister, and is safe for concurrent use.
type Transport struct {
	cfg    *Config       // pointers, which fmt does not follow: these have passwords
	hosts  []*brokerHost // likewise
	caps   core.Capabilities
	format *message.Format

	sendConn          *connManager
	replyConn         *connManager // for direct replies: a broker can close the connection because of a forged address
	adminConn         *connManager // for everything except messages: the broker may block publishing connections
	queuePublisher    *publisher   // to the default exchange: to queues
	exchangePublisher *publisher   // to exchanges by name: topics and delays
	replyPublisher    *publisher   // to clients with direct reply-to
	tryPublisher      *publisher   // to exchanges that are not in writable
	declarations      *declarations.Cache
	writable          *transport.Cache[string, struct{}] // exchanges that have had a message
	trying            chan struct{}                      // full while a message to another exchange is tried
	blocked           blockedConns
	reconnected       broadcast
	hasConnected      atomic.Bool // a connection has been made
	sizeLimit         sizeLimit

	noSecondBinding atomic.Bool // this user has no right to bind queues so that undelivered messages are kept
	undelivered     undeliveredWatcher
	undeliveredPoll time.Duration

	managementPort, managementPortTLS int // where Config.ManagementURL is not set

	copyIDs struct { // of messages sent
		prefix string
		last   atomic.Uint64
	}

	copyLogs copylog.Logs

	life     *transport.Lifecycle
	warnings transport.Warnings

	transport.Undescribed // KeepsGroups: no queue keeps groups
}

var _ interface {
	core.Transport
	core.Provisioner
	core.Checker
	core.Subscriber
	core.Remover
	core.Describer
	queues.DepthReader
	queues.Lister
} = (*Transport)(nil)

// Open returns a transport for the broker and the virtual host in the URL, with the
// defaults of Config. It is New with only URLs set.
func Open(url string) (*Transport, error) {
	return New(Config{URLs: []string{url}})
}

// New returns a transport. It does not connect to the broker: Check does, and an endpoint
// calls it before it starts. The error names all problems of cfg, and never the password.
func New(cfg Config) (*Transport, error) {
	hosts, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: open: %w", err)
	}
	life := transport.NewLifecycle()
	t := &Transport{
		cfg:          &cfg,
		caps:         capabilities(&cfg),
		format:       message.NewFormat(message.Config{MessageType: cfg.MessageType, TopicsAreKeys: cfg.Topology == Direct}),
		declarations: declarations.New(life),
		writable:     transport.NewCache[string, struct{}](maxWritable),
		trying:       make(chan struct{}, 1),
		life:         life,

		undeliveredPoll: undeliveredPoll,
		managementPort:  managementPort, managementPortTLS: managementPortTLS,
	}
	for i := range hosts {
		t.hosts = append(t.hosts, &hosts[i])
	}
	t.format.SetUser(userOf(hosts))
	for _, text := range t.weaknesses() {
		t.warnings.Add(text)
	}
	var random [9]byte
	_, _ = rand.Read(random[:]) // it never fails
	t.copyIDs.prefix = base64.RawURLEncoding.EncodeToString(random[:])
	sends := func(conn *connection) {
		t.format.SetFrameMax(conn.Config.FrameSize)
		t.sizeLimit.forget()
		t.watchBlocked(conn)
	}
	t.sendConn = newConnManager(t, cfg.ConnectionName+": send", sends)
	t.replyConn = newConnManager(t, cfg.ConnectionName+": reply", sends)
	t.sizeLimit.connected = t.sendConn.connected
	t.adminConn = newConnManager(t, cfg.ConnectionName+": set up", nil)
	t.queuePublisher, t.exchangePublisher = newPublisher(t, t.sendConn), newPublisher(t, t.sendConn)
	t.replyPublisher, t.tryPublisher = newPublisher(t, t.replyConn), newPublisher(t, t.sendConn)
	return t, nil
}

// Describe implements core.Describer, with the first of Config.URLs.
func (t *Transport) Describe() core.TransportInfo {
	uri := &t.hosts[0].uri
	return core.TransportInfo{System: "rabbitmq", ServerAddress: uri.Host, ServerPort: uri.Port}
}

func capabilities(cfg *Config) core.Capabilities {
	caps := core.Capabilities{
		Transactions: []core.TransactionMode{core.TransactionReceiveOnly},
		Abilities: core.Abilities{
			DelayedDelivery:  true,
			PublishSubscribe: true,
			BaseTopics:       true,
			TimeToBeReceived: true,
			Prefetch:         true,
		},
		Limits: core.Limits{
			MaxDelay:          delays.Max,
			DelayPrecision:    delays.Precision,
			MaxLockTime:       cfg.ConsumerTimeout,
			MaxMessageBytes:   cfg.MaxMessageBytes,
			MaxHeaderBytes:    maxHeaderBytes,
			MaxHeaderKeyBytes: names.MaxShortString,
			MaxQueueName:      names.MaxQueue,
			MaxTopicName:      names.MaxTopic,
		},
		Guarantees: core.Guarantees{
			NativeDeliveryCount: cfg.QueueType == Quorum,
			CountsReleases:      cfg.QueueType == Quorum,
			Durable:             true,
		},
	}
	switch cfg.Topology {
	case Direct:
		caps.MaxTopicName = names.MaxShortString
	case NServiceBus:
		caps.MaxTopicName = names.MaxEvent
	}
	if cfg.NoDelays {
		caps.DelayedDelivery, caps.MaxDelay, caps.DelayPrecision = false, 0, 0
	}
	return caps
}

// maxHeaderBytes leaves room in a frame of 128 KiB for the lengths of many short headers
// and for the broker's own headers.
const maxHeaderBytes = 64 << 10

// Capabilities implements core.Transport.
func (t *Transport) Capabilities() core.Capabilities {
	caps := t.caps
	caps.Transactions = slices.Clone(caps.Transactions)
	return caps
}

// String describes the transport without secrets.
func (t *Transport) String() string {
	var hosts []string
	for _, h := range t.hosts {
		hosts = append(hosts, h.addr)
	}
	return fmt.Sprintf("rabbitmq (%s, vhost %q, %v queues)", strings.Join(hosts, ", "), t.hosts[0].uri.Vhost, t.cfg.QueueType)
}

// GoString returns the same as String.
func (t *Transport) GoString() string { return t.String() }

// Warnings implements core.Describer: it warns of connections to other machines that are not
// encrypted or do not verify the server.
func (t *Transport) Warnings() []string { return t.warnings.Take() }

// Address returns the queue's name, which is its address. The names of clients with direct
// reply-to (amq.rabbitmq.reply-to.*) and of queues that the broker named (amq.gen-*) are also
// addresses, to which messages can be sent, but not queues to receive from.
func (t *Transport) Address(queue string) (string, error) {
	name, err := names.Destination(queue)
	if err != nil {
		return "", fmt.Errorf("rabbitmq: address: %w", err)
	}
	return name, nil
}

// OpenReceiver starts to receive from a queue. While the broker cannot be reached it waits,
// until ctx ends.
func (t *Transport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := t.openReceiver(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: open receiver for %q: %w", cfg.Queue, amqperror.Explain(err))
	}
	return r, nil
}

func (t *Transport) openReceiver(ctx context.Context, cfg core.ReceiverConfig) (*receiver, error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	if err := transport.CheckReceiver(&cfg, &t.caps); err != nil {
		return nil, err
	}
	queue, err := names.Queue(cfg.Queue)
	if err != nil {
		return nil, err
	}
	outages := transport.Outages{ConnectionChanged: cfg.ConnectionChanged}
	err = t.retryOutages(ctx, &outages, func() error { return t.examine(ctx, queue, cfg.MaxDeliveries) })
	if err != nil {
		return nil, err
	}
	r := newReceiver(t, queue, cfg)
	if err := t.life.Add(r); err != nil {
		return nil, err
	}
	if err := r.open(ctx); err != nil {
		_ = r.Close(ctx)
		return nil, err
	}
	if t.caps.DelayedDelivery {
		t.undelivered.watch(t, cfg.MessageUndeliverable)
	}
	return r, nil
}

// nextCopyID returns the name of the next stored copy of a message.
func (t *Transport) nextCopyID() string {
	return t.copyIDs.prefix + "-" + strconv.FormatUint(t.copyIDs.last.Add(1), 36)
}

// Close ends every connection and goroutine of the transport, and closes receivers that are
// still open. If ctx ends first, operations in progress are cut off: unsettled messages are
// redelivered. Close is idempotent.
func (t *Transport) Close(ctx context.Context) error {
	t.life.Close(ctx, func() {
		t.sendConn.close(deadline(ctx))
		t.replyConn.close(deadline(ctx))
		t.adminConn.close(deadline(ctx))
	})
	return nil
}
