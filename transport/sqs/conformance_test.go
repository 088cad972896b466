//go:build darwin || linux

package sqs_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// Standard queues, and FIFO queues where it is about groups, in the format of NServiceBus.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	setenv(t, childURL, "http://"+s.proxy.Addr())
	h := s.harness("sqs", sqs.Config{})
	h.Separate = func(t testing.TB) conformance.Harness { return startServer(t).harness("sqs", sqs.Config{}) }
	if testing.Short() {
		h.Rules = shortRules
	}
	conformance.Run(t, h)
}

// shortRules are for short runs: those of sending, receiving, settling, provisioning, publishing and groups. The others
// are the engine's, for which the in-memory transport is enough there, or take longer: closing a receiver waits for its last
// request.
var shortRules = []string{"C2", "C3", "C5", "C8", "C9", "C18", "C19", "C24"}

const (
	accessKey = "AKIAREPRISETEST"
	secretKey = "the-secret-of-the-tests"
	// childURL is the environment variable with the URL that a child process connects to.
	childURL = "REPRISE_TEST_SQS_CHILD"
)

// shortVisibility is for the cases that wait until a lock has ended.
const (
	shortVisibility = 8 * time.Second
	longVisibility  = 10 * time.Minute
)

// openInChild opens a transport like those of the child's harness with short locks.
func openInChild() (core.Transport, error) {
	cfg := sqs.Config{VisibilityTimeout: shortVisibility}
	return sqs.New(context.Background(), configured(cfg, os.Getenv(childURL)))
}

func TestMain(m *testing.M) { conformance.Main(m, openInChild) }

// server is one that the suite kills, with a network between that it cuts.
type server struct {
	*testserver.Server
	proxy *proxy.Proxy
}

func startServer(t testing.TB) *server {
	// A receiver that closes waits for its last poll, and most cases close several.
	s := testserver.StartFor(t, testserver.Config{File: filepath.Join(t.TempDir(), "journal"), MaxWait: 200 * time.Millisecond})
	return &server{s, newProxy(t, s.Addr())}
}

func newProxy(t testing.TB, addr string) *proxy.Proxy {
	p, err := proxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// configured is a configuration that reaches a URL.
func configured(cfg sqs.Config, url string) sqs.Config {
	cfg.AWS = &aws.Config{
		Region: "us-east-1", BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
	}
	cfg.WaitTime = time.Second
	cfg.IgnoreMissingTopics = true
	return cfg
}

func opens(cfg sqs.Config) func(t testing.TB) core.Transport {
	return func(t testing.TB) core.Transport {
		transport, err := sqs.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}
}

// Kill implements conformance.Broker.
func (s *server) Kill(t testing.TB) {
	if err := s.Server.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Start implements conformance.Broker.
func (s *server) Start(t testing.TB) {
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}

// Partition implements conformance.Broker and conformance.Network.
func (s *server) Partition(testing.TB) (heal func()) {
	s.proxy.Stall()
	return s.proxy.Resume
}

// Cut implements conformance.Network.
func (s *server) Cut(t testing.TB) (restore func()) {
	if err := s.proxy.Refuse(); err != nil {
		t.Fatal(err)
	}
	s.proxy.Cut()
	return func() {
		if err := s.proxy.Accept(); err != nil {
			t.Error(err)
		}
	}
}

// line implements conformance.Line by a proxy of one transport's own.
type line struct{ *proxy.Proxy }

// SilenceBroker implements conformance.Line.
func (l line) SilenceBroker() { l.SilenceServer() }

// client is the bare SDK, past the proxy.
func (s *server) client() *awssqs.Client {
	url := s.URL()
	return awssqs.New(awssqs.Options{
		BaseEndpoint: &url, Region: "us-east-1", HTTPClient: testserver.ForSDK(&http.Transport{DisableKeepAlives: true}),
		Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
	})
}

// harness is for transports of a configuration, which reaches s.
func (s *server) harness(name string, cfg sqs.Config) conformance.Harness {
	url := "http://" + s.proxy.Addr()
	long, short := cfg, cfg
	long.VisibilityTimeout, short.VisibilityTimeout = longVisibility, shortVisibility
	return conformance.Harness{
		Name:           name,
		Open:           opens(configured(long, url)),
		OpenShortLocks: opens(configured(short, url)),
		OpenLimited: func(t testing.TB, maxMessageBytes int) core.Transport {
			limited := long
			limited.MaxMessageBytes = maxMessageBytes
			return opens(configured(limited, url))(t)
		},
		OpenOnLine: func(t testing.TB) (core.Transport, conformance.Line) {
			// What the service has given to a poll whose answer nobody gets is locked.
			p := newProxy(t, s.Addr())
			return opens(configured(short, "http://"+p.Addr()))(t), line{p}
		},
		GroupQueue: func(t testing.TB) string { return s.queue(t, fmt.Sprintf("conf-%d.fifo", time.Now().UnixNano())) },
		Broker:     s,
		Network:    s,
		Patience:   2 * time.Minute,
		Secrets:    []string{secretKey},
		Corrupt: func(t testing.TB, queue string) []byte {
			url, body := s.QueueURL(queue), "as it came"
			_, err := s.client().SendMessage(t.Context(), &awssqs.SendMessageInput{
				QueueUrl: &url, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{
					"NServiceBus.AmazonSQS.Headers": {DataType: aws.String("String"), StringValue: aws.String("no JSON")},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			return []byte(body)
		},
		DeleteQueue: func(t testing.TB, queue string) {
			url := s.QueueURL(queue)
			if _, err := s.client().DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				t.Fatal(err)
			}
		},
		Mismatch: func(t testing.TB) (string, [2]string) {
			name := fmt.Sprintf("mismatch-%d", time.Now().UnixNano())
			_, err := s.client().CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"DelaySeconds": "1"}})
			if err != nil {
				t.Fatal(err)
			}
			return name, [2]string{`DelaySeconds "1"`, `"0"`}
		},
		OpenWrong: func(t testing.TB) []error {
			var errs []error
			wrong := configured(sqs.Config{Retention: time.Second}, url)
			_, err := sqs.New(t.Context(), wrong)
			errs = append(errs, err)
			nobody := configured(sqs.Config{}, "http://127.0.0.1:1")
			nobody.AWS.RetryMaxAttempts = 1
			transport, err := sqs.New(t.Context(), nobody)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = transport.Close(t.Context()) }()
			return append(errs, transport.Check(t.Context(), core.Topology{Queues: []string{"q"}}))
		},
	}
}

// queue creates a queue as Provision does.
func (s *server) queue(t testing.TB, name string) string {
	t.Helper()
	transport := opens(configured(sqs.Config{}, s.URL()))(t).(*sqs.Transport)
	if err := transport.Provision(t.Context(), core.Topology{Queues: []string{name}}); err != nil {
		t.Fatal(err)
	}
	if err := transport.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return name
}

func setenv(t *testing.T, variable, value string) {
	t.Helper()
	if err := os.Setenv(variable, value); err != nil { //nolint:usetesting // t.Setenv is not for parallel tests
		t.Fatal(err)
	}
}
