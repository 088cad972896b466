package properties

import (
	"math"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// Settings are the properties of any entity.
type Settings struct {
	Queue
	DropOnFilterErrors bool
	SupportOrdering    bool
	ForwardID          uint64 // of the entity that ForwardTo of a subscription named when it was set
}

// Limits are the limits of a namespace.
type Limits struct {
	Tier     Tier
	Emulator bool // those of Microsoft's emulator
}

// These are the limits of properties (pages service-bus-quotas, message-expiration,
// duplicate-detection).
const (
	minLockDuration = time.Second
	maxLockDuration = 5 * time.Minute
	minAutoDelete   = 5 * time.Minute
	minWindow       = 20 * time.Second
	maxWindow       = 7 * 24 * time.Hour

	// "The default value is PT1H (1 hour), the minimum value is PT5M (5 minutes) and the maximum
	// value is PT1H (1 hour)" of DefaultMessageTimeToLive, and MaxDeliveryCount is 10 at most
	// (azure-service-bus-emulator-installer, Config-schema.json).
	minEmulatorTimeToLive = 5 * time.Minute
	maxEmulatorTimeToLive = time.Hour
	maxEmulatorDeliveries = 10
)

// Queue fills in the defaults of a queue, and refuses values outside the limits.
func (l Limits) Queue(p Queue) (Settings, error) {
	s := Settings{Queue: p}
	return s, l.Complete(&s)
}

// Topic is queue for a topic.
func (l Limits) Topic(p Topic) (Settings, error) {
	s := Settings{Queue: Queue{
		DefaultMessageTimeToLive: p.DefaultMessageTimeToLive, RequiresDuplicateDetection: p.RequiresDuplicateDetection,
		DuplicateDetectionWindow: p.DuplicateDetectionWindow, Status: p.Status, AutoDeleteOnIdle: p.AutoDeleteOnIdle,
		EnablePartitioning: p.EnablePartitioning, MaxSizeInMegabytes: p.MaxSizeInMegabytes,
		MaxMessageSizeInKilobytes: p.MaxMessageSizeInKilobytes, DisableBatchedOperations: p.DisableBatchedOperations,
		UserMetadata: p.UserMetadata,
	}, SupportOrdering: p.SupportOrdering}
	return s, l.Complete(&s)
}

// Subscription is queue for a subscription.
func (l Limits) Subscription(p Subscription) (Settings, error) {
	s := Settings{Queue: Queue{
		LockDuration: p.LockDuration, MaxDeliveryCount: p.MaxDeliveryCount, DefaultMessageTimeToLive: p.DefaultMessageTimeToLive,
		DeadLetteringOnMessageExpiration: p.DeadLetteringOnMessageExpiration, RequiresSession: p.RequiresSession,
		ForwardTo: p.ForwardTo, ForwardDeadLetteredMessagesTo: p.ForwardDeadLetteredMessagesTo, Status: p.Status,
		AutoDeleteOnIdle: p.AutoDeleteOnIdle, DisableBatchedOperations: p.DisableBatchedOperations, UserMetadata: p.UserMetadata,
	}, DropOnFilterErrors: p.DropOnFilterErrors}
	return s, l.Complete(&s)
}

// Topic returns the settings of a topic.
func (s *Settings) Topic() Topic {
	return Topic{
		DefaultMessageTimeToLive: s.DefaultMessageTimeToLive, RequiresDuplicateDetection: s.RequiresDuplicateDetection,
		DuplicateDetectionWindow: s.DuplicateDetectionWindow, Status: s.Status, AutoDeleteOnIdle: s.AutoDeleteOnIdle,
		EnablePartitioning: s.EnablePartitioning, SupportOrdering: s.SupportOrdering, MaxSizeInMegabytes: s.MaxSizeInMegabytes,
		MaxMessageSizeInKilobytes: s.MaxMessageSizeInKilobytes, DisableBatchedOperations: s.DisableBatchedOperations,
		UserMetadata: s.UserMetadata,
	}
}

// Subscription returns the settings of a subscription.
func (s *Settings) Subscription() Subscription {
	return Subscription{
		LockDuration: s.LockDuration, MaxDeliveryCount: s.MaxDeliveryCount, DefaultMessageTimeToLive: s.DefaultMessageTimeToLive,
		DeadLetteringOnMessageExpiration: s.DeadLetteringOnMessageExpiration, DropOnFilterErrors: s.DropOnFilterErrors,
		RequiresSession: s.RequiresSession, ForwardTo: s.ForwardTo, ForwardDeadLetteredMessagesTo: s.ForwardDeadLetteredMessagesTo,
		Status: s.Status, AutoDeleteOnIdle: s.AutoDeleteOnIdle, DisableBatchedOperations: s.DisableBatchedOperations, UserMetadata: s.UserMetadata,
	}
}

// Complete fills in defaults and checks limits.
func (l Limits) Complete(s *Settings) error {
	minTimeToLive, maxTimeToLive, maxDeliveries := time.Second, MaxTimeToLive, int32(math.MaxInt32)
	if l.Emulator {
		minTimeToLive, maxTimeToLive, maxDeliveries = minEmulatorTimeToLive, maxEmulatorTimeToLive, maxEmulatorDeliveries
	}
	setDefault(&s.LockDuration, time.Minute)
	setDefault(&s.MaxDeliveryCount, 10)
	setDefault(&s.DefaultMessageTimeToLive, maxTimeToLive)
	setDefault(&s.DuplicateDetectionWindow, 10*time.Minute)
	setDefault(&s.Status, StatusActive)
	setDefault(&s.AutoDeleteOnIdle, MaxTimeToLive)
	setDefault(&s.MaxSizeInMegabytes, 1024)
	switch {
	case s.LockDuration < minLockDuration || s.LockDuration > maxLockDuration:
		return outOfRange("LockDuration", s.LockDuration, minLockDuration, maxLockDuration)
	case s.MaxDeliveryCount < 1 || s.MaxDeliveryCount > maxDeliveries:
		return outOfRange("MaxDeliveryCount", s.MaxDeliveryCount, 1, maxDeliveries)
	case s.DefaultMessageTimeToLive < minTimeToLive || s.DefaultMessageTimeToLive > maxTimeToLive:
		return outOfRange("DefaultMessageTimeToLive", s.DefaultMessageTimeToLive, minTimeToLive, maxTimeToLive)
	case s.DuplicateDetectionWindow < minWindow || s.DuplicateDetectionWindow > maxWindow:
		return outOfRange("DuplicateDetectionHistoryTimeWindow", s.DuplicateDetectionWindow, minWindow, maxWindow)
	case s.AutoDeleteOnIdle < minAutoDelete:
		return outOfRange("AutoDeleteOnIdle", s.AutoDeleteOnIdle, minAutoDelete, MaxTimeToLive)
	case s.MaxSizeInMegabytes < 1:
		return outOfRange("MaxSizeInMegabytes", s.MaxSizeInMegabytes, 1, 80<<10)
	case s.MaxMessageSizeInKilobytes != 0 && l.Tier != Premium:
		return condition.Errorf(condition.NotAllowed, "MaxMessageSizeInKilobytes is %d, but only the Premium tier has that setting.", s.MaxMessageSizeInKilobytes)
	}
	// "Autoforwarding isn't supported for session-enabled queues or subscriptions", and with it "the
	// value for AutoDeleteOnIdle on the source entity is automatically set to the maximum value"
	// (page service-bus-auto-forwarding).
	if s.ForwardTo != "" {
		if s.RequiresSession {
			return condition.Errorf(condition.NotAllowed, "An entity that requires sessions cannot forward messages, but ForwardTo is '%s'.", s.ForwardTo)
		}
		s.AutoDeleteOnIdle = MaxTimeToLive
	}
	switch s.Status {
	case StatusActive, StatusDisabled, StatusSendDisabled, StatusReceiveDisabled:
	default:
		return condition.Errorf(condition.Argument, "Status is %q, which is none of Active, Disabled, SendDisabled, ReceiveDisabled.", s.Status)
	}
	return nil
}

func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

func outOfRange(name string, value, lowest, highest any) error {
	return condition.Errorf(condition.ArgumentRange, "%s is %v, but it has to be from %v to %v.", name, value, lowest, highest)
}

// LimitTTL returns the time to live of a message in an entity; ttl is 0 if the sender gave none.
// "The default expiration is used for all messages sent to the entity where time-to-live isn't
// explicitly set", it "also functions as a ceiling", and longer values are "silently adjusted"
// (page message-expiration, "Entity-level expiration").
func (s *Settings) LimitTTL(ttl time.Duration) time.Duration {
	limit := s.DefaultMessageTimeToLive
	if ttl <= 0 || ttl > limit {
		return limit
	}
	return ttl
}

// The limits of page service-bus-quotas.
const (
	standardMessageSize = 256 << 10 // "Message size": 256 KB for Standard tier
	premiumMessageSize  = 1 << 20   // 1 MB for Premium without large messages
)

// MaxMessageSize returns the most bytes of a message or a batch in an entity.
func (l Limits) MaxMessageSize(s *Settings) int64 {
	if kb := s.MaxMessageSizeInKilobytes; kb > 0 {
		return kb << 10
	}
	if l.Tier == Premium {
		return premiumMessageSize
	}
	return standardMessageSize
}

// MaxSize returns the capacity of an entity in bytes.
func (s *Settings) MaxSize() int64 { return int64(s.MaxSizeInMegabytes) << 20 }
