package rabbitmq

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// Config says where the broker is and how its queues are. URLs is set; everything else
// has a default.
type Config struct {
	// URLs name the broker: "amqp://user:password@host/vhost", or "amqps://..." for TLS.
	// Several name the nodes of a cluster: a connection tries them in a random order, and
	// the next one at each failure. User and virtual host may differ between them, the
	// queues that they lead to must not. Without a port it is 5672, or 5671 for TLS;
	// without a user and password guest and guest; without a virtual host "/".
	//
	// Options are those of the client library: cacertfile, certfile, keyfile and
	// server_name_indication for TLS, auth_mechanism (plain, amqplain, external),
	// heartbeat (in seconds, instead of Heartbeat), connection_timeout (in milliseconds;
	// the default is 30 s) and channel_max. Files are read once, by New.
	URLs []string

	// TLS is for the URLs that begin with amqps://, and for a ManagementURL that begins
	// with https://. The default is what the URL's options say, with the certificate
	// authorities of the system where they name none. It is copied.
	TLS *tls.Config

	// QueueType is what Provision creates, and what queues that this transport receives
	// from must be. The default is Quorum.
	QueueType QueueType

	// DeliveryLimit is the x-delivery-limit of the quorum queues that Provision creates:
	// how often the broker gives a message back before it drops it, or dead-letters it.
	// It must be far above what recoverability asks for, and more than 0. The default is
	// 100,000, NServiceBus's. It is not used for classic queues. In the topology of
	// NServiceBus the queues have no such argument, and another value is refused.
	DeliveryLimit int

	// InstanceQueueExpiry is how long the broker keeps a queue of an instance
	// (core.Config.InstanceQueue) that nobody receives from, before it deletes it with its
	// messages: the x-expires of those that Provision creates. The default is 7 days.
	// core.Off is for ever. It is at least 1 s, at most 49 days, and in whole
	// milliseconds. Messages that are delayed for longer find no queue.
	InstanceQueueExpiry time.Duration

	// ManagementURL is that of the management plugin's API,
	// "http://user:password@host:15672". It is asked for the type and the delivery limit of
	// the queues that are received from, and for nothing else. The user needs the tag
	// management or monitoring, and permissions in the virtual host, of which empty ones
	// will do. In the topology of NServiceBus Provision makes policies with it, from RabbitMQ
	// 4.0 on, for which the user needs the tag policymaker.
	//
	// It is needed where AMQP does not tell enough: on a broker of 4.0 or later, for quorum
	// queues without an argument x-delivery-limit, and for any that the user of URLs has no
	// right to configure. A policy that sets a lower limit than the argument is seen with it
	// alone.
	ManagementURL string

	// UnverifiedDeliveryLimit lets an endpoint start although nobody can say what the
	// delivery limit of its queue is: a broker of 4.0 or later drops a message after 20
	// returns, unless the queue or a policy says otherwise. A limit that is known, and too
	// low, is refused all the same.
	UnverifiedDeliveryLimit bool

	// Topology is how topics reach their subscribers, and with NServiceBus how queues are
	// declared too. The default is Conventional. Publishers and subscribers must agree on it.
	Topology RoutingTopology

	// NoDelays switches delayed messages off (Capabilities.DelayedDelivery): Provision
	// declares neither the levels in which they wait, 28 exchanges and queues of the
	// virtual host, nor bindings to them, and a Send with a delay is refused. Endpoints
	// have immediate retries only, and keep messages in their process while an error
	// queue cannot be reached.
	NoDelays bool

	// MessageType returns the type of a foreign message that came to queue: one with
	// neither a header NServiceBus.EnclosedMessageTypes nor a property type. It must not
	// keep or change d, and is called by several goroutines at once. "" is none. The
	// default is nil: such a message has none.
	MessageType func(queue string, d *amqp.Delivery) string

	// MaxMessageBytes is the largest message, headers and body together, that is sent.
	// The default is 16 MiB, which is what a broker of 4.0 or later takes unless its
	// max_message_size says otherwise (128 MiB before). The most is 512 MiB.
	MaxMessageBytes int

	// Heartbeat is how often both sides show that they are alive: a connection on which
	// nothing came for one and a half times as long is given up. The default is 10 s, the least 1 s. It is in
	// whole seconds; a broker that asks for less gets less.
	Heartbeat time.Duration

	// ConsumerTimeout is the broker's consumer_timeout: how long a message may be
	// unacknowledged before the broker takes it back (Capabilities.MaxLockTime). AMQP
	// does not tell it. The default is the broker's, 30 minutes; set it where the broker's
	// is another.
	ConsumerTimeout time.Duration

	// ConnectionName is shown by the management plugin and in the broker's log. The
	// default is the name of the program.
	ConnectionName string
}

