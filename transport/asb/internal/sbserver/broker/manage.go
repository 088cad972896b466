package broker

import (
	"math"
	"strings"
	"time"
)

// These are the limits of properties (pages service-bus-quotas, message-expiration,
// duplicate-detection).
const (
	minLockDuration = time.Second
	maxLockDuration = 5 * time.Minute
	minAutoDelete   = 5 * time.Minute
	minWindow       = 20 * time.Second
	maxWindow       = 7 * 24 * time.Hour
	maxNameLength   = 260 // of a queue or topic
	maxSubscription = 50  // length of the name of a subscription or rule

	// "The default value is PT1H (1 hour), the minimum value is PT5M (5 minutes) and the maximum
	// value is PT1H (1 hour)" of DefaultMessageTimeToLive, and MaxDeliveryCount is 10 at most
	// (azure-service-bus-emulator-installer, Config-schema.json).
	minEmulatorTimeToLive = 5 * time.Minute
	maxEmulatorTimeToLive = time.Hour
	maxEmulatorDeliveries = 10
)

// queueSettings fills in the defaults of a queue, and refuses values outside the limits.
func (b *Broker) queueSettings(p QueueProperties) (settings, error) {
	s := settings{QueueProperties: p}
	return s, b.complete(&s)
}

func (b *Broker) topicSettings(p TopicProperties) (settings, error) {
	s := settings{QueueProperties: QueueProperties{
		DefaultMessageTimeToLive: p.DefaultMessageTimeToLive, RequiresDuplicateDetection: p.RequiresDuplicateDetection,
		DuplicateDetectionWindow: p.DuplicateDetectionWindow, Status: p.Status, AutoDeleteOnIdle: p.AutoDeleteOnIdle,
		EnablePartitioning: p.EnablePartitioning, MaxSizeInMegabytes: p.MaxSizeInMegabytes,
		MaxMessageSizeInKilobytes: p.MaxMessageSizeInKilobytes, DisableBatchedOperations: p.DisableBatchedOperations,
		UserMetadata: p.UserMetadata,
	}, SupportOrdering: p.SupportOrdering}
	return s, b.complete(&s)
}

func (b *Broker) subscriptionSettings(p SubscriptionProperties) (settings, error) {
	s := settings{QueueProperties: QueueProperties{
		LockDuration: p.LockDuration, MaxDeliveryCount: p.MaxDeliveryCount, DefaultMessageTimeToLive: p.DefaultMessageTimeToLive,
		DeadLetteringOnMessageExpiration: p.DeadLetteringOnMessageExpiration, RequiresSession: p.RequiresSession,
		ForwardTo: p.ForwardTo, ForwardDeadLetteredMessagesTo: p.ForwardDeadLetteredMessagesTo, Status: p.Status,
		AutoDeleteOnIdle: p.AutoDeleteOnIdle, DisableBatchedOperations: p.DisableBatchedOperations, UserMetadata: p.UserMetadata,
	}, DropOnFilterErrors: p.DropOnFilterErrors}
	return s, b.complete(&s)
}

func (s *settings) topic() TopicProperties {
	return TopicProperties{
		DefaultMessageTimeToLive: s.DefaultMessageTimeToLive, RequiresDuplicateDetection: s.RequiresDuplicateDetection,
		DuplicateDetectionWindow: s.DuplicateDetectionWindow, Status: s.Status, AutoDeleteOnIdle: s.AutoDeleteOnIdle,
		EnablePartitioning: s.EnablePartitioning, SupportOrdering: s.SupportOrdering, MaxSizeInMegabytes: s.MaxSizeInMegabytes,
		MaxMessageSizeInKilobytes: s.MaxMessageSizeInKilobytes, DisableBatchedOperations: s.DisableBatchedOperations,
		UserMetadata: s.UserMetadata,
	}
}

