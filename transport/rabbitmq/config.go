package rabbitmq

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/deliverylimit"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Config names the broker and sets the properties of its queues. URLs is required; all
// other fields have defaults.
type Config struct {
	// URLs name the broker: "amqp://user:password@host/vhost", or "amqps://..." for TLS.
	// Several URLs name the nodes of a cluster: a connection tries them in a random order,
	// the next one after each failure. They may differ in user and virtual host, but must
	// lead to the same queues. The default port is 5672, or 5671 for TLS; the default user
	// and password are guest and guest; the default virtual host is "/".
	//
	// Options are those of the client library: cacertfile, certfile, keyfile and
	// server_name_indication for TLS, auth_mechanism (plain, amqplain, external), heartbeat
	// (in seconds; the default is 10), connection_timeout (in milliseconds; the default is
	// 30 s) and channel_max. A connection that receives nothing for one and a half
	// heartbeats is closed; a broker that asks for a shorter interval gets it. Files are read once, by New.
	URLs []string

	// Credentials returns the user and the password, or the token, of the next connection, for
	// credentials that change while the program runs. The URLs then have none. It is called
	// for each connection, and again when four fifths of the time to expires have passed: the
	// broker gets the new password on the open connection, which tokens of OAuth 2 need. The
	// zero time says that open connections need no other password. An error of it is an
	// outage, and it is called again. It is called by several goroutines concurrently.
	Credentials func(ctx context.Context) (user, password string, expires time.Time, err error)

	// TLS applies to URLs that begin with amqps://, and to a ManagementURL that begins with
	// https://. The default is built from the URL's options, with the certificate
	// authorities of the system if they name none. The value is copied.
	TLS *tls.Config

	// QueueType is the type of the queues that Provision creates, and the required type of
	// the queues that this transport receives from. The default is Quorum.
	QueueType QueueType

	// SingleActiveConsumers are the names of queues from which one instance of their endpoint
	// receives while the others stand by (x-single-active-consumer), one message at a time:
	// in the order of the queue, immediate retries included. Provision creates them so, and a
	// queue that was created otherwise is an error. They are refused in the topology of
	// NServiceBus.
	SingleActiveConsumers []string

	// DeliveryLimit is the x-delivery-limit of the quorum queues that Provision creates:
	// how often the broker returns a message to its queue before it drops or dead-letters
	// it. It must be more than 0 and far above the number of attempts that recoverability
	// makes. The default is 100,000, NServiceBus's; set it where queues with another limit
	// exist, which the broker does not change. It is not used for classic queues. In
	// the topology of NServiceBus the queues have no such argument, and New refuses any
	// other value.
	DeliveryLimit int

	// ManagementURL is the URL of the management plugin's API,
	// "http://user:password@host:15672". The transport asks it only for the type and the
	// delivery limit of the queues that it receives from, and in ListQueues. The user needs
	// the tag management or monitoring, and permissions in the virtual host; empty permissions
	// suffice. In the topology of NServiceBus, from RabbitMQ 4.0 on, Provision also makes
	// policies with it, for which the user needs the tag policymaker.
	//
	// It is needed where AMQP does not tell enough: on a broker of 4.0 or later, for quorum
	// queues without an argument x-delivery-limit, and for queues that the user of URLs has
	// no right to configure. A policy that sets a lower limit than the argument is visible
	// only through it.
	ManagementURL string

	// UnverifiedDeliveryLimit lets an endpoint start although the delivery limit of its
	// queue cannot be determined: a broker of 4.0 or later drops a message after 20
	// returns, unless the queue or a policy says otherwise. Set it where an operator has
	// made that policy, and the program has no ManagementURL. A limit that is known to be
	// too low is still refused.
	UnverifiedDeliveryLimit bool

	// Topology defines how topics reach their subscribers, and with NServiceBus also how
	// queues are declared. The default is Conventional. Publishers and subscribers must
	// agree on it.
	Topology RoutingTopology

	// NoDelays disables delayed messages (Capabilities.DelayedDelivery), for a virtual host
	// that has no room for the delay levels, 28 exchanges and queues. Provision declares
	// neither them nor bindings to them, and Send refuses a message with a delay. Endpoints
	// have immediate retries only, and keep messages in their process while an error queue
	// cannot be reached.
	NoDelays bool

	// MessageType returns the type of a foreign message from queue, that is, a message with
	// neither a header NServiceBus.EnclosedMessageTypes nor a property type. It must not
	// keep or change d, and is called by several goroutines concurrently. "" means no type.
	// With the default, nil, such messages have no type.
	MessageType func(queue string, d *amqp.Delivery) string

	// MaxMessageBytes is the size of the largest message, headers and body together, that
	// the transport sends. The default is 16 MiB, the limit of a broker of 4.0 or later
	// unless its max_message_size says otherwise (128 MiB before 4.0). The maximum is 512
	// MiB.
	MaxMessageBytes int

	// ConsumerTimeout is the broker's consumer_timeout: how long a message may stay
	// unacknowledged before the broker requeues it (Capabilities.MaxLockTime). AMQP does
	// not tell it. The default is the broker's default, 30 minutes; set it if the broker's
	// value differs.
	ConsumerTimeout time.Duration

	// ConnectionName appears in the management plugin and in the broker's log. The default
	// is the name of the program; set it where the programs of several services have the
	// same name, such as "app".
	ConnectionName string
}

