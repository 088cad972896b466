//go:build darwin || linux

package sqs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs"
)

// A service is one of SQS and SNS that the conformance suite runs on: our own server, fauxqs,
// or the one that the environment names.
type service struct {
	shared  aws.Config     // reaches it past the network
	prefix  string         // of the names of queues and topics
	network *proxy.Network // between the transports and the service
	secrets []string
	names   atomic.Int64 // that were made up
	// noEvents is true for an emulator without SNS.
	noEvents bool
}

// newService returns the service at a URL that takes any credentials.
func newService(t testing.TB, url string) *service {
	return &service{shared: sharedBy(url), network: proxy.NewNetwork(t), secrets: []string{secretKey}}
}

// sharedBy configures the SDK for a URL, with the credentials of the tests.
func sharedBy(url string) aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: &url,
		Credentials: newCredentials(accessKey, secretKey, ""),
	}
}

// configured is a configuration that reaches a URL.
func configured(cfg sqs.Config, url string) sqs.Config {
	shared := sharedBy(url)
	return forTests(cfg, &shared, "")
}

// forTests is a configuration that reaches a service. Its receivers need not wait long for
// the end of their last request.
func forTests(cfg sqs.Config, shared *aws.Config, prefix string) sqs.Config {
	cfg.AWS = shared
	if prefix != "" {
		cfg.QueuePrefix, cfg.TopicPrefix = prefix, prefix
	}
	cfg.WaitTime = time.Second
	cfg.IgnoreMissingTopics = true
	return cfg
}

// configured is a configuration that reaches the service through a network.
func (s *service) configured(cfg sqs.Config, through *proxy.Network) sqs.Config {
	shared := s.shared.Copy()
	shared.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) { tr.DialContext = through.Dial })
	return forTests(cfg, &shared, s.prefix)
}

func opens(cfg sqs.Config) func(t testing.TB) core.Transport {
	return func(t testing.TB) core.Transport {
		transport, err := sqs.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}
}

// opens returns a function that opens transports of a configuration.
func (s *service) opens(cfg sqs.Config) func(t testing.TB) core.Transport {
	if !s.noEvents {
		return opens(cfg)
	}
	return func(t testing.TB) core.Transport { return withoutEvents{transport.Wrapper{Transport: opens(cfg)(t)}} }
}

// withoutEvents is a transport on an emulator without SNS.
type withoutEvents struct{ transport.Wrapper }

func (w withoutEvents) Capabilities() core.Capabilities {
	caps := w.Wrapper.Capabilities()
	caps.PublishSubscribe = false
	return caps
}

// client is the bare SDK, past the network.
func (s *service) client() *awssqs.Client {
	shared := s.shared.Copy()
	shared.HTTPClient = testserver.ForSDK(&http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment})
	return awssqs.NewFromConfig(shared)
}

// url returns the URL of a queue.
func (s *service) url(t testing.TB, address string) *string {
	t.Helper()
	out, err := s.client().GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String(s.prefix + address)})
	if err != nil {
		t.Fatal(err)
	}
	return out.QueueUrl
}

