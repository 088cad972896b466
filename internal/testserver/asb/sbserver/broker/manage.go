package broker

import (
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// CreateQueue creates a queue. An entity with its name is refused with [condition.EntityAlreadyExists].
func (b *Broker) CreateQueue(name string, p properties.Queue) (err error) {
	b.lock()
	defer b.finish(&err)
	_, err = b.createQueueLocked(name, p)
	return err
}

func (b *Broker) createQueueLocked(name string, p properties.Queue) (*entity, error) {
	s, err := b.limits.Queue(p)
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

// CreateTopic creates a topic. An entity with its name is refused with [condition.EntityAlreadyExists].
func (b *Broker) CreateTopic(name string, p properties.Topic) (err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.limits.Topic(p)
	if err != nil {
		return err
	}
	if err := b.checkNewLocked(name, s); err != nil {
		return err
	}
	b.addLocked(b.newEntity(KindTopic, nil, name, s))
	return nil
}

// The limits of names (page service-bus-quotas).
const (
	maxNameLength   = 260 // of a queue or topic
	maxSubscription = 50  // length of the name of a subscription or rule
)

// checkNewLocked refuses a name that is taken or not allowed, and forwarding to an entity
// that does not exist.
func (b *Broker) checkNewLocked(name string, s properties.Settings) error {
	if err := checkName(name, maxNameLength, true); err != nil {
		return err
	}
	if b.entities[strings.ToLower(name)] != nil {
		return condition.Errorf(condition.EntityAlreadyExists, "The entity '%s' already exists.", name)
	}
	return b.checkForwardsLocked(name, s)
}

// checkName refuses names that Service Bus does not allow: an "entity path" has up to 260
// characters, the name of a subscription or rule up to 50 (page service-bus-quotas); letters,
// numbers, periods, hyphens and underscores are allowed, in a path also slashes (page
// azure-resource-manager/management/resource-name-rules, "Microsoft.ServiceBus").
func checkName(name string, limit int, path bool) error {
	if name == "" || len(name) > limit {
		return condition.Errorf(condition.Argument, "The name '%s' has %d characters, but it has to have 1 to %d.", name, len(name), limit)
	}
	for _, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && !strings.ContainsRune(".-_$", r) && (!path || !strings.ContainsRune("/~", r)) {
			return condition.Errorf(condition.Argument, "The name '%s' contains the character %q, which is not allowed.", name, r)
		}
	}
	return nil
}

// checkForwardsLocked refuses to forward to an entity that does not exist, or to itself.
func (b *Broker) checkForwardsLocked(path string, s properties.Settings) error {
	for _, target := range []string{s.ForwardTo, s.ForwardDeadLetteredMessagesTo} {
		if target == "" {
			continue
		}
		a := parseAddress(target)
		if strings.EqualFold(a.name, path) {
			return condition.Errorf(condition.Argument, "The entity '%s' cannot forward messages to itself.", path)
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
			return condition.Errorf(condition.NotFound, "The entity '%s' to which '%s' would forward messages could not be found.", target, path)
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
// refused with [condition.NotAllowed].
func (b *Broker) UpdateQueue(name string, p properties.Queue) error {
	s, err := b.limits.Queue(p)
	if err != nil {
		return err
	}
	return b.update(KindQueue, name, "", s)
}

// UpdateTopic changes the properties of a topic. Those that can only be set at its creation are
// refused with [condition.NotAllowed].
func (b *Broker) UpdateTopic(name string, p properties.Topic) error {
	s, err := b.limits.Topic(p)
	if err != nil {
		return err
	}
	return b.update(KindTopic, name, "", s)
}

// UpdateSubscription changes the properties of a subscription. Those that can only be set at its
// creation are refused with [condition.NotAllowed].
func (b *Broker) UpdateSubscription(topic, name string, p properties.Subscription) error {
	s, err := b.limits.Subscription(p)
	if err != nil {
		return err
	}
	return b.update(KindSubscription, topic, name, s)
}

func (b *Broker) update(kind Kind, name, subscription string, s properties.Settings) (err error) {
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
		return condition.Errorf(condition.NotAllowed, "The value for the RequiresSession property of the entity '%s' cannot be changed.", e.path)
	case s.RequiresDuplicateDetection != old.RequiresDuplicateDetection:
		return condition.Errorf(condition.NotAllowed, "The value for the RequiresDuplicateDetection property of the entity '%s' cannot be changed.", e.path)
	case s.EnablePartitioning != old.EnablePartitioning:
		return condition.Errorf(condition.NotAllowed, "The value for the EnablePartitioning property of the entity '%s' cannot be changed.", e.path)
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
func (b *Broker) SetStatus(path string, status properties.Status) (err error) {
	b.lock()
	defer b.finish(&err)
	e := b.findLocked(parseAddress(path))
	if e == nil {
		return condition.Errorf(condition.NotFound, "The messaging entity '%s' could not be found.", path)
	}
	s := e.settings
	s.Status = status
	if err := b.limits.Complete(&s); err != nil {
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
		s.endConsumersLocked(condition.Errorf(condition.NotFound, "The messaging entity '%s' could not be found: it was deleted.", s.path()))
		for _, m := range s.messages.all() {
			b.agenda.Remove(&m.due)
			b.agenda.Remove(&m.expiry)
			m.state = gone
		}
		for _, n := range s.sessions {
			b.agenda.Remove(&n.due)
		}
	}
	b.agenda.Remove(&e.idle)
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
		return nil, condition.Errorf(condition.NotFound, "The messaging entity '%s' could not be found.", path)
	}
	return e, nil
}

// storeLocked returns the store of a path, and creates a queue for it if that is configured.
func (b *Broker) storeLocked(path string) (*store, error) {
	if b.closed {
		return nil, condition.Errorf(condition.DetachForced, "the broker is closed")
	}
	a := parseAddress(path)
	e := b.findLocked(a)
	if e == nil && b.cfg.AutoCreate && a.subscription == "" {
		created, err := b.createQueueLocked(a.name, b.cfg.AutoQueue)
		if err != nil {
			return nil, err
		}
		created.automatic = true
		e = created
	}
	if e == nil || e.kind == KindTopic && a.subqueue != SubqueueNone {
		return nil, condition.Errorf(condition.NotFound, "The messaging entity '%s' could not be found.", path)
	}
	b.useLocked(e)
	switch a.subqueue {
	case SubqueueDeadLetter:
		return e.dead, nil
	case SubqueueTransferDeadLetter:
		return e.transfer, nil
	}
	return e.main, nil
}

// Entity describes the entity with a path: q, q/$DeadLetterQueue, q/$Transfer/$DeadLetterQueue, t,
// t/Subscriptions/s, t/Subscriptions/s/$DeadLetterQueue, in any case. It creates a queue if
// AutoCreate is configured, and else refuses with [condition.NotFound].
func (b *Broker) Entity(path string) (entity Entity, err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return Entity{}, err
	}
	e := s.entity
	return Entity{
		Path: s.path(), Kind: e.kind, Subqueue: s.subqueue,
		RequiresSession: s.sessions != nil, MaxMessageSize: b.limits.MaxMessageSize(&e.settings),
	}, nil
}

// resolveForwardLocked finds the entity to which a subscription forwards: "the 'Forward To' Queue or
// Topic for a Subscription is stored as a ResourceId", and one that is "removed and reinstated with
// the same name" gets nothing until a change of a property "updates the ResourceId" (azure-service-bus#693).
func (b *Broker) resolveForwardLocked(kind Kind, s *properties.Settings) {
	s.ForwardID = 0
	if kind == KindSubscription && s.ForwardTo != "" {
		if target := b.findLocked(parseAddress(s.ForwardTo)); target != nil {
			s.ForwardID = target.id
		}
	}
}
