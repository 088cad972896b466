//go:build darwin || linux

package asb_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/asb"
)

// address is how a namespace is reached. It has a key.
type address struct{ ConnectionString, AdminEndpoint string }

// field returns a part of the connection string, "" if it has none.
func (a address) field(name string) string {
	for part := range strings.SplitSeq(a.ConnectionString, ";") {
		if key, value, _ := strings.Cut(part, "="); strings.EqualFold(strings.TrimSpace(key), name) {
			return value
		}
	}
	return ""
}

// host returns the host of the namespace, and its port if it is named.
func (a address) host() string {
	u, err := url.Parse(a.field("Endpoint"))
	if err != nil {
		return ""
	}
	return u.Host
}

// isEmulator reports whether the namespace is reached without TLS.
func (a address) isEmulator() bool {
	return strings.EqualFold(a.field("UseDevelopmentEmulator"), "true")
}

// minSecret is the length of a text that is not in the output by chance: emulators take any key.
const minSecret = 16

// secrets are the keys and signatures in the connection string.
func (a address) secrets() (secrets []string) {
	_, signature, _ := strings.Cut(a.field("SharedAccessSignature"), "sig=")
	signature, _, _ = strings.Cut(signature, "&")
	for _, secret := range []string{a.field("SharedAccessKey"), signature} {
		if len(secret) >= minSecret {
			secrets = append(secrets, secret)
		}
	}
	return secrets
}

// dial opens a connection for AMQP through a network, as the SDK does without one.
func (a address) dial(ctx context.Context, through *proxy.Network) (net.Conn, error) {
	host, port, err := net.SplitHostPort(a.host())
	if err != nil { // there is no port
		host, port = a.host(), "5671"
		if a.isEmulator() {
			port = "5672"
		}
	}
	conn, err := through.Dial(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil || a.isEmulator() {
		return conn, err
	}
	secured := tls.Client(conn, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was sent
		return nil, err
	}
	return secured, nil
}

// configured is a configuration that reaches the namespace, through a network if it is not nil.
func (a address) configured(cfg asb.Config, through *proxy.Network) asb.Config {
	cfg.ConnectionString, cfg.AdminEndpoint = a.ConnectionString, a.AdminEndpoint
	if through != nil {
		// The SDK has no other hook for connections. It takes one without web sockets, too.
		cfg.Client.NewWebSocketConn = func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return a.dial(ctx, through)
		}
		cfg.Admin.Transport = &http.Client{Transport: &http.Transport{DialContext: through.Dial, DisableKeepAlives: true}}
	}
	return cfg
}

// admin returns the bare SDK's client for entities. It keeps no connections.
func (a address) admin() (*admin.Client, error) {
	var through policy.Transporter = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}}
	if a.AdminEndpoint != "" {
		u, err := url.Parse(a.AdminEndpoint)
		if err != nil {
			return nil, errors.New("the endpoint of the administration API is no URL; to fix: choose one such as http://localhost:5300")
		}
		through = redirected{u, through}
	}
	client, err := admin.NewClientFromConnectionString(a.ConnectionString, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: through}})
	if err != nil {
		// The SDK's error may quote the text.
		return nil, errors.New("the SDK does not take the connection string; to fix: copy that of a shared access policy of the namespace again")
	}
	return client, nil
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

// service is a namespace that the conformance suite runs on: our own server, or the one that the environment names.
type service struct {
	at      address
	prefix  string         // of the names of queues and topics
	network *proxy.Network // between the transports and the namespace
	names   atomic.Int64   // that were made up
}

func newService(t testing.TB, at address, prefix string) *service {
	return &service{at: at, prefix: prefix, network: proxy.NewNetwork(t)}
}

var sessionQueues = []string{"grouped-*"}

// forTests is a configuration whose queues and topics have a prefix, and whose queues have a lock.
func forTests(cfg asb.Config, prefix string, lock time.Duration) asb.Config {
	cfg.QueuePrefix, cfg.TopicPrefix = prefix, prefix
	cfg.LockDuration, cfg.SessionQueues, cfg.IgnoreMissingTopics = lock, sessionQueues, true
	return cfg
}