func (s *settings) subscription() SubscriptionProperties {
	return SubscriptionProperties{
		LockDuration: s.LockDuration, MaxDeliveryCount: s.MaxDeliveryCount, DefaultMessageTimeToLive: s.DefaultMessageTimeToLive,
		DeadLetteringOnMessageExpiration: s.DeadLetteringOnMessageExpiration, DropOnFilterErrors: s.DropOnFilterErrors,
		RequiresSession: s.RequiresSession, ForwardTo: s.ForwardTo, ForwardDeadLetteredMessagesTo: s.ForwardDeadLetteredMessagesTo,
		Status: s.Status, AutoDeleteOnIdle: s.AutoDeleteOnIdle, DisableBatchedOperations: s.DisableBatchedOperations, UserMetadata: s.UserMetadata,
	}
}

// complete fills in defaults and checks limits.
func (b *Broker) complete(s *settings) error {
	minTimeToLive, maxTimeToLive, maxDeliveries := time.Second, MaxTimeToLive, int32(math.MaxInt32)
	if b.cfg.EmulatorLimits {
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
	case s.MaxMessageSizeInKilobytes != 0 && b.cfg.Tier != Premium:
		return errorf(CondNotAllowed, "MaxMessageSizeInKilobytes is %d, but only the Premium tier has that setting.", s.MaxMessageSizeInKilobytes)
	}
	// "Autoforwarding isn't supported for session-enabled queues or subscriptions", and with it "the
	// value for AutoDeleteOnIdle on the source entity is automatically set to the maximum value"
	// (page service-bus-auto-forwarding).
	if s.ForwardTo != "" {
		if s.RequiresSession {
			return errorf(CondNotAllowed, "An entity that requires sessions cannot forward messages, but ForwardTo is '%s'.", s.ForwardTo)
		}
		s.AutoDeleteOnIdle = MaxTimeToLive
	}
	switch s.Status {
	case StatusActive, StatusDisabled, StatusSendDisabled, StatusReceiveDisabled:
	default:
		return errorf(CondArgument, "Status is %q, which is none of Active, Disabled, SendDisabled, ReceiveDisabled.", s.Status)
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
	return errorf(CondArgumentRange, "%s is %v, but it has to be from %v to %v.", name, value, lowest, highest)
}

// CreateQueue creates a queue. An entity with its name is refused with [CondEntityAlreadyExists].
func (b *Broker) CreateQueue(name string, p QueueProperties) (err error) {
	b.lock()
	defer b.finish(&err)
	_, err = b.createQueueLocked(name, p)
	return err
}

func (b *Broker) createQueueLocked(name string, p QueueProperties) (*entity, error) {
	s, err := b.queueSettings(p)
	if err != nil {
		return nil, err
	}
	if err := b.checkNewLocked(name, s); err != nil {
		return nil, err
	}
	e := b.newEntity(KindQueue, nil, name, s)
	b.addLocked(e)
	return e, nil
}

// CreateTopic creates a topic. An entity with its name is refused with [CondEntityAlreadyExists].
func (b *Broker) CreateTopic(name string, p TopicProperties) (err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.topicSettings(p)
	if err != nil {
		return err
	}
	if err := b.checkNewLocked(name, s); err != nil {
		return err
	}
	b.addLocked(b.newEntity(KindTopic, nil, name, s))
	return nil
}

// checkNewLocked refuses a name that is taken or not allowed, and forwarding to an entity
// that does not exist.
func (b *Broker) checkNewLocked(name string, s settings) error {
	if err := checkName(name, maxNameLength, true); err != nil {
		return err
	}
	if b.entities[strings.ToLower(name)] != nil {
		return errorf(CondEntityAlreadyExists, "The entity '%s' already exists.", name)
	}
	return b.checkForwardsLocked(name, s)
}

// checkName refuses names that Service Bus does not allow: an "entity path" has up to 260
// characters, the name of a subscription or rule up to 50 (page service-bus-quotas); letters,
// numbers, periods, hyphens and underscores are allowed, in a path also slashes (page
// azure-resource-manager/management/resource-name-rules, "Microsoft.ServiceBus").
func checkName(name string, limit int, path bool) error {
	if name == "" || len(name) > limit {
		return errorf(CondArgument, "The name '%s' has %d characters, but it has to have 1 to %d.", name, len(name), limit)
	}
	for _, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && !strings.ContainsRune(".-_$", r) && (!path || !strings.ContainsRune("/~", r)) {
			return errorf(CondArgument, "The name '%s' contains the character %q, which is not allowed.", name, r)
		}
	}
	return nil
}

