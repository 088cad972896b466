package asb

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
	"github.com/reprise-go/reprise/transport/asb/internal/names"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// Config has the namespace, the credentials and the properties of queues and topics.
// Either Namespace or ConnectionString is required.
type Config struct {
	// Namespace is the host name of the Service Bus namespace, such as "shop.servicebus.windows.net".
	Namespace string

	// Credential signs in to Namespace. The default is azidentity's DefaultAzureCredential: the environment, a workload or
	// managed identity, or the Azure CLI.
	Credential azcore.TokenCredential

	// ConnectionString is the connection string of a shared access policy, or of the
	// emulator. It is a secret.
	ConnectionString string

	// Client has the SDK's options of connections: TLS, web sockets through a proxy,
	// another address. RetryOptions are not used: the adapter has its own retries.
	Client azservicebus.ClientOptions

	// Admin has the SDK's options of requests that create and read queues and topics.
	Admin admin.ClientOptions

	// AdminEndpoint is the URL of these requests where it is not "https://" and the namespace, such as
	// "http://localhost:5300" for the emulator.
	AdminEndpoint string

	// NoAdmin keeps the adapter from requests that need the right Manage. Set it where the
	// program does not have that right. The errors of Provision and Unsubscribe, and a
	// warning of Subscribe, then contain the equivalent az commands, and MaxDeliveryCount
	// and sessions of queues are not checked.
	NoAdmin bool

	// QueuePrefix is put before the name of every queue, and TopicPrefix before that of
	// every topic, such as "test.", so that several environments can share a namespace.
	// Addresses do not have the prefix.
	QueuePrefix, TopicPrefix string

	// SessionQueues are the names of the queues that require sessions, or patterns for
	// path.Match, such as "orders*". These queues keep the messages of a group in order.
	// Each process that sends to such a queue or receives from it has to list it.
	SessionQueues []string

	// LockDuration is how long the queues that Provision creates lock a message; the
	// engine renews locks. After the death of a process its messages are redelivered when
	// this time has passed: set less where that is too late. It is from 5 s to 5 min. The
	// default is 1 min.
	LockDuration time.Duration

	// MaxPostpone is the longest delayed retry or deferral of a message of a group, which holds its group until then. A later
	// time in a message is ignored: a sender may have written it. All processes that receive from a queue should have the same
	// value. The default is 30 days.
	MaxPostpone time.Duration

	// IgnoreMissingTopics lets a Publish succeed even if the topic does not exist,
	// because it has no subscriber yet, as NServiceBus does. Set it where publishers are
	// deployed before subscribers. By default Publish returns an error that names the
	// topic.
	IgnoreMissingTopics bool

	// MaxMessageBytes is the maximum size of a sent message, headers and body together. The
	// default is 240 KiB, which fits into the 256 KiB of the standard tier with
	// everything that the service adds. Set it in the premium tier: up to 1,000 KiB, and
	// up to 100 MiB if queues allow large messages.
	MaxMessageBytes int

	// CustomizeQueue may change the properties of a queue before Provision creates it:
	// its size, partitions, forwarding of dead letters, for example. Several goroutines
	// call it at the same time. It is for teams whose queues are not made by Bicep.
	CustomizeQueue func(queue string, properties *admin.QueueProperties)

	// CustomizeSubscription may change the properties of a subscription before Subscribe creates it: its MaxDeliveryCount or the forwarding of dead
	// letters, for example, but not ForwardTo and DefaultRule. Several goroutines call
	// it at the same time.
	CustomizeSubscription func(queue, topic string, properties *admin.SubscriptionProperties)

	// MessageType returns the type of a foreign message in queue: one without the header
	// NServiceBus.EnclosedMessageTypes. "" means no type. It must not keep or change m.
	// Several goroutines call it at the same time. If it is nil, the default, foreign
	// messages have no type.
	MessageType func(queue string, m *azservicebus.ReceivedMessage) string
}

const (
	defaultLock = time.Minute
	minLock     = 5 * time.Second // the service's limits
	maxLock     = 5 * time.Minute

	defaultPostpone = 30 * 24 * time.Hour

	defaultMessageBytes = 240 << 10
	maxMessageBytes     = 100<<20 - 64<<10

	requestTimeout = sdkclient.RequestTimeout // of a request that does not wait for messages
	delayPrecision = time.Second
)

