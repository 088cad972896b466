package rabbitmq_test

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The name of the adapter in reports.
const (
	onQuorum   = "rabbitmq (quorum queues)"
	onClassic  = "rabbitmq (classic queues)"
	onQuorum3  = "rabbitmq (quorum queues of RabbitMQ 3)"
	onClassic3 = "rabbitmq (classic queues of RabbitMQ 3)"
	onDirect   = "rabbitmq (direct topology)"
	onTheirs   = "rabbitmq (topology of NServiceBus)"
	onNoDelays = "rabbitmq (quorum queues without delays)"
)

// Rules that a configuration is checked against where it differs from TestConformance in
// one thing alone.
var (
	// differingReleases are those that depend on the broker's answers, and on what it counts,
	// redelivers, delays and keeps. The queues of the delays dead-letter at least once, which
	// RabbitMQ 4 has rewritten. Contents, connections and failures are the work of the transport
	// and of the engine; what the broker answers there is tested on both releases (onBoth).
	differingReleases = []string{"C1", "C6", "C7", "C8", "C9", "C11", "C13", "C18", "C20", "C23", "C36", "C37", "C38", "C39", "R1", "R22", "R28", "R34", "R35"}
	// differingQueueTypes are those that depend on the type of the queue that is received
	// from: the transport counts where the broker does not, and the type is one of the broker's
	// programs for redelivering, expiring, purging and keeping messages. Messages are made,
	// published and read by the same code; delays are in quorum queues; and what is decided
	// about a failure depends on the count alone.
	differingQueueTypes = []string{"C1", "C6", "C7", "C8", "C9", "C11", "C14", "C18", "C20", "C23", "C36", "C38", "C39", "R1", "R22", "R28", "R34", "R35"}
	// differingTopologies are those of publishing, subscribing and provisioning: commands,
	// delays and receiving are the same code in both topologies.
	differingTopologies = []string{"C18", "C19", "C23", "R20", "R68"}
	// shortRules are for short runs: those of sending, receiving, settling, provisioning and
	// publishing. The others take a broker longer, or are the engine's, for which the in-memory
	// transport is enough there.
	shortRules = []string{"C2", "C3", "C5", "C6", "C7", "C8", "C9", "C14", "C18", "C19", "R28"}
)

// All rules, on quorum queues of RabbitMQ 4, or on those of a given server. The broker is
// killed for what it keeps; other outages are the network's.
func TestConformance(t *testing.T) {
	sideBySide(t)
	b := conformanceBroker(t, testserver.V4)
	h := b.harness(t, onQuorum, rabbitmq.Config{URLs: []string{b.url}})
	if testing.Short() && b.given == nil {
		h.Rules = shortRules
	}
	conformance.Run(t, h)
}

// Quorum queues on RabbitMQ 3. It shares the server that tests share, which is not killed:
// that is done to RabbitMQ 3 in TestOwnServer and TestUnroutable_RestartOfTheBroker.
func TestConformance_RabbitMQ3(t *testing.T) {
	onShared(t, testserver.V3, "TestConformance", onQuorum3, rabbitmq.Config{}, differingReleases)
}

// Classic queues, whose deliveries the broker does not count.
func TestConformance_ClassicQueues(t *testing.T) {
	notInShortRuns(t)
	sideBySide(t)
	b := conformanceBroker(t, testserver.V4)
	h := b.harness(t, onClassic, rabbitmq.Config{URLs: []string{b.url}, QueueType: rabbitmq.Classic})
	h.Rules, h.SameAs = differingQueueTypes, onQuorum
	conformance.Run(t, h)
}

// Classic queues on RabbitMQ 3, which another program than on RabbitMQ 4 keeps, in what a
// receiver sees of it.
func TestConformance_ClassicQueuesOfRabbitMQ3(t *testing.T) {
	onShared(t, testserver.V3, "TestConformance_ClassicQueues", onClassic3, rabbitmq.Config{QueueType: rabbitmq.Classic}, []string{"C8", "C9", "C20", "C23", "C38", "C39"})
}

// The direct topology binds a queue as the conventional one does, so that a restart of the
// broker makes no difference between them.
func TestConformance_DirectTopology(t *testing.T) {
	notInShortRuns(t)
	sideBySide(t)
	var b *broker
	if isGiven() {
		b = givenBroker(t)
	} else {
		b = brokerOn(t, rabbitmq.SharedServer(t, testserver.V4))
	}
	h := b.harness(t, onDirect, rabbitmq.Config{URLs: []string{b.url}, Topology: rabbitmq.Direct})
	h.Broker, h.Rules = nil, differingTopologies
	h.Mismatch = nil // where no exchange is a queue's own, another type is all that could differ
	conformance.Run(t, h)
}

// The topology of NServiceBus sends to exchanges, and has other names for topics.
func TestConformance_TopologyOfNServiceBus(t *testing.T) {
	notInShortRuns(t)
	sideBySide(t)
	var b *broker
	if isGiven() {
		b = givenBroker(t)
	} else {
		b = brokerOn(t, rabbitmq.SharedServer(t, testserver.V4))
	}
	h := b.harness(t, onTheirs, rabbitmq.Config{URLs: []string{b.url}, Topology: rabbitmq.NServiceBus, UnverifiedDeliveryLimit: true})
	h.Broker, h.Rules = nil, append([]string{"C2"}, differingTopologies...)
	h.Mismatch = nil // its queue has an argument that NServiceBus does not declare
	conformance.Run(t, h)
}

