package queues

import (
	"encoding/json"
	"slices"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/policy"
)

// A TopicDelivery is a message that a topic sends to a queue.
type TopicDelivery struct {
	Topic           string // ARN
	FIFO            bool   // the topic's kind
	Content         content.Content
	Group           string
	DeduplicationID string // of a FIFO topic
}

// DeliverLocked adds a message of a topic to the queue with an ARN, and reports whether it did: the queue may be
// deleted, its policy may not allow the topic, and the message may be too large.
func (st *Store) DeliverLocked(arn string, d TopicDelivery, now clock.Instant) bool {
	q := st.queueByARNLocked(arn)
	if q == nil || !q.policy.AllowsTopic(q.arn, d.Topic, st.Account) || d.Content.Size() > q.maxSize {
		return false
	}
	d.Content.BodyMD5, d.Content.AttributesMD5 = content.MD5(d.Content.Body), content.MD5OfAttributes(d.Content.Attributes)
	m := &message{Content: d.Content, sent: now, enqueued: now, due: now.Add(q.delay)}
	if q.fifo || !d.FIFO {
		m.group = d.Group
	}
	if q.fifo {
		m.deduplication = d.DeduplicationID
	}
	st.putLocked(q, m, now)
	return true
}

// AllowTopicLocked has the policy of a queue allow a topic, and reports whether there is such a queue.
func (st *Store) AllowTopicLocked(name, topicARN string, now clock.Instant) bool {
	q := st.queues[name]
	if q == nil {
		return false
	}
	p := policy.Policy{Version: "2012-10-17"}
	if q.policy != nil {
		p = *q.policy
	}
	p.Statement = append(slices.Clone(p.Statement), policy.Statement{
		Effect: "Allow", Principal: json.RawMessage(`{"Service":"sns.amazonaws.com"}`), Action: policy.Texts{"sqs:SendMessage"}, Resource: policy.Texts{q.arn},
		Condition: map[string]map[string]policy.Texts{"ArnEquals": {"aws:SourceArn": {topicARN}}},
	})
	return st.setPolicyLocked(q, p, now) == nil
}