// complete checks the configuration and sets the defaults. Its error lists all mistakes.
func (c *Config) complete() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Namespace == "" && c.ConnectionString == "":
		wrong("there is no namespace; set Config.Namespace to its host name, such as shop.servicebus.windows.net, or Config.ConnectionString")
	case c.Namespace != "" && c.ConnectionString != "":
		wrong("both Config.Namespace and Config.ConnectionString are set; remove one of them")
	case c.ConnectionString != "" && c.Credential != nil:
		wrong("Config.Credential is set beside Config.ConnectionString, which has a key; remove one of them")
	case c.ConnectionString != "":
		if err := checkConnectionString(c.ConnectionString); err != nil {
			wrong("Config.ConnectionString %w", err)
		}
	case !sdkclient.IsHost(c.Namespace) || strings.Contains(c.Namespace, ":"):
		wrong("Config.Namespace must be a host name alone, such as shop.servicebus.windows.net; a connection string belongs in Config.ConnectionString")
	case !strings.Contains(c.Namespace, "."):
		wrong("Config.Namespace must be the whole host name, such as shop.servicebus.windows.net")
	}
	if c.LockDuration == 0 {
		c.LockDuration = defaultLock
	} else if c.LockDuration < minLock || c.LockDuration > maxLock {
		wrong("Config.LockDuration is %v, but must be from %v to %v, or 0 for the default of %v", c.LockDuration, minLock, maxLock, defaultLock)
	}
	if c.MaxPostpone == 0 {
		c.MaxPostpone = defaultPostpone
	} else if c.MaxPostpone < 0 {
		wrong("Config.MaxPostpone is %v, but must be above 0, or 0 for the default of %v", c.MaxPostpone, defaultPostpone)
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = defaultMessageBytes
	} else if c.MaxMessageBytes < 0 || c.MaxMessageBytes > maxMessageBytes {
		wrong("Config.MaxMessageBytes is %d, but must be from 1 to %d, or 0 for the default of %d", c.MaxMessageBytes, maxMessageBytes, defaultMessageBytes)
	}
	if c.AdminEndpoint != "" && c.adminURL() == nil {
		wrong("Config.AdminEndpoint must be a URL such as http://localhost:5300")
	}
	if c.Client.CustomEndpoint != "" && !sdkclient.IsHost(c.Client.CustomEndpoint) {
		wrong("Config.Client.CustomEndpoint must be a host name, with a port or without, such as proxy.example.com:5671")
	}
	for i, pattern := range c.SessionQueues {
		if _, err := path.Match(pattern, ""); err != nil {
			wrong("Config.SessionQueues[%d] is no pattern of path.Match", i)
		}
	}
	for _, prefix := range []struct{ field, text string }{{"QueuePrefix", c.QueuePrefix}, {"TopicPrefix", c.TopicPrefix}} {
		if err := names.CheckPrefix(prefix.text); err != nil {
			wrong("Config.%s %w", prefix.field, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.ConnectionString == "" && c.Credential == nil {
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return fmt.Errorf("find credentials for %s: %w", c.Namespace, err)
		}
		c.Credential = credential
	}
	c.Client.RetryOptions = azservicebus.RetryOptions{MaxRetries: -1}
	return nil
}

// checkConnectionString finds mistakes for which the SDK's error would quote the text,
// and so a key.
func checkConnectionString(text string) error {
	has := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		if part == "" {
			continue
		}
		name, value, found := strings.Cut(part, "=")
		if !found {
			return errors.New("cannot be read: one of its parts, which semicolons separate, is not NAME=VALUE; copy it again from the portal")
		}
		has[strings.ToLower(strings.TrimSpace(name))] = value
	}
	u, err := url.Parse(has["endpoint"])
	switch {
	case err != nil || !sdkclient.IsHost(u.Host):
		return errors.New("has no Endpoint=sb://NAMESPACE/; copy it again from the portal")
	case has["entitypath"] != "":
		return errors.New("has an EntityPath, so that it is that of one queue or topic; use the connection string of the namespace, or remove EntityPath where the policy suffices")
	case has["sharedaccesssignature"] == "" && has["sharedaccesskeyname"] == "":
		return errors.New("has no SharedAccessKeyName; copy it again from the portal")
	case has["sharedaccesssignature"] == "" && has["sharedaccesskey"] == "":
		return errors.New("has no SharedAccessKey; copy it again from the portal")
	}
	return nil
}

// names returns how queues and topics are named.
func (c *Config) names() names.Namespace {
	return names.Namespace{QueuePrefix: c.QueuePrefix, TopicPrefix: c.TopicPrefix, SessionQueues: c.SessionQueues}
}

// client returns where the service is, and how to sign in.
func (c *Config) client() *sdkclient.Config {
	return &sdkclient.Config{Namespace: c.Namespace, Credential: c.Credential, ConnectionString: c.ConnectionString, Options: c.Client}
}

// connect returns a client with a separate connection, which it opens when it is first used.
func (c *Config) connect() (*sdkclient.Client, error) { return sdkclient.New(c.client()) }

// host returns the host name of the namespace, from either field.
func (c *Config) host() string { return c.client().Host() }