// opens returns how to open a transport whose queues have a lock.
func (s *service) opens(cfg asb.Config, lock time.Duration, through *proxy.Network) func(t testing.TB) core.Transport {
	return func(t testing.TB) core.Transport {
		transport, err := asb.New(s.at.configured(forTests(cfg, s.prefix, lock), through))
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}
}

// harness is for transports on the namespace. The namespace goes on, so that it has no Broker.
func (s *service) harness(name string) conformance.Harness {
	return conformance.Harness{
		Name:           name,
		Open:           s.opens(asb.Config{}, longLock, s.network),
		OpenShortLocks: s.opens(asb.Config{}, shortLock, s.network),
		OpenLimited: func(t testing.TB, maxMessageBytes int) core.Transport {
			return s.opens(asb.Config{MaxMessageBytes: maxMessageBytes}, longLock, s.network)(t)
		},
		OpenOnLine: func(t testing.TB) (core.Transport, conformance.Line) {
			own := proxy.NewNetwork(t)
			return s.opens(asb.Config{}, shortLock, own)(t), own
		},
		GroupQueue: func(t testing.TB) string { return s.queue(t, s.unique("grouped")) },
		UniqueQueue: func(t testing.TB) (queue, property string) {
			queue = s.unique("duplicates")
			s.manage(t, func(client *admin.Client) error {
				_, err := client.CreateQueue(t.Context(), s.prefix+queue, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
					LockDuration: new("PT45S"), MaxDeliveryCount: new(int32(math.MaxInt32)), RequiresDuplicateDetection: new(true),
				}})
				return err
			})
			return queue, ""
		},
		Network:        s.network,
		Timeout:        patience,
		DelayTolerance: 20 * time.Second, // how late a message is, says a busy machine
		Secrets:        s.at.secrets(),
		Corrupt: func(t testing.TB, queue string) []byte {
			s.raw(t, func(client *azservicebus.Client) error {
				sender, err := client.NewSender(s.prefix+queue, nil)
				if err != nil {
					return err
				}
				return sender.SendAMQPAnnotatedMessage(t.Context(), &azservicebus.AMQPAnnotatedMessage{
					Body: azservicebus.AMQPAnnotatedMessageBody{Sequence: [][]any{{int64(1), "two"}}},
				}, nil)
			})
			return nil
		},
		SendNative: func(t testing.TB, queue, messageType string) func(native any) string {
			m := everything(azservicebus.AMQPAnnotatedMessageBody{Value: "text"})
			m.ApplicationProperties[headers.MessageTypes] = messageType
			s.raw(t, func(client *azservicebus.Client) error {
				sender, err := client.NewSender(s.prefix+queue, nil)
				if err != nil {
					return err
				}
				return sender.SendAMQPAnnotatedMessage(t.Context(), m, nil)
			})
			return func(native any) string {
				received, ok := native.(*azservicebus.ReceivedMessage)
				if !ok {
					return fmt.Sprintf("a %T", native)
				}
				return fmt.Sprint(described(received.RawAMQPMessage))
			}
		},
		DeleteQueue: func(t testing.TB, queue string) {
			s.manage(t, func(client *admin.Client) error {
				_, err := client.DeleteQueue(t.Context(), s.prefix+queue, nil)
				return err
			})
		},
		DeadLetters: s.deadLetters,
		Mismatch: func(t testing.TB) (string, [2]string) {
			name := s.unique("mismatch")
			s.manage(t, func(client *admin.Client) error {
				_, err := client.CreateQueue(t.Context(), s.prefix+name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
					DefaultMessageTimeToLive: new("PT1H"), MaxDeliveryCount: new(int32(math.MaxInt32)),
				}})
				return err
			})
			return name, [2]string{"DefaultMessageTimeToLive PT1H", "P10675199DT2H48M5.4775807S"}
		},
		OpenWrong: func(t testing.TB) []error {
			_, err := asb.New(asb.Config{ConnectionString: s.at.ConnectionString, LockDuration: time.Hour})
			nowhere := "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=any;SharedAccessKey=" + strings.Join(append(s.at.secrets(), "any"), ".") + ";UseDevelopmentEmulator=true"
			transport, openErr := asb.New(asb.Config{ConnectionString: nowhere})
			if openErr != nil {
				t.Fatal(openErr)
			}
			defer func() { _ = transport.Close(t.Context()) }()
			return []error{err, transport.Check(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}})}
		},
		OpenMisplaced: func(t testing.TB, text string) (configs []any, errs []error) {
			for _, change := range []func(cfg *asb.Config){
				func(cfg *asb.Config) { cfg.Namespace, cfg.ConnectionString = text, "" },
				func(cfg *asb.Config) { cfg.ConnectionString = text },
				func(cfg *asb.Config) { cfg.AdminEndpoint = text },
				func(cfg *asb.Config) { cfg.Client.CustomEndpoint = text },
			} {
				cfg := asb.Config{ConnectionString: s.at.ConnectionString}
				change(&cfg)
				configs = append(configs, cfg, &cfg)
				errs = append(errs, checked(t, cfg))
			}
			return configs, errs
		},
	}
}

