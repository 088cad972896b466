package sqs

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
	"github.com/reprise-go/reprise/transport/sqs/internal/sdkclient"
)

// Config has the account, the names and the properties of queues. The zero value uses the
// SDK's usual region, credentials and endpoint.
type Config struct {
	// AWS is the SDK's configuration: region, credentials, endpoint, retryer, HTTP
	// client. By default New loads it from the environment, the user's files and the
	// machine's metadata (config.LoadDefaultConfig). It is copied. Without a retryer it
	// uses the SDK's standard one, which repeats a request twice; the adapter itself
	// waits for the end of an outage.
	AWS *aws.Config

	// QueuePrefix is put before the name of every queue, and TopicPrefix before that of
	// every topic, so that several environments can share an account. Addresses do not
	// have the prefix.
	QueuePrefix, TopicPrefix string

	// VisibilityTimeout is how long a received message is locked. The engine renews
	// locks. After the death of a process its messages are redelivered when this time has
	// passed. It is in whole seconds, from 1 s to 12 h. The default is 30 s. A queue's
	// own visibility timeout is not used.
	VisibilityTimeout time.Duration

	// WaitTime is how long a request for messages waits for the first one. An idle
	// endpoint makes one request per WaitTime, and Close waits up to WaitTime for the
	// last request to end: set less where a shutdown must be faster. It is in whole
	// seconds, from 1 s to 20 s, the default.
	WaitTime time.Duration

	// NoLongDelays makes Provision create no queue for delays above 15 minutes, and the
	// endpoints look for none: Capabilities.MaxDelay is 15 minutes at most. Set it where no message
	// waits for longer, to have half as many queues and requests.
	NoLongDelays bool

	// MaxDelay is the longest delay that a message may have. A longer one is refused when it is
	// sent, and cut to MaxDelay in a message of another sender: its attributes ask for it, and
	// any sender can write them. It is in whole seconds, from 1 s to 100 years. The default is
	// 10 years.
	MaxDelay time.Duration

	// Format is the format of sent messages. All formats are read. The default is
	// Wrapped.
	Format Format

	// Bodies stores the bodies of messages that are too large for the service, and bodies
	// of LargeBodies bytes or more. Without it, messages that are too large are refused.
	// All senders and receivers of messages with stored bodies need the same store. The
	// package transport/sqs/s3bodies has one that uses Amazon S3.
	Bodies Bodies

	// LargeBodies is the minimum size, in bytes, of a body that is stored in Bodies. Set it
	// where queues must not contain the data of messages: 1 stores every body. By default
	// only bodies that the service does not accept are stored.
	LargeBodies int

	// MaxMessageBytes is the maximum size of a sent message, headers and body together. The
	// default, and the maximum without Bodies, is 640 KiB: base64 text with its headers must
	// fit into 1 MiB. With Bodies the default is 64 MiB; set it for larger messages, up to
	// 2 GiB less one byte. A published event must fit into 256 KiB, or its body goes to
	// Bodies. A received message with a larger body in Bodies is malformed.
	MaxMessageBytes int

	// IgnoreMissingTopics lets a Publish succeed even if the topic does not exist,
	// because it has no subscriber yet, as NServiceBus does. Set it where publishers are
	// deployed before subscribers. By default Publish returns an error that names the
	// topic.
	IgnoreMissingTopics bool

	// KMSKey is the id, the alias or the ARN of the key that encrypts the queues and
	// topics which Provision and Subscribe create. The default is SQS's own encryption.
	KMSKey string

	// MessageType returns the type of a foreign message in queue: one without the header
	// NServiceBus.EnclosedMessageTypes and the attribute MessageTypeFullName. "" means no
	// type. It must not keep or change m. Several goroutines call it at the same time. If
	// it is nil, the default, foreign messages have no type.
	MessageType func(queue string, m *types.Message) string
}

