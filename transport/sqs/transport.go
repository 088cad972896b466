package sqs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
	"github.com/reprise-go/reprise/transport/sqs/internal/sdkclient"
)

// Transport connects endpoints to the queues of an account in a region. It implements
// core.Transport, core.Provisioner, core.Checker, core.Subscriber, core.Remover and
// core.Describer, and queues.DepthReader and queues.Lister, and is safe for concurrent use.
type Transport struct {
	cfg   *Config // a pointer, which fmt does not follow: the configuration has credentials
	caps  core.Capabilities
	codec *message.Codec
	sqs   *sqs.Client
	poll  *sqs.Client // for requests for messages, which take longer
	sns   *sns.Client
	sts   *sts.Client
	idle  func() // closes idle connections

	urls       *transport.Cache[string, string]   // of queues, by address
	ungrouped  *transport.Cache[string, struct{}] // standard queues that refuse groups, by address
	unseen     *unseen
	storeProbe storeProbe
	clock      transport.ServiceClock
	identity   atomic.Pointer[identity] // nil: not known yet

	mu         sync.Mutex // guards the fields below
	senders    map[string]*batch.Batcher[*sending]
	publishers map[string]*batch.Batcher[*sending]

	life        *transport.Lifecycle
	runners     *batch.Runners
	warnings    transport.Warnings
	warnOfDelay sync.Once
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

// Open returns a transport with the defaults of Config: in the region and with the credentials that the SDK finds in
// the environment.
func Open() (*Transport, error) { return New(Config{}) }

// New returns a transport. It does not contact the service: Check does, and an endpoint
// calls it before it starts. Its error lists all mistakes in cfg.
func New(cfg Config) (*Transport, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("sqs: open: %w", err)
	}
	var shared aws.Config
	if cfg.AWS != nil {
		shared = cfg.AWS.Copy()
	} else {
		var err error
		if shared, err = config.LoadDefaultConfig(context.Background()); err != nil {
			return nil, fmt.Errorf("sqs: open: reading the SDK's configuration: %w", err)
		}
	}
	switch {
	case shared.Region == "":
		return nil, fmt.Errorf("sqs: open: there is no region; set Config.AWS, or AWS_REGION in the environment, or region in the SDK's configuration file")
	case !sdkclient.IsRegion(shared.Region):
		return nil, fmt.Errorf("sqs: open: the region must be a name such as eu-west-1; correct it in Config.AWS, in AWS_REGION or in the SDK's configuration file")
	}
	cfg.AWS = &shared
	t := &Transport{
		cfg: &cfg, caps: capabilities(&cfg), codec: newCodec(&cfg), idle: func() {},
		urls:      transport.NewCache[string, string](rememberedQueues),
		ungrouped: transport.NewCache[string, struct{}](rememberedQueues),
		senders:   map[string]*batch.Batcher[*sending]{}, publishers: map[string]*batch.Batcher[*sending]{},
		unseen: newUnseen(),
		life:   transport.NewLifecycle(),
	}
	client, ok := shared.HTTPClient.(*awshttp.BuildableClient) // usually the client of config.LoadDefaultConfig
	if shared.HTTPClient == nil {
		client, ok = awshttp.NewBuildableClient(), true
	}
	if ok {
		// The SDK's client keeps ten connections to a host, and would open and close
		// others all the time.
		tr := client.GetTransport()
		tr.MaxIdleConnsPerHost, tr.MaxIdleConns = max(tr.MaxIdleConnsPerHost, idleConnections), max(tr.MaxIdleConns, 2*idleConnections)
		shared.HTTPClient = &http.Client{
			Timeout:       client.GetTimeout(),
			Transport:     sdkclient.PlainBodies{RoundTripper: tr},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		t.idle = tr.CloseIdleConnections
	}
	t.runners = batch.NewRunners(t.life)
	poll := shared.Copy()
	poll.APIOptions = append(poll.APIOptions, sdkclient.AttemptTimeout(cfg.WaitTime+requestTimeout))
	t.poll = sqs.NewFromConfig(poll)
	shared.APIOptions = append(shared.APIOptions, sdkclient.AttemptTimeout(requestTimeout))
	t.sqs, t.sns, t.sts = sqs.NewFromConfig(shared), sns.NewFromConfig(shared), sts.NewFromConfig(shared)
	if err := t.checkEndpoints(); err != nil {
		return nil, fmt.Errorf("sqs: open: %w", err)
	}
	return t, nil
}

const (
	rememberedQueues = 10_000
	idleConnections  = 100
)

// Describe implements core.Describer. The server is the base endpoint of the SDK's
// configuration, if there is one, and otherwise the public endpoint of the region.
func (t *Transport) Describe() core.TransportInfo {
	info := core.TransportInfo{System: "aws_sqs", ServerAddress: "sqs." + t.cfg.AWS.Region + ".amazonaws.com", ServerPort: 443}
	if strings.HasPrefix(t.cfg.AWS.Region, "cn-") {
		info.ServerAddress += ".cn"
	}
	if t.cfg.AWS.BaseEndpoint == nil {
		return info
	}
	u, err := url.Parse(*t.cfg.AWS.BaseEndpoint)
	if err != nil || u.Hostname() == "" {
		return core.TransportInfo{System: info.System}
	}
	info.ServerAddress = u.Hostname()
	if port, err := strconv.Atoi(u.Port()); err == nil {
		info.ServerPort = port
	} else if u.Scheme == "http" {
		info.ServerPort = 80
	}
	return info
}

// checkEndpoints returns an error if an endpoint is no URL that the SDK may show, and adds a
// warning for each on another machine that is not encrypted. The configuration files and the
// environment can have one for each service.
func (t *Transport) checkEndpoints() error {
	warned := map[string]bool{}
	for _, base := range []*string{t.sqs.Options().BaseEndpoint, t.sns.Options().BaseEndpoint, t.sts.Options().BaseEndpoint} {
		if base == nil {
			continue
		}
		u := sdkclient.EndpointURL(*base)
		if u == nil {
			return errors.New("the endpoint must be a URL such as https://vpce.example.com, with a path or without, but without user, query and fragment, which would be in errors; " +
				"correct BaseEndpoint in Config.AWS, AWS_ENDPOINT_URL, or endpoint_url in the SDK's configuration file")
		}
		if u.Scheme != "http" || transport.IsLocalHost(u.Hostname()) || warned[u.Host] {
			continue
		}
		warned[u.Host] = true
		t.warnings.Add(fmt.Sprintf("requests to Amazon's services at %q are not encrypted: another machine in the network can read and change messages. "+
			"Begin the endpoint with https:// in Config.AWS, in AWS_ENDPOINT_URL or in the SDK's configuration file", u.Host))
	}
	return nil
}

// Warnings implements core.Describer.
func (t *Transport) Warnings() []string { return t.warnings.Take() }

// KeepsGroups implements core.Describer. It returns true for FIFO queues.
func (t *Transport) KeepsGroups(queue string) bool {
	address, err := t.cfg.queueAddress(queue)
	return err == nil && isFIFO(address)
}

// Capabilities implements core.Transport.
func (t *Transport) Capabilities() core.Capabilities {
	caps := t.caps
	caps.Transactions = slices.Clone(caps.Transactions)
	return caps
}

// String returns the region and the prefix, without secrets.
func (t *Transport) String() string {
	return fmt.Sprintf("sqs (%s, prefix %q)", t.cfg.AWS.Region, t.cfg.QueuePrefix)
}

// GoString returns the same as String.
func (t *Transport) GoString() string { return t.String() }

// Address returns the queue's address: its name without Config.QueuePrefix, and with a hyphen in place of each dot. It refuses
// names that are too long, or have other characters that SQS does not allow.
func (t *Transport) Address(queue string) (string, error) {
	address, err := t.cfg.queueAddress(queue)
	if err != nil {
		return "", fmt.Errorf("sqs: address: %w", err)
	}
	return address, nil
}

// OpenReceiver starts to receive from a queue. While the service cannot be reached it
// waits, until ctx ends.
func (t *Transport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := t.openReceiver(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("sqs: open receiver for %q: %w", cfg.Queue, t.explained(err))
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
	address, err := t.cfg.queueAddress(cfg.Queue)
	if err != nil {
		return nil, err
	}
	outages := transport.Outages{ConnectionChanged: cfg.ConnectionChanged}
	var url, delays string
	err = outages.Retry(ctx, func() error {
		url, delays, err = t.examine(ctx, address, cfg.MaxDeliveries)
		return err
	}, transient, func(d time.Duration) error { return transport.Sleep(ctx, t.life.Context(), d, nil) })
	if err != nil {
		return nil, err
	}
	r := newReceiver(t, address, url, cfg)
	if err := t.life.Add(r); err != nil {
		return nil, err
	}
	r.open(delays)
	return r, nil
}

// Close ends all connections and goroutines of the transport, and closes open receivers.
// It waits for requests for messages in progress, at most Config.WaitTime, and releases
// their messages. If ctx ends first, requests are cut off, and unsettled messages are
// redelivered when their visibility timeout ends. Close is idempotent.
func (t *Transport) Close(ctx context.Context) error {
	t.life.Close(ctx, nil)
	t.idle()
	return nil
}