// checked opens a transport and checks it, and returns the first error.
func checked(t testing.TB, cfg asb.Config) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // no server listens, or it is the wrong one
	defer cancel()
	transport, err := asb.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = transport.Close(t.Context()) }()
	return transport.Check(ctx, core.Topology{InputQueue: "q", Queues: []string{"q"}})
}

// unique returns another name at each call.
func (s *service) unique(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, time.Now().UnixNano(), s.names.Add(1))
}

// queue creates a queue with Provision.
func (s *service) queue(t testing.TB, name string) string {
	t.Helper()
	transport := s.opens(asb.Config{}, shortLock, nil)(t).(*asb.Transport)
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: name, Queues: []string{name}}); err != nil {
		t.Fatal(err)
	}
	if err := transport.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return name
}

// manage uses the bare SDK's client for entities, past the network.
func (s *service) manage(t testing.TB, use func(client *admin.Client) error) {
	t.Helper()
	client, err := s.at.admin()
	if err == nil {
		err = use(client)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// raw uses the bare SDK, past the network.
func (s *service) raw(t testing.TB, use func(client *azservicebus.Client) error) {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.at.ConnectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := use(client); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// deadLetters implements conformance.Harness.DeadLetters.
func (s *service) deadLetters(t testing.TB, queue string) (letters []conformance.DeadLetter) {
	t.Helper()
	s.raw(t, func(client *azservicebus.Client) error {
		r, err := client.NewReceiverForQueue(s.prefix+queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		if err != nil {
			return err
		}
		for {
			peeked, err := r.PeekMessages(t.Context(), 1, nil)
			if err != nil || len(peeked) == 0 {
				return err
			}
			messages, err := r.ReceiveMessages(t.Context(), 1, nil)
			if err != nil {
				return err
			}
			for _, m := range messages {
				headers := map[string]string{}
				for key, value := range m.ApplicationProperties {
					headers[key] = fmt.Sprint(value)
				}
				l := conformance.DeadLetter{Body: m.Body, Headers: core.HeadersFromMap(headers)}
				if m.DeadLetterReason != nil {
					l.Reason = *m.DeadLetterReason
				}
				if m.DeadLetterErrorDescription != nil {
					l.Description = *m.DeadLetterErrorDescription
				}
				letters = append(letters, l)
			}
		}
	})
	return letters
}

// child says how a child process reaches its namespace.
type child struct {
	Address address
	Prefix  string
}

const childVariable = "REPRISE_TEST_ASB_CHILD"

// setChild lets child processes reach the namespace. They start while the test runs.
func (s *service) setChild(t testing.TB) {
	t.Helper()
	text, err := json.Marshal(child{s.at, s.prefix})
	if err != nil {
		t.Fatal(err)
	}
	// t.Setenv is not for parallel tests.
	if err := os.Setenv(childVariable, string(text)); err != nil { //nolint:usetesting // see above
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Unsetenv(childVariable) })
}

// openInChild opens a transport like those of the harness with short locks.
func openInChild() (core.Transport, error) {
	var c child
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &c); err != nil {
		return nil, err
	}
	return asb.New(c.Address.configured(forTests(asb.Config{}, c.Prefix, shortLock), nil))
}