const (
	defaultDeliveryLimit   = 100_000
	defaultInstanceExpiry  = 7 * 24 * time.Hour
	mostInstanceExpiry     = 49 * 24 * time.Hour // the broker's own bound is 2^32 ms
	defaultMaxMessageBytes = 16 << 20
	mostMessageBytes       = 512 << 20 // the broker's own bound of max_message_size
	defaultHeartbeat       = 10 * time.Second
	defaultConsumerTimeout = 30 * time.Minute
	maxHeartbeat           = math.MaxUint16 * time.Second // two bytes on the wire
)

// QueueType is a kind of queue that the broker has.
type QueueType int

const (
	// Quorum is a replicated queue that counts deliveries.
	Quorum QueueType = iota

	// Classic is a queue on one node that does not count deliveries: each process counts
	// for itself (core.Capabilities.NativeDeliveryCount is false), so that attempts
	// multiply by the number of instances.
	Classic
)

// String returns the type's name as configuration files write it.
func (q QueueType) String() string {
	switch q {
	case Quorum:
		return "Quorum"
	case Classic:
		return "Classic"
	default:
		return fmt.Sprintf("QueueType(%d)", int(q))
	}
}

// MarshalText writes the type's name.
func (q QueueType) MarshalText() ([]byte, error) {
	if q < Quorum || q > Classic {
		return nil, fmt.Errorf("rabbitmq: there is no %v", q)
	}
	return []byte(q.String()), nil
}

// UnmarshalText reads the name that String writes.
func (q *QueueType) UnmarshalText(text []byte) error {
	for known := Quorum; known <= Classic; known++ {
		if known.String() == string(text) {
			*q = known
			return nil
		}
	}
	return fmt.Errorf("unknown queue type %q; use Quorum or Classic", text)
}

// argument is the value of the queue argument x-queue-type.
func (q QueueType) argument() string { return strings.ToLower(q.String()) }

// RoutingTopology is how topics reach their subscribers.
type RoutingTopology int

const (
	// Conventional has a fanout exchange for each topic, "topic:" and its name, and one
	// for each queue, of the same name as the queue. A subscription binds them.
	Conventional RoutingTopology = iota

	// Direct publishes all topics to the exchange amq.topic, with the topic as the
	// routing key. A subscription binds the queue to it. No word of a topic, between
	// dots, can be * or #.
	Direct

	// NServiceBus is for a virtual host that endpoints of NServiceBus use too, with its
	// conventional routing topology. Queues, exchanges and bindings are declared exactly as
	// NServiceBus declares them, so that either side may be the first. Messages are sent to
	// the exchange of the queue's name. A topic is the full name of a .NET type; that of
	// Shop.Billing.OrderPlaced is the exchange "Shop.Billing:OrderPlaced", which is bound to
	// those of its base types (core.Config.BaseTypes) and to System:Object. From RabbitMQ 4.0
	// on Provision makes the policy for the delivery limit that NServiceBus makes, by
	// ManagementURL.
	NServiceBus
)

// String returns the topology's name as configuration files write it.
func (t RoutingTopology) String() string {
	switch t {
	case Conventional:
		return "Conventional"
	case Direct:
		return "Direct"
	case NServiceBus:
		return "NServiceBus"
	default:
		return fmt.Sprintf("RoutingTopology(%d)", int(t))
	}
}