// checkForwardsLocked refuses to forward to an entity that does not exist, or to itself.
func (b *Broker) checkForwardsLocked(path string, s settings) error {
	for _, target := range []string{s.ForwardTo, s.ForwardDeadLetteredMessagesTo} {
		if target == "" {
			continue
		}
		a := parseAddress(target)
		if strings.EqualFold(a.name, path) {
			return errorf(CondArgument, "The entity '%s' cannot forward messages to itself.", path)
		}
		if e := b.findLocked(a); e == nil || e.kind == KindSubscription {
			if e == nil && b.cfg.AutoCreate && a.subscription == "" {
				created, err := b.createQueueLocked(a.name, b.cfg.AutoQueue)
				if err != nil {
					return err
				}
				created.automatic = true
				continue
			}
			return errorf(CondNotFound, "The entity '%s' to which '%s' would forward messages could not be found.", target, path)
		}
	}
	return nil
}

func (b *Broker) addLocked(e *entity) {
	if e.kind == KindSubscription {
		e.topic.subscriptions[strings.ToLower(e.name)] = e
	} else {
		b.entities[strings.ToLower(e.name)] = e
	}
	e.changeLocked()
	b.useLocked(e)
}

// UpdateQueue changes the properties of a queue. Those that can only be set at its creation are
// refused with [CondNotAllowed].
func (b *Broker) UpdateQueue(name string, p QueueProperties) error {
	s, err := b.queueSettings(p)
	if err != nil {
		return err
	}
	return b.update(KindQueue, name, "", s)
}

// UpdateTopic changes the properties of a topic. Those that can only be set at its creation are
// refused with [CondNotAllowed].
func (b *Broker) UpdateTopic(name string, p TopicProperties) error {
	s, err := b.topicSettings(p)
	if err != nil {
		return err
	}
	return b.update(KindTopic, name, "", s)
}

// UpdateSubscription changes the properties of a subscription. Those that can only be set at its
// creation are refused with [CondNotAllowed].
func (b *Broker) UpdateSubscription(topic, name string, p SubscriptionProperties) error {
	s, err := b.subscriptionSettings(p)
	if err != nil {
		return err
	}
	return b.update(KindSubscription, topic, name, s)
}

func (b *Broker) update(kind Kind, name, subscription string, s settings) (err error) {
	b.lock()
	defer b.finish(&err)
	e, err := b.getLocked(kind, name, subscription)
	if err != nil {
		return err
	}
	old := e.settings
	// "Sessions", "duplicate detection" and "partitioning" can only be enabled "at the time of
	// entity creation" (pages message-sessions, enable-duplicate-detection, enable-partitions).
	switch {
	case s.RequiresSession != old.RequiresSession:
		return errorf(CondNotAllowed, "The value for the RequiresSession property of the entity '%s' cannot be changed.", e.path)
	case s.RequiresDuplicateDetection != old.RequiresDuplicateDetection:
		return errorf(CondNotAllowed, "The value for the RequiresDuplicateDetection property of the entity '%s' cannot be changed.", e.path)
	case s.EnablePartitioning != old.EnablePartitioning:
		return errorf(CondNotAllowed, "The value for the EnablePartitioning property of the entity '%s' cannot be changed.", e.path)
	}
	if err := b.checkForwardsLocked(e.path, s); err != nil {
		return err
	}
	b.resolveForwardLocked(kind, &s)
	e.settings, e.updated = s, b.now
	e.changeLocked()
	e.applyLocked()
	b.useLocked(e)
	return nil
}

