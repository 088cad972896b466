package topics

import "github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"

// A topicChange is a change of topics, in the journal. The fields that it has depend on Do.
type topicChange struct {
	At           clock.Instant      `json:"at"`
	Do           string             `json:"do"`
	Key          string             `json:"key,omitempty"` // of the message's deduplication id
	ID           string             `json:"id,omitempty"`
	Sequence     string             `json:"seq,omitempty"`
	ARN          string             `json:"arn,omitempty"`
	Topic        *topicEntry        `json:"topic,omitempty"`
	Subscription *subscriptionEntry `json:"sub,omitempty"`
}

// The values of topicChange.Do.
const (
	doTopic       = "topic" // create it or change its definition
	doDropTopic   = "-topic"
	doSubscribe   = "subscribe"
	doUnsubscribe = "-subscribe"
	doPublish     = "publish" // with a deduplication id
)

type topicEntry struct {
	Name       string            `json:"name"`
	ARN        string            `json:"arn"`
	FIFO       bool              `json:"fifo,omitempty"`
	Attributes map[string]string `json:"attributes"`
	Tags       map[string]string `json:"tags,omitempty"`
	Known      clock.Instant     `json:"known"`
}

type subscriptionEntry struct {
	ARN        string            `json:"arn"`
	Endpoint   string            `json:"endpoint"`
	Attributes map[string]string `json:"attributes"`
	Since      clock.Instant     `json:"since"`
}

func (st *Store) logTopicLocked(t *topic, now clock.Instant) {
	st.queues.RecordLocked(&topicChange{At: now, Do: doTopic, Topic: &topicEntry{t.name, t.arn, t.fifo, t.attributes, t.tags, t.known}})
}

func (st *Store) logDropTopicLocked(arn string, now clock.Instant) {
	st.queues.RecordLocked(&topicChange{At: now, Do: doDropTopic, ARN: arn})
}

func (st *Store) logSubscriptionLocked(s *subscription, now clock.Instant) {
	st.queues.RecordLocked(&topicChange{At: now, Do: doSubscribe, Subscription: &subscriptionEntry{s.arn, s.endpoint, s.attributes, s.since}})
}

func (st *Store) logUnsubscribeLocked(arn string, now clock.Instant) {
	st.queues.RecordLocked(&topicChange{At: now, Do: doUnsubscribe, ARN: arn})
}

// logPublishLocked logs the deduplication id of a message that a FIFO topic has received.
func (st *Store) logPublishLocked(t *topic, p *publication, key string, now clock.Instant) {
	st.queues.RecordLocked(&topicChange{At: now, Do: doPublish, ARN: t.arn, Key: key, ID: p.ID, Sequence: p.sequence})
}