const (
	defaultVisibility = 30 * time.Second
	maxVisibility     = 12 * time.Hour // the service's limit
	maxWait           = 20 * time.Second
	retention         = message.Retention
	maxNativeDelay    = 15 * time.Minute
	year              = 8766 * time.Hour
	defaultMaxDelay   = 10 * year
	longestMaxDelay   = 100 * year
	serviceLimit      = 1 << 20   // of a message in SQS, with its attributes
	topicLimit        = 256 << 10 // of a message in SNS

	// These fit into serviceLimit with any content: headers are at most 2.7 times as long
	// on the wire, bodies 4/3 times.
	maxHeaderBytes         = 64 << 10
	maxUnstoredBytes       = 640 << 10
	defaultStoredBytes     = 64 << 20
	maxStoredBytes         = math.MaxInt32
	receiveBatch           = 10
	maxUnsettled           = 120_000 // in flight, of both kinds of queues (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-fifo.html)
	maxQueueNameLength     = 80
	maxTopicNameLength     = 256
	fifoSuffix             = ".fifo"
	delaySuffix            = "-delay" + fifoSuffix
	requestTimeout         = 15 * time.Second // of a request that does not wait for messages
	deliveryDelayPrecision = time.Second
)

// Format is the format of a message in a queue.
type Format int

const (
	// Wrapped is a JSON object with the headers, and the body in base64, which all
	// versions of NServiceBus read. A text that is too large for it is Raw, if there is no
	// Config.Bodies.
	Wrapped Format = iota

	// Raw is the unchanged body, for readers that know no wrapper, with the headers in a
	// message attribute. A body that the service does not accept, such as a picture, is
	// in base64.
	Raw
)

// String returns the format's name as configuration files write it.
func (f Format) String() string {
	switch f {
	case Wrapped:
		return "Wrapped"
	case Raw:
		return "Raw"
	default:
		return fmt.Sprintf("Format(%d)", int(f))
	}
}

// MarshalText writes the format's name.
func (f Format) MarshalText() ([]byte, error) {
	if f < Wrapped || f > Raw {
		return nil, fmt.Errorf("sqs: there is no %v", f)
	}
	return []byte(f.String()), nil
}

// UnmarshalText reads the name that String writes.
func (f *Format) UnmarshalText(text []byte) error {
	for known := Wrapped; known <= Raw; known++ {
		if known.String() == string(text) {
			*f = known
			return nil
		}
	}
	return fmt.Errorf("unknown format %q; use Wrapped or Raw", text)
}

// complete checks the configuration and sets the defaults. Its error lists all mistakes.
func (c *Config) complete() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	duration := func(name string, d *time.Duration, minimum, maximum, standard time.Duration) {
		switch {
		case *d == 0:
			*d = standard
		case *d < minimum || *d > maximum || *d%time.Second != 0:
			wrong("Config.%s is %v, but must be from %v to %v in whole seconds, or 0 for the default of %v", name, *d, minimum, maximum, standard)
		}
	}
	duration("VisibilityTimeout", &c.VisibilityTimeout, time.Second, maxVisibility, defaultVisibility)
	duration("WaitTime", &c.WaitTime, time.Second, maxWait, maxWait)
	duration("MaxDelay", &c.MaxDelay, time.Second, longestMaxDelay, defaultMaxDelay)
	if c.Format < Wrapped || c.Format > Raw {
		wrong("Config.Format is %d; use Wrapped or Raw", int(c.Format))
	}
	if c.LargeBodies < 0 {
		wrong("Config.LargeBodies is %d, but must be more than 0, or 0 for bodies that the service does not take", c.LargeBodies)
	}
	if c.LargeBodies > 0 && c.Bodies == nil {
		wrong("Config.LargeBodies is %d, but there is no store for them; set Config.Bodies", c.LargeBodies)
	}
	maxBytes, standard := maxUnstoredBytes, maxUnstoredBytes
	if c.Bodies != nil {
		maxBytes, standard = maxStoredBytes, defaultStoredBytes
	}
	switch {
	case c.MaxMessageBytes == 0:
		c.MaxMessageBytes = standard
	case c.MaxMessageBytes < 0 || c.MaxMessageBytes > maxBytes:
		wrong("Config.MaxMessageBytes is %d, but must be from 1 to %d, or 0 for the default of %d; with Config.Bodies it may be up to %d", c.MaxMessageBytes, maxBytes, standard, maxStoredBytes)
	}
	if err := checkPrefix(c.QueuePrefix, maxQueueNameLength-len(delaySuffix)-1); err != nil {
		wrong("Config.QueuePrefix %w", err)
	}
	if err := checkPrefix(c.TopicPrefix, maxTopicNameLength-1); err != nil {
		wrong("Config.TopicPrefix %w", err)
	}
	return errors.Join(errs...)
}