const (
	defaultMaxMessageBytes = 16 << 20
	maxMessageBytes        = 512 << 20 // the broker's limit of max_message_size
	defaultHeartbeat       = 10 * time.Second
	defaultConsumerTimeout = 30 * time.Minute
	maxHeartbeat           = math.MaxUint16 * time.Second // two bytes on the wire
)

// QueueType is a type of queue on the broker.
type QueueType int

const (
	// Quorum is a replicated queue that counts deliveries.
	Quorum QueueType = iota

	// Classic is a queue on one node that does not count deliveries. Each process counts
	// for itself (core.Capabilities.NativeDeliveryCount is false), so attempts multiply by
	// the number of instances.
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

// RoutingTopology defines how topics reach their subscribers.
type RoutingTopology int

const (
	// Conventional uses a fanout exchange for each topic, "topic:" and its name, and a
	// fanout exchange for each queue, named like the queue. A subscription binds the two.
	Conventional RoutingTopology = iota

	// Direct publishes all topics to the exchange amq.topic, with the topic as the routing
	// key. A subscription binds the queue to that exchange. No word of a topic, between
	// dots, can be * or #.
	Direct

	// NServiceBus is for a virtual host shared with endpoints of NServiceBus, in its
	// conventional routing topology. Queues, exchanges and bindings are declared exactly as
	// NServiceBus declares them, so either side may be the first. Messages are sent to the
	// exchange of the queue's name. A topic is the full name of a .NET type; the exchange
	// of Shop.Billing.OrderPlaced is "Shop.Billing:OrderPlaced", which is bound to the
	// exchanges of its base types (core.Config.BaseTypes) and to System:Object. From
	// RabbitMQ 4.0 on, Provision uses ManagementURL to make the same policy for the
	// delivery limit as NServiceBus.
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

// complete fills in the defaults and reads the URLs and the files that they name. Its error
// names all problems.
func (c *Config) complete() ([]brokerHost, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.QueueType < Quorum || c.QueueType > Classic {
		wrong("Config.QueueType is %d; use Quorum or Classic", int(c.QueueType))
	}
	if c.Topology < Conventional || c.Topology > NServiceBus {
		wrong("Config.Topology is %d; use Conventional, Direct or NServiceBus", int(c.Topology))
	}
	if c.Topology == NServiceBus && c.DeliveryLimit != 0 && c.DeliveryLimit != deliverylimit.Default {
		wrong("Config.DeliveryLimit is %d, but in the topology of NServiceBus it is %d; remove it", c.DeliveryLimit, deliverylimit.Default)
	}
	switch {
	case c.DeliveryLimit == 0:
		c.DeliveryLimit = deliverylimit.Default
	case c.DeliveryLimit < 0 || c.DeliveryLimit > math.MaxInt32:
		wrong("Config.DeliveryLimit is %d, but must be from 1 to %d, or 0 for the default of %d", c.DeliveryLimit, math.MaxInt32, deliverylimit.Default)
	}
	switch {
	case c.MaxMessageBytes == 0:
		c.MaxMessageBytes = defaultMaxMessageBytes
	case c.MaxMessageBytes < 0 || c.MaxMessageBytes > maxMessageBytes:
		wrong("Config.MaxMessageBytes is %d, but must be from 1 to %d (512 MiB), or 0 for the default of 16 MiB", c.MaxMessageBytes, maxMessageBytes)
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
	c.SingleActiveConsumers = slices.Clone(c.SingleActiveConsumers)
	for i, queue := range c.SingleActiveConsumers {
		if _, err := names.Queue(queue); err != nil {
			wrong("Config.SingleActiveConsumers[%d]: %w", i, err)
		}
	}
	if c.Topology == NServiceBus && len(c.SingleActiveConsumers) > 0 {
		wrong("Config.SingleActiveConsumers is set, but in the topology of NServiceBus queues have no other arguments than its own; remove it")
	}

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
	endpoints := make([]brokerHost, 0, len(c.URLs))
	for i, text := range c.URLs {
		h, err := c.readURL(fmt.Sprintf("Config.URLs[%d]", i), text)
		if err == nil && h.tls == nil && c.TLS != nil && (management == nil || management.Scheme != "https") {
			err = fmt.Errorf("Config.URLs[%d] begins with amqp://, so Config.TLS would not be used; begin it with amqps://, or leave Config.TLS nil", i)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		endpoints = append(endpoints, h)
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

// String returns the configuration without passwords and without the options of URLs. fmt,
// slog and encoding/json show a Config like this, also within other values. fmt cannot call
// it for an unexported field of another struct: give that struct a String method.
func (c Config) String() string { return fmt.Sprintf("%+v", plainConfig(c.shown())) }

// GoString returns the same as String.
func (c Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer with the text of String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON writes the configuration as String shows it, without TLS and functions.
// A URL in it has no password: to store a configuration, store its fields.
func (c Config) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		plainConfig
		TLS, Credentials, MessageType any `json:",omitempty"` // never written
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