// MarshalText writes the topology's name.
func (t RoutingTopology) MarshalText() ([]byte, error) {
	if t < Conventional || t > NServiceBus {
		return nil, fmt.Errorf("rabbitmq: there is no %v", t)
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads the name that String writes.
func (t *RoutingTopology) UnmarshalText(text []byte) error {
	for known := Conventional; known <= NServiceBus; known++ {
		if known.String() == string(text) {
			*t = known
			return nil
		}
	}
	return fmt.Errorf("unknown topology %q; use Conventional, Direct or NServiceBus", text)
}

// complete fills in the defaults and reads the URLs and the files that they name. Its
// error says everything that is wrong.
func (c *Config) complete() ([]endpoint, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.QueueType < Quorum || c.QueueType > Classic {
		wrong("Config.QueueType is %d; use Quorum or Classic", int(c.QueueType))
	}
	if c.Topology < Conventional || c.Topology > NServiceBus {
		wrong("Config.Topology is %d; use Conventional, Direct or NServiceBus", int(c.Topology))
	}
	if c.Topology == NServiceBus && c.DeliveryLimit != 0 && c.DeliveryLimit != defaultDeliveryLimit {
		wrong("Config.DeliveryLimit is %d, but in the topology of NServiceBus it is %d; remove it", c.DeliveryLimit, defaultDeliveryLimit)
	}
	switch {
	case c.DeliveryLimit == 0:
		c.DeliveryLimit = defaultDeliveryLimit
	case c.DeliveryLimit < 0 || c.DeliveryLimit > math.MaxInt32:
		wrong("Config.DeliveryLimit is %d, but must be from 1 to %d, or 0 for the default of %d", c.DeliveryLimit, math.MaxInt32, defaultDeliveryLimit)
	}
	switch {
	case c.InstanceQueueExpiry == 0:
		c.InstanceQueueExpiry = defaultInstanceExpiry
	case c.InstanceQueueExpiry == core.Off:
	case c.InstanceQueueExpiry < time.Second || c.InstanceQueueExpiry > mostInstanceExpiry || c.InstanceQueueExpiry%time.Millisecond != 0:
		wrong("Config.InstanceQueueExpiry is %v, but must be from 1s to %v in whole milliseconds, or core.Off for queues that stay, or 0 for the default of %v", c.InstanceQueueExpiry, mostInstanceExpiry, defaultInstanceExpiry)
	}
	switch {
	case c.MaxMessageBytes == 0:
		c.MaxMessageBytes = defaultMaxMessageBytes
	case c.MaxMessageBytes < 0 || c.MaxMessageBytes > mostMessageBytes:
		wrong("Config.MaxMessageBytes is %d, but must be from 1 to %d (512 MiB), or 0 for the default of 16 MiB", c.MaxMessageBytes, mostMessageBytes)
	}
	switch {
	case c.Heartbeat == 0:
		c.Heartbeat = defaultHeartbeat
	case c.Heartbeat < time.Second || c.Heartbeat > maxHeartbeat:
		wrong("Config.Heartbeat is %v, but must be from 1s to %v", c.Heartbeat, maxHeartbeat)
	case c.Heartbeat%time.Second != 0:
		wrong("Config.Heartbeat is %v, but must be in whole seconds", c.Heartbeat)
	}
	switch {
	case c.ConsumerTimeout == 0:
		c.ConsumerTimeout = defaultConsumerTimeout
	case c.ConsumerTimeout < 0:
		wrong("Config.ConsumerTimeout is %v, but must be more than 0, or 0 for the default of %v", c.ConsumerTimeout, defaultConsumerTimeout)
	}
	if c.ConnectionName == "" {
		c.ConnectionName = programName()
	}
	c.TLS = c.TLS.Clone()

	var management *url.URL
	if c.ManagementURL != "" {
		var err error
		if management, err = readManagementURL(c.ManagementURL); err != nil {
			errs = append(errs, err)
		}
	}
	if len(c.URLs) == 0 {
		wrong("Config.URLs is empty; name the broker, such as amqp://user:password@host/vhost")
	}
	endpoints := make([]endpoint, 0, len(c.URLs))
	for i, text := range c.URLs {
		e, err := c.readURL(fmt.Sprintf("Config.URLs[%d]", i), text)
		if err == nil && e.tls == nil && c.TLS != nil && (management == nil || management.Scheme != "https") {
			err = fmt.Errorf("Config.URLs[%d] begins with amqp://, so Config.TLS would not be used; begin it with amqps://, or leave Config.TLS nil", i)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		endpoints = append(endpoints, e)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return endpoints, nil
}

func programName() string {
	if len(os.Args) == 0 {
		return ""
	}
	return filepath.Base(os.Args[0])
}

// String returns the configuration without passwords and the options of URLs. fmt, slog
// and encoding/json show a Config like this, also within other values. fmt cannot do so for
// an unexported field of another struct: give that struct a String method.
func (c Config) String() string { return fmt.Sprintf("%+v", plainConfig(c.shown())) }

// GoString returns what String does.
func (c Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer with what String returns.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON writes the configuration as String shows it, without TLS and MessageType.
// A URL in it has no password: to store a configuration, store its fields.
func (c Config) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		plainConfig
		TLS, MessageType any `json:",omitempty"` // never written
	}{plainConfig: plainConfig(c.shown())})
}

// plainConfig is a Config without methods.
type plainConfig Config

// shown returns the configuration without secrets.
func (c Config) shown() Config {
	urls := make([]string, len(c.URLs))
	for i, text := range c.URLs {
		urls[i] = redacted(text)
	}
	c.URLs, c.ManagementURL = urls, redacted(c.ManagementURL)
	return c
}