// String returns the configuration without credentials. fmt, slog and encoding/json show a
// Config like this, also within other values. fmt cannot do so for an unexported field of
// another struct: give that struct a String method.
func (c Config) String() string { return fmt.Sprintf("%+v", c.shown()) }

// GoString returns the same as String.
func (c Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer with the text of String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON writes the configuration as String shows it: only the region of AWS, and
// neither Bodies nor MessageType. To store a configuration, store its fields.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.shown()) }

// shownConfig has the fields of a Config that are not secret.
type shownConfig struct {
	Region, QueuePrefix, TopicPrefix string
	VisibilityTimeout, WaitTime      time.Duration
	NoLongDelays                     bool
	MaxDelay                         time.Duration
	Format                           Format
	LargeBodies, MaxMessageBytes     int
	IgnoreMissingTopics              bool
	KMSKey                           string
}

func (c Config) shown() shownConfig {
	s := shownConfig{
		QueuePrefix: c.QueuePrefix, TopicPrefix: c.TopicPrefix,
		VisibilityTimeout: c.VisibilityTimeout, WaitTime: c.WaitTime,
		NoLongDelays: c.NoLongDelays, MaxDelay: c.MaxDelay, Format: c.Format,
		LargeBodies: c.LargeBodies, MaxMessageBytes: c.MaxMessageBytes,
		IgnoreMissingTopics: c.IgnoreMissingTopics, KMSKey: c.KMSKey,
	}
	if c.AWS != nil {
		s.Region = sdkclient.ShownRegion(c.AWS.Region)
	}
	return s
}

// capabilities returns the capabilities of a transport with the configuration.
func capabilities(c *Config) core.Capabilities {
	caps := core.Capabilities{
		Transactions: []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly},
		Abilities: core.Abilities{
			DelayedDelivery:  true,
			PublishSubscribe: true,
			TimeToBeReceived: true,
			GroupOrder:       true, // of FIFO queues
		},
		Limits: core.Limits{
			DelayPrecision:  deliveryDelayPrecision,
			MaxDelay:        c.MaxDelay,
			MaxLockTime:     maxVisibility,
			MaxReceiveBatch: receiveBatch,
			MaxUnsettled:    maxUnsettled,
			MaxMessageBytes: c.MaxMessageBytes,
			MaxHeaderBytes:  maxHeaderBytes,
			MaxQueueName:    c.maxQueueName(),
			MaxTopicName:    c.maxTopicName(),
		},
		Guarantees: core.Guarantees{
			NativeDeliveryCount: true,
			CountsReleases:      true,
			Durable:             true,
			ConfirmsSettlement:  true,
			MayDuplicate:        true,
		},
	}
	if c.NoLongDelays {
		caps.MaxDelay = min(c.MaxDelay, maxNativeDelay)
	}
	return caps
}

// newCodec returns the codec of a complete configuration.
func newCodec(c *Config) *message.Codec {
	k := &message.Codec{Raw: c.Format == Raw, LargeBodies: c.LargeBodies, MessageType: c.MessageType}
	if c.Bodies != nil {
		k.Bodies = c.Bodies
	}
	return k
}
