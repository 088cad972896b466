package broker

import (
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// A QueueInfo describes a queue.
type QueueInfo struct {
	Name       string
	Properties properties.Queue // with the defaults filled in
	Runtime    Runtime
}

// A TopicInfo describes a topic.
type TopicInfo struct {
	Name          string
	Properties    properties.Topic // with the defaults filled in
	Subscriptions int
	Runtime       Runtime
}

// A SubscriptionInfo describes a subscription.
type SubscriptionInfo struct {
	Topic, Name string
	Properties  properties.Subscription // with the defaults filled in
	Runtime     Runtime
}

// A Runtime has the numbers of messages in an entity.
type Runtime struct {
	Active             int // messages that are available, locked or deferred
	DeadLetter         int
	Scheduled          int
	TransferDeadLetter int
	SizeInBytes        int64
	Created            time.Time
	Updated            time.Time // of its properties
	Accessed           time.Time // by a sender or a receiver
}

// Queue describes a queue.
func (b *Broker) Queue(name string) (info QueueInfo, err error) {
	b.lock()
	defer b.finish(&err)
	e, err := b.getLocked(KindQueue, name, "")
	if err != nil {
		return QueueInfo{}, err
	}
	return e.queueInfo(), nil
}

// Topic describes a topic.
func (b *Broker) Topic(name string) (info TopicInfo, err error) {
	b.lock()
	defer b.finish(&err)
	e, err := b.getLocked(KindTopic, name, "")
	if err != nil {
		return TopicInfo{}, err
	}
	return e.topicInfo(), nil
}

// Subscription describes a subscription.
func (b *Broker) Subscription(topic, name string) (info SubscriptionInfo, err error) {
	b.lock()
	defer b.finish(&err)
	e, err := b.getLocked(KindSubscription, topic, name)
	if err != nil {
		return SubscriptionInfo{}, err
	}
	return e.subscriptionInfo(), nil
}

// Queues describes all queues by name.
func (b *Broker) Queues() (infos []QueueInfo, err error) {
	b.lock()
	defer b.finish(&err)
	for _, e := range b.allEntitiesLocked() {
		if e.kind == KindQueue {
			infos = append(infos, e.queueInfo())
		}
	}
	return infos, nil
}

// Topics describes all topics by name.
func (b *Broker) Topics() (infos []TopicInfo, err error) {
	b.lock()
	defer b.finish(&err)
	for _, e := range b.allEntitiesLocked() {
		if e.kind == KindTopic {
			infos = append(infos, e.topicInfo())
		}
	}
	return infos, nil
}

// Subscriptions describes all subscriptions of a topic by name.
func (b *Broker) Subscriptions(topic string) (infos []SubscriptionInfo, err error) {
	b.lock()
	defer b.finish(&err)
	e, err := b.getLocked(KindTopic, topic, "")
	if err != nil {
		return nil, err
	}
	for _, sub := range e.sortedSubscriptions() {
		infos = append(infos, sub.subscriptionInfo())
	}
	return infos, nil
}

func (e *entity) queueInfo() QueueInfo {
	return QueueInfo{Name: e.name, Properties: e.settings.Queue, Runtime: e.runtime()}
}

func (e *entity) topicInfo() TopicInfo {
	return TopicInfo{Name: e.name, Properties: e.settings.Topic(), Subscriptions: len(e.subscriptions), Runtime: e.runtime()}
}

func (e *entity) subscriptionInfo() SubscriptionInfo {
	return SubscriptionInfo{Topic: e.topic.name, Name: e.name, Properties: e.settings.Subscription(), Runtime: e.runtime()}
}

func (e *entity) runtime() Runtime {
	r := Runtime{
		Active: e.main.messages.len() - e.main.scheduled, Scheduled: e.main.scheduled, SizeInBytes: e.size,
		Created: e.created.Time(), Updated: e.updated.Time(), Accessed: e.accessed.Time(),
	}
	if e.kind != KindTopic {
		r.DeadLetter, r.TransferDeadLetter = e.dead.messages.len(), e.transfer.messages.len()
	}
	return r
}