// Without delays a message that is put back waits in the endpoint before its copy is sent,
// while the broker counts its releases. And the queues are listed by the management API.
func TestConformance_NoDelays(t *testing.T) {
	onShared(t, testserver.V4, "TestConformance", onNoDelays, rabbitmq.Config{NoDelays: true, ManagementURL: managementURL(t)}, []string{"C37", "R64"})
}

// managementURL is that of the server that tests share, or "" on a given server.
func managementURL(t *testing.T) string {
	if isGiven() || testing.Short() {
		return ""
	}
	return rabbitmq.SharedServer(t, testserver.V4).ManagementURL()
}

// onShared checks a configuration against some rules on the shared server of a release.
func onShared(t *testing.T, release testserver.Release, onGivenServer, name string, cfg rabbitmq.Config, rules []string) {
	t.Helper()
	if isGiven() {
		t.Log("on the server that " + givenVariable + " names, this is " + onGivenServer)
		return
	}
	notInShortRuns(t)
	t.Parallel()
	b := brokerOn(t, rabbitmq.SharedServer(t, release))
	cfg.URLs = []string{b.url}
	h := b.harness(t, name, cfg)
	h.Broker, h.Rules = nil, rules
	conformance.Run(t, h)
}

// childURL is the environment variable with the URL that a child process of a harness
// connects to.
func childURL(harness string) string {
	return "REPRISE_TEST_RABBITMQ_CHILD_" + strings.Map(func(c rune) rune {
		if c < 'A' || c > 'z' {
			return '_'
		}
		return c
	}, harness)
}

// openInChild opens a transport like those of the child's harness.
func openInChild() (core.Transport, error) {
	harness := os.Getenv(conformance.HarnessVariable)
	cfg := rabbitmq.Config{URLs: beating(heartbeat, os.Getenv(childURL(harness)))}
	cfg.ConnectionName = os.Getenv(childURL(harness) + "_NAME")
	switch strings.TrimSuffix(harness, onGiven) {
	case onClassic, onClassic3:
		cfg.QueueType = rabbitmq.Classic
	case onDirect:
		cfg.Topology = rabbitmq.Direct
	case onTheirs:
		cfg.Topology, cfg.UnverifiedDeliveryLimit = rabbitmq.NServiceBus, true
	case onNoDelays:
		cfg.NoDelays = true
	}
	return rabbitmq.New(cfg)
}

// opens returns a function that opens transports of a configuration.
func opens(cfg rabbitmq.Config) func(t testing.TB) core.Transport {
	return func(t testing.TB) core.Transport {
		transport, err := rabbitmq.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}
}

// opensLimited opens transports of the configuration with another MaxMessageBytes.
func opensLimited(cfg rabbitmq.Config) func(t testing.TB, maxMessageBytes int) core.Transport {
	return func(t testing.TB, maxMessageBytes int) core.Transport {
		limited := cfg
		limited.MaxMessageBytes = maxMessageBytes
		return opens(limited)(t)
	}
}

// sideBySide has the configurations run in parallel, each on a separate server. On a given
// server they may share a virtual host.
func sideBySide(t *testing.T) {
	t.Helper()
	if !isGiven() {
		t.Parallel()
	}
}

// setenv is t.Setenv for parallel tests: each harness has separate variables.
func setenv(t *testing.T, variable, value string) {
	t.Helper()
	if err := os.Setenv(variable, value); err != nil { //nolint:usetesting // see above
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Unsetenv(variable) })
}

const (
	// heartbeat is longer than the default, so that no connection, and with it no attempt,
	// is lost because the machine is busy.
	heartbeat = time.Minute
	// lineHeartbeat is for connections that fall silent, which the suite waits for.
	lineHeartbeat = 5 * time.Second
)

// notInShortRuns skips a test in short runs: one configuration is enough there.
func notInShortRuns(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("another configuration of the transport of TestConformance: not in short runs")
	}
}

// broker is a server that the suite kills, with a network between that it cuts.
type broker struct {
	server *testserver.Server
	proxy  *proxy.Proxy
	vhost  string
	url    string // through the proxy

	// Those of a server that the environment names; see given_server_test.go.
	given   *givenServer
	network *given.Network // nil: nothing is between
	direct  string         // the URL past the network
	name    string         // of the transports' connections
}

// conformanceBroker is a server for the suite: a separate one, or the one that the
// environment names.
func conformanceBroker(t *testing.T, release testserver.Release) *broker {
	t.Helper()
	if isGiven() {
		return givenBroker(t)
	}
	return startBroker(t, release)
}

func startBroker(t *testing.T, release testserver.Release) *broker {
	return brokerOn(t, testserver.StartFor(t, testserver.Config{Release: release}))
}