// adminURL returns the scheme and the host of AdminEndpoint, which are all of it that is used, or nil if it has none.
func (c *Config) adminURL() *url.URL {
	u, err := url.Parse(c.AdminEndpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !sdkclient.IsHost(u.Host) {
		return nil
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}
}

// weaknesses returns warnings about connections to other machines that are not encrypted or do not verify the server.
func (c *Config) weaknesses() (texts []string) {
	if host := c.client().PlainText(); host != "" {
		texts = append(texts, "connections to "+host+" are not encrypted, so that another machine in the network can read and change messages; to fix: remove UseDevelopmentEmulator=true from Config.ConnectionString, or run the emulator on this machine")
	}
	if u := c.adminURL(); u != nil && u.Scheme == "http" && !transport.IsLocalHost(u.Hostname()) {
		texts = append(texts, "requests to "+u.Host+" that create and read queues and topics are not encrypted, so that another machine in the network can learn their tokens; to fix: begin Config.AdminEndpoint with https://")
	}
	if tls := c.Client.TLSConfig; tls != nil && !transport.VerifiesServer(tls) {
		texts = append(texts, "connections to "+c.host()+" do not verify the server's certificate, so that a program between this one and the service could read messages; to fix: remove InsecureSkipVerify from Config.Client.TLSConfig")
	}
	return texts
}

// String returns the configuration without secrets. fmt, slog and encoding/json show a
// Config like this, also within other values. fmt cannot do so for an unexported field of
// another struct: give that struct a String method.
func (c Config) String() string { return fmt.Sprintf("%+v", c.shown()) }

// GoString returns the same as String.
func (c Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer with the text of String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON writes the configuration as String shows it: only the host name of
// ConnectionString, and no functions. To store a configuration, store its fields.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.shown()) }

// shownConfig has the fields of a Config that are not secret, and only such values of them that they can have.
type shownConfig struct {
	Namespace                string
	AdminEndpoint            string
	NoAdmin                  bool
	QueuePrefix, TopicPrefix string
	SessionQueues            []string
	LockDuration             time.Duration
	MaxPostpone              time.Duration
	IgnoreMissingTopics      bool
	MaxMessageBytes          int
}

func (c Config) shown() shownConfig {
	s := shownConfig{
		Namespace: c.host(), NoAdmin: c.NoAdmin, QueuePrefix: shownName(c.QueuePrefix), TopicPrefix: shownName(c.TopicPrefix),
		LockDuration: c.LockDuration, MaxPostpone: c.MaxPostpone, IgnoreMissingTopics: c.IgnoreMissingTopics, MaxMessageBytes: c.MaxMessageBytes,
	}
	for _, pattern := range c.SessionQueues {
		s.SessionQueues = append(s.SessionQueues, shownName(pattern))
	}
	if s.Namespace == "" && c.Namespace != "" {
		s.Namespace = notShown
	}
	if u := c.adminURL(); u != nil {
		s.AdminEndpoint = u.String()
	} else if c.AdminEndpoint != "" {
		s.AdminEndpoint = notShown
	}
	return s
}

// notShown stands for a value that a field cannot have, and that may be a secret of another one.
const notShown = "(not shown)"

// shownName returns the beginning of a name, or a pattern of names.
func shownName(text string) string {
	if !names.IsPattern(text) {
		return notShown
	}
	return text
}

// capabilities returns the capabilities of a transport with the configuration.
func capabilities(c *Config) core.Capabilities {
	return core.Capabilities{
		Transactions: []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly},
		Abilities: core.Abilities{
			DelayedDelivery:  true,
			PublishSubscribe: true,
			TimeToBeReceived: true,
			DeadLetter:       true,
			GroupOrder:       true, // of session queues
			Prefetch:         true,
			Browse:           true,
		},
		Limits: core.Limits{
			DelayPrecision:  delayPrecision,
			MaxMessageBytes: c.MaxMessageBytes,
			MaxHeaderBytes:  message.MaxHeaderBytes,
			MaxQueueName:    c.names().MaxQueueName(),
			MaxTopicName:    c.names().MaxTopicName(),
		},
		Guarantees: core.Guarantees{
			NativeDeliveryCount: true,
			Durable:             true,
			ConfirmsSettlement:  true,
		},
	}
}

// emulatorDeliveries is the largest MaxDeliveryCount, and emulatorTimeToLive the longest DefaultMessageTimeToLive, of Microsoft's emulator
// (Config-schema.json of azure-service-bus-emulator-installer).
const (
	emulatorDeliveries = 10
	emulatorTimeToLive = "PT1H"
)

// maxDeliveryCount is the MaxDeliveryCount of the queues that Provision creates. The engine
// counts attempts, and the service must not dead-letter a message before the engine does.
const maxDeliveryCount = math.MaxInt32
