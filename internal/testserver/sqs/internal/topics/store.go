// Package topics has the topics of SNS: their subscriptions, and the operations of the service.
package topics

import (
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/queues"
)

// A Store has the topics and their subscriptions. The lock of the store of queues guards it, because a message that
// is published enters queues.
type Store struct {
	queues *queues.Store
	topics map[string]*topic // by ARN

	topicDelay, subscriptionDelay atomic.Int64 // until new topics and subscriptions take effect
}

// New returns a store without topics, whose topics send to queues.
func New(queues *queues.Store) *Store {
	return &Store{queues: queues, topics: map[string]*topic{}}
}

// DelayTopics delays the visibility of topics created from now on.
func (st *Store) DelayTopics(d time.Duration) { st.topicDelay.Store(int64(d)) }

// DelaySubscriptions delays the effect of subscriptions made or changed from now on.
func (st *Store) DelaySubscriptions(d time.Duration) { st.subscriptionDelay.Store(int64(d)) }

// TopicARN returns the ARN of a topic with this name.
func (st *Store) TopicARN(name string) string {
	return "arn:aws:sns:" + st.queues.Region + ":" + st.queues.Account + ":" + name
}

// topicLocked returns the topic with an ARN if other operations know it already, or nil.
func (st *Store) topicLocked(arn string, now clock.Instant) *topic {
	if t := st.topics[arn]; t != nil && t.known <= now {
		return t
	}
	return nil
}