// harness is for transports of a configuration. The service goes on, so that it has no
// Broker.
func (s *service) harness(name string, cfg sqs.Config) conformance.Harness {
	long, short := cfg, cfg
	long.VisibilityTimeout, short.VisibilityTimeout = longVisibility, shortVisibility
	return conformance.Harness{
		Name:           name,
		Open:           s.opens(s.configured(long, s.network)),
		OpenShortLocks: s.opens(s.configured(short, s.network)),
		DelayTolerance: 20 * time.Second, // how late a message is, says a busy machine
		OpenLimited: func(t testing.TB, maxMessageBytes int) core.Transport {
			limited := long
			limited.MaxMessageBytes = maxMessageBytes
			return s.opens(s.configured(limited, s.network))(t)
		},
		OpenOnLine: func(t testing.TB) (core.Transport, conformance.Line) {
			// The messages in an answer that is lost are locked.
			own := proxy.NewNetwork(t)
			return s.opens(s.configured(short, own))(t), own
		},
		GroupQueue: func(t testing.TB) string { return s.queue(t, s.unique("conf")+".fifo") },
		UniqueQueue: func(t testing.TB) (queue, property string) {
			return s.queue(t, s.unique("conf")+".fifo"), sqs.PropertyDeduplicationID
		},
		Network: s.network,
		Timeout: 2 * time.Minute,
		Secrets: s.secrets,
		Corrupt: func(t testing.TB, queue string) []byte {
			body := "as it came"
			_, err := s.client().SendMessage(t.Context(), &awssqs.SendMessageInput{
				QueueUrl: s.url(t, queue), MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{
					"NServiceBus.AmazonSQS.Headers": {DataType: aws.String("String"), StringValue: aws.String("no JSON")},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			return []byte(body)
		},
		SendNative: func(t testing.TB, queue, messageType string) func(native any) string {
			sent := map[string]types.MessageAttributeValue{
				"Count": {DataType: aws.String("Number"), StringValue: aws.String("42")},
				"Rate":  {DataType: aws.String("Number.float"), StringValue: aws.String("1.50")},
				"Raw":   {DataType: aws.String("Binary.png"), BinaryValue: []byte{0xff, 0, 1}},
				"Label": {DataType: aws.String("String.label"), StringValue: aws.String("ü")},
			}
			attributes := maps.Clone(sent)
			attributes["MessageTypeFullName"] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &messageType}
			if _, err := s.client().SendMessage(t.Context(), &awssqs.SendMessageInput{QueueUrl: s.url(t, queue), MessageBody: aws.String("{}"), MessageAttributes: attributes}); err != nil {
				t.Fatal(err)
			}
			return func(native any) string {
				m, ok := native.(*types.Message)
				if !ok {
					return fmt.Sprintf("a %T", native)
				}
				var text strings.Builder
				for _, name := range slices.Sorted(maps.Keys(sent)) {
					a := m.MessageAttributes[name]
					fmt.Fprintf(&text, "%s %s %q %x; ", name, aws.ToString(a.DataType), aws.ToString(a.StringValue), a.BinaryValue)
				}
				return text.String()
			}
		},
		DeleteQueue: func(t testing.TB, queue string) {
			if _, err := s.client().DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: s.url(t, queue)}); err != nil {
				t.Fatal(err)
			}
		},
		Mismatch: func(t testing.TB) (string, [2]string) {
			name := s.unique("mismatch")
			_, err := s.client().CreateQueue(t.Context(), &awssqs.CreateQueueInput{
				QueueName: aws.String(s.prefix + name), Attributes: map[string]string{"DelaySeconds": "1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			return name, [2]string{`DelaySeconds "1"`, `"0"`}
		},
		OpenWrong: func(t testing.TB) []error {
			wrong := forTests(sqs.Config{VisibilityTimeout: 24 * time.Hour}, &s.shared, "")
			_, err := sqs.New(wrong)
			errs := []error{err}
			shared := s.shared.Copy()
			shared.BaseEndpoint, shared.RetryMaxAttempts = aws.String("http://127.0.0.1:1"), 1
			transport, err := sqs.New(forTests(sqs.Config{}, &shared, ""))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = transport.Close(t.Context()) }()
			return append(errs, transport.Check(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}))
		},
		OpenMisplaced: func(t testing.TB, text string) (configs []any, errs []error) {
			for _, change := range []func(shared *aws.Config){
				func(shared *aws.Config) { shared.BaseEndpoint = &text },
				func(shared *aws.Config) { shared.Region = text },
			} {
				shared := s.shared.Copy()
				shared.RetryMaxAttempts = 1
				change(&shared)
				cfg := forTests(sqs.Config{}, &shared, "")
				configs = append(configs, cfg, &cfg)
				transport, err := sqs.New(cfg)
				if err == nil {
					err = errors.Join(errors.New(fmt.Sprint(transport.Warnings(), transport.Describe())), transport.Check(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}))
					_ = transport.Close(t.Context())
				}
				errs = append(errs, err)
			}
			return configs, errs
		},
	}
}

// unique returns another name at each call.
func (s *service) unique(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, time.Now().UnixNano(), s.names.Add(1))
}

// queue creates a queue as Provision does.
func (s *service) queue(t testing.TB, name string) string {
	t.Helper()
	transport := opens(forTests(sqs.Config{}, &s.shared, s.prefix))(t).(*sqs.Transport)
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: name, Queues: []string{name}}); err != nil {
		t.Fatal(err)
	}
	if err := transport.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return name
}

// child says how the child process of a harness reaches its service.
type child struct {
	URL    string // "": that of the service that the environment names
	Prefix string
}

// childVariable is the environment variable with the child of a harness.
func childVariable(harness string) string { return "REPRISE_TEST_SQS_CHILD " + harness }

// setChild lets child processes of a harness reach the service. They start while its test runs.
func (s *service) setChild(t testing.TB, harness string) {
	t.Helper()
	c := child{Prefix: s.prefix}
	if s.prefix == "" { // it is not the one that the environment names
		c.URL = *s.shared.BaseEndpoint
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	// t.Setenv is not for parallel tests. Each harness has a separate variable.
	if err := os.Setenv(childVariable(harness), string(text)); err != nil { //nolint:usetesting // see above
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Unsetenv(childVariable(harness)) })
}

// openInChild opens a transport like those of the child's harness with short locks.
func openInChild() (core.Transport, error) {
	var c child
	if err := json.Unmarshal([]byte(os.Getenv(childVariable(os.Getenv(conformance.HarnessVariable)))), &c); err != nil {
		return nil, err
	}
	shared := sharedBy(c.URL)
	if c.URL == "" {
		var err error
		if shared, err = loadGiven(context.Background()); err != nil {
			return nil, err
		}
	}
	return sqs.New(forTests(sqs.Config{VisibilityTimeout: shortVisibility}, &shared, c.Prefix))
}