// brokerOn is a separate virtual host on a server.
func brokerOn(t *testing.T, server *testserver.Server) *broker {
	p, err := proxy.New(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	vhost := server.NewVHost(t)
	return &broker{server: server, proxy: p, vhost: vhost, url: testserver.Via(server.PasswordURL(vhost), p.Addr())}
}

// Kill implements conformance.Broker.
func (b *broker) Kill(t testing.TB) {
	if err := b.server.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Start implements conformance.Broker.
func (b *broker) Start(t testing.TB) {
	if err := b.server.Restart(); err != nil {
		t.Fatal(err)
	}
}

// Partition implements conformance.Broker.
func (b *broker) Partition(testing.TB) (heal func()) {
	b.proxy.Stall()
	return b.proxy.Resume
}

// network implements conformance.Network by the proxy before a broker.
type network struct{ *broker }

func (n network) Cut(t testing.TB) (restore func()) {
	if err := n.proxy.Refuse(); err != nil {
		t.Fatal(err)
	}
	n.proxy.Cut()
	return func() {
		if err := n.proxy.Accept(); err != nil {
			t.Error(err)
		}
	}
}

// line implements conformance.Line by a proxy of one transport's own.
type line struct{ *proxy.Proxy }

func newLine(t testing.TB, addr string) line {
	p, err := proxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return line{p}
}

// SilenceBroker implements conformance.Line.
func (l line) SilenceBroker() { l.SilenceServer() }

// channel is a channel of the bare client library, past the proxy.
func (b *broker) channel(t testing.TB) *amqp.Channel {
	t.Helper()
	url := b.direct
	if b.given == nil {
		url = b.server.PasswordURL(b.vhost)
	}
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// publish puts a message into a queue, past the transport.
func (b *broker) publish(t testing.TB, queue string, message amqp.Publishing) {
	t.Helper()
	ch := b.channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, message)
	if err != nil {
		t.Fatal(err)
	}
	if !confirm.Wait() {
		t.Fatalf("the message was not confirmed")
	}
}

// harness is for transports of a configuration, which reaches b.
func (b *broker) harness(t *testing.T, name string, cfg rabbitmq.Config) conformance.Harness {
	if b.given != nil {
		name += onGiven
	}
	setenv(t, childURL(name), b.url)
	setenv(t, childURL(name)+"_NAME", b.name)
	cfg.URLs = beating(heartbeat, cfg.URLs...)
	cfg.ConnectionName = b.name
	h := conformance.Harness{
		Name:           name,
		Open:           opens(cfg),
		OpenLimited:    opensLimited(cfg),
		Broker:         b,
		Timeout:        patience,
		DelayTolerance: 20 * time.Second, // how late a message is, says a busy machine
		OpenWrong:      opensWrong(cfg),
		OpenMisplaced:  opensMisplaced(cfg),
		Secrets:        []string{testserver.Password},
		Corrupt: func(t testing.TB, queue string) []byte {
			id := fmt.Sprintf("%d@%s", corrupted.Add(1), queue) // as a copy that a transport sent
			b.publish(t, queue, amqp.Publishing{Headers: amqp.Table{"a": "\xff\xfe", "Reprise.CopyID": id}, Body: []byte("as it came")})
			return []byte("as it came")
		},
		SendNative: func(t testing.TB, queue, messageType string) func(native any) string {
			m := everything(t, "", "nowhere")
			m.Type = messageType
			b.publish(t, queue, m)
			return func(native any) string {
				d, ok := native.(*amqp.Delivery)
				if !ok {
					return fmt.Sprintf("a %T", native)
				}
				return fmt.Sprint(described(d))
			}
		},
		DeleteQueue: func(t testing.TB, queue string) {
			if _, err := b.channel(t).QueueDelete(queue, false, false, false); err != nil {
				t.Fatal(err)
			}
		},
		Mismatch: func(t testing.TB) (string, [2]string) {
			queue := fmt.Sprintf("mismatch-%d", time.Now().UnixNano())
			if err := b.channel(t).ExchangeDeclare(queue, "direct", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			arguments := amqp.Table{"x-queue-type": "classic"}
			if cfg.QueueType == rabbitmq.Quorum {
				arguments = amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 100_000}
			}
			if _, err := b.channel(t).QueueDeclare(queue, true, false, false, false, arguments); err != nil {
				t.Fatal(err)
			}
			return queue, [2]string{"direct", "fanout"}
		},
		Connections: func(t testing.TB) int { return b.connections(t) },
	}
	if b.given != nil {
		return b.adapt(h)
	}
	h.Network = network{b}
	h.OpenOnLine = func(t testing.TB) (core.Transport, conformance.Line) {
		l := newLine(t, b.server.Addr())
		through := cfg
		through.URLs = beating(lineHeartbeat, testserver.Via(b.url, l.Addr()))
		return opens(through)(t), l
	}
	return h
}

// corrupted counts the messages that cannot be read.
var corrupted atomic.Int64

// connections is how many connections transports have.
func (b *broker) connections(t testing.TB) int {
	t.Helper()
	return (&site{Server: b.server, vhost: b.vhost}).connections(t, "")
}