// applyLocked applies changed properties: receivers of an entity that no longer delivers
// are ended, and messages are forwarded if the entity now forwards.
func (e *entity) applyLocked() {
	for _, s := range e.stores() {
		if err := e.receiveRefusal(s.subqueue); err != nil {
			s.endConsumersLocked(err)
		}
	}
	for _, sub := range e.subscriptions {
		sub.applyLocked()
	}
	if e.settings.ForwardTo != "" {
		for _, m := range e.main.messages.all() {
			if m.state == available {
				e.main.removeLocked(m)
				moved := &message{sequence: m.sequence, enqueuedSequence: m.enqueuedSequence, content: m.content, enqueued: m.enqueued, ttl: m.ttl, hops: m.hops}
				e.broker.forwardLocked(e, moved)
			}
		}
	}
}

// SetStatus changes the status of a queue, topic or subscription by its path.
func (b *Broker) SetStatus(path string, status Status) (err error) {
	b.lock()
	defer b.finish(&err)
	e := b.findLocked(parseAddress(path))
	if e == nil {
		return errorf(CondNotFound, "The messaging entity '%s' could not be found.", path)
	}
	s := e.settings
	s.Status = status
	if err := b.complete(&s); err != nil {
		return err
	}
	b.resolveForwardLocked(e.kind, &s)
	e.settings, e.updated = s, b.now
	e.changeLocked()
	e.applyLocked()
	return nil
}

// DeleteQueue deletes a queue and its messages.
func (b *Broker) DeleteQueue(name string) error { return b.remove(KindQueue, name, "") }

// DeleteTopic deletes a topic and its subscriptions.
func (b *Broker) DeleteTopic(name string) error { return b.remove(KindTopic, name, "") }

// DeleteSubscription deletes a subscription and its messages.
func (b *Broker) DeleteSubscription(topic, name string) error {
	return b.remove(KindSubscription, topic, name)
}

func (b *Broker) remove(kind Kind, name, subscription string) (err error) {
	b.lock()
	defer b.finish(&err)
	e, err := b.getLocked(kind, name, subscription)
	if err != nil {
		return err
	}
	b.removeLocked(e)
	return nil
}

// removeLocked deletes an entity. Its receivers are detached as the service does it: "The
// messaging entity could not be found" (page service-bus-messaging-exceptions).
func (b *Broker) removeLocked(e *entity) {
	for _, sub := range e.sortedSubscriptions() {
		b.removeLocked(sub)
	}
	for _, s := range e.stores() {
		s.endConsumersLocked(errorf(CondNotFound, "The messaging entity '%s' could not be found: it was deleted.", s.path()))
		for _, m := range s.messages.all() {
			b.agenda.remove(&m.due)
			b.agenda.remove(&m.expiry)
			m.state = gone
		}
		for _, n := range s.sessions {
			b.agenda.remove(&n.due)
		}
	}
	b.agenda.remove(&e.idle)
	e.deleted = true
	if e.kind == KindSubscription {
		delete(e.topic.subscriptions, strings.ToLower(e.name))
	} else {
		delete(b.entities, strings.ToLower(e.name))
	}
	e.changeLocked()
}

// getLocked returns the entity of a kind with a name.
func (b *Broker) getLocked(kind Kind, name, subscription string) (*entity, error) {
	e := b.entities[strings.ToLower(name)]
	path := name
	if kind == KindSubscription {
		path += "/Subscriptions/" + subscription
		if e != nil {
			e = e.subscriptions[strings.ToLower(subscription)]
		}
	}
	if e == nil || e.kind != kind {
		return nil, errorf(CondNotFound, "The messaging entity '%s' could not be found.", path)
	}
	return e, nil
}
