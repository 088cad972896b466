package asb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// Transport connects endpoints to the queues and topics of a Service Bus namespace. It implements
// core.Transport, core.Provisioner, core.Checker, core.Subscriber, core.Remover and core.Describer, and queues.Browser,
// queues.DepthReader and queues.Lister, and is safe for concurrent use.
type Transport struct {
	cfg      *Config // a pointer, which fmt does not follow: the configuration has credentials
	caps     core.Capabilities
	sending  *connection // for all sends; each receiver has its own connection
	peeking  peeking
	admin    *admin.Client
	idle     func()                 // closes idle connections of admin
	clock    transport.ServiceClock // locks and delays are by the service's clock
	codec    message.Codec
	warnings transport.Warnings
	forgery  sync.Once // the warning of it
	life     *transport.Lifecycle
}

var _ interface {
	core.Transport
	core.Provisioner
	core.Checker
	core.Subscriber
	core.Remover
	core.Describer
	queues.Browser
	queues.DepthReader
	queues.Lister
} = (*Transport)(nil)

// New returns a transport. It does not contact the service: Check does, and an endpoint
// calls it before it starts. Its error lists all mistakes in cfg.
func New(cfg Config) (*Transport, error) {
	cfg.SessionQueues = slices.Clone(cfg.SessionQueues)
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("asb: open: %w", err)
	}
	if cfg.ConnectionString == "" {
		cfg.Credential = sdkclient.PausingCredential(cfg.Credential)
	}
	t := &Transport{cfg: &cfg, caps: capabilities(&cfg), idle: func() {}, life: transport.NewLifecycle()}
	t.codec = message.Codec{Clock: &t.clock, MessageType: cfg.MessageType, MaxPostpone: cfg.MaxPostpone}
	t.sending = &connection{connect: cfg.connect, life: t.life}
	t.peeking.t = t
	if _, err := t.cfg.connect(); err != nil { // does not contact the service
		return nil, fmt.Errorf("asb: open: %w", err)
	}
	var err error
	if t.admin, err = t.connectAdmin(); err != nil {
		return nil, fmt.Errorf("asb: open: %w", err)
	}
	for _, text := range cfg.weaknesses() {
		t.warnings.Add(text)
	}
	return t, nil
}

// amqpsPort is the port of Service Bus for AMQP over TLS.
const amqpsPort = 5671

// Describe implements core.Describer.
func (t *Transport) Describe() core.TransportInfo {
	info := core.TransportInfo{System: "servicebus", ServerAddress: t.cfg.host(), ServerPort: amqpsPort}
	if host, port, err := net.SplitHostPort(info.ServerAddress); err == nil {
		info.ServerAddress = host
		if n, err := strconv.Atoi(port); err == nil {
			info.ServerPort = n
		}
	}
	return info
}

func (t *Transport) connectAdmin() (*admin.Client, error) {
	options := t.cfg.Admin
	if options.Transport == nil {
		// The SDK's client is shared by the whole process, and keeps connections.
		own := http.DefaultTransport.(*http.Transport).Clone()
		options.Transport, t.idle = &http.Client{Transport: own}, own.CloseIdleConnections
	}
	if u := t.cfg.adminURL(); u != nil {
		options.Transport = redirected{u, options.Transport}
	}
	if t.cfg.ConnectionString != "" {
		client, err := admin.NewClientFromConnectionString(t.cfg.ConnectionString, &options)
		if err != nil {
			return nil, errors.New("the SDK does not take Config.ConnectionString; copy it again from the portal")
		}
		return client, nil
	}
	return admin.NewClient(t.cfg.Namespace, t.cfg.Credential, &options)
}

// redirected sends requests to another server than the namespace's.
type redirected struct {
	to      *url.URL
	through policy.Transporter
}

// Do implements policy.Transporter.
func (r redirected) Do(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = r.to.Scheme, r.to.Host
	return r.through.Do(req)
}

// KeepsGroups implements core.Describer. It returns true for the queues of
// Config.SessionQueues.
func (t *Transport) KeepsGroups(queue string) bool {
	address, err := t.cfg.names().QueueAddress(queue)
	return err == nil && t.cfg.names().KeepsGroups(address)
}

// CheckTopic implements core.Subscriber.
func (t *Transport) CheckTopic(topic string) error {
	if err := t.cfg.names().CheckTopic(topic); err != nil {
		return fmt.Errorf("asb: %w", err)
	}
	return nil
}

// Warnings implements core.Describer: it warns of connections to other machines that are not encrypted, for example.
func (t *Transport) Warnings() []string { return t.warnings.Take() }

// Capabilities implements core.Transport.
func (t *Transport) Capabilities() core.Capabilities {
	caps := t.caps
	caps.Transactions = slices.Clone(caps.Transactions)
	return caps
}

// String returns the namespace, without secrets.
func (t *Transport) String() string { return "asb (" + t.cfg.host() + ")" }

// GoString returns the same as String.
func (t *Transport) GoString() string { return t.String() }

// Address returns the queue's address: its name in lower case, without Config.QueuePrefix. The dead-letter queue of "orders" is
// "orders/$deadletterqueue". It refuses names that are too long, or have characters that Service Bus does not allow.
func (t *Transport) Address(queue string) (string, error) {
	address, err := t.cfg.names().QueueAddress(queue)
	if err != nil {
		return "", fmt.Errorf("asb: address: %w", err)
	}
	return address, nil
}

// OpenReceiver starts to receive from a queue. While the service cannot be reached it
// waits, until ctx ends.
func (t *Transport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := t.openReceiver(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("asb: open receiver for %q: %w", cfg.Queue, t.explained(err))
	}
	return r, nil
}

func (t *Transport) openReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	if err := transport.CheckReceiver(&cfg, &t.caps); err != nil {
		return nil, err
	}
	address, err := t.cfg.names().QueueAddress(cfg.Queue)
	if err != nil {
		return nil, err
	}
	client, err := t.cfg.connect()
	if err != nil {
		return nil, err
	}
	r := newReceiver(t, client, address, cfg)
	outages := transport.Outages{ConnectionChanged: cfg.ConnectionChanged}
	err = outages.Retry(ctx, func() error { return r.examine(ctx, cfg.MaxDeliveries) }, transient,
		func(d time.Duration) error { return transport.Sleep(ctx, t.life.Context(), d, nil) })
	if err == nil {
		err = t.life.Add(r)
	}
	if err != nil {
		_ = r.disconnect(ctx) // the connection may never have been opened
		r.close()
		r.abandon()
		return nil, err
	}
	r.open()
	return r, nil
}

// Close ends all connections and goroutines of the transport, and closes open receivers.
// It is idempotent.
func (t *Transport) Close(ctx context.Context) error {
	t.life.Close(ctx, func() {
		t.peeking.close(ctx)
		t.sending.close(ctx)
	})
	t.idle()
	return nil
}
