//go:build darwin || linux

package sqs

import (
	"errors"
	"slices"
)

type topicEntry struct {
	Name       string            `json:"name"`
	ARN        string            `json:"arn"`
	FIFO       bool              `json:"fifo,omitempty"`
	Attributes map[string]string `json:"attributes"`
	Tags       map[string]string `json:"tags,omitempty"`
	Known      instant           `json:"known"`
}

type subscriptionEntry struct {
	ARN        string            `json:"arn"`
	Endpoint   string            `json:"endpoint"`
	Attributes map[string]string `json:"attributes"`
	Since      instant           `json:"since"`
}

func (st *store) logTopicLocked(t *topic, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doTopic, Topic: &topicEntry{t.name, t.arn, t.fifo, t.attributes, t.tags, t.known}})
	}
}

func (st *store) logDropTopicLocked(arn string, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doDropTopic, ARN: arn})
	}
}

func (st *store) logSubscriptionLocked(s *subscription, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doSubscribe, Subscription: &subscriptionEntry{s.arn, s.endpoint, s.attributes, s.since}})
	}
}

func (st *store) logUnsubscribeLocked(arn string, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doUnsubscribe, ARN: arn})
	}
}

// logPublishLocked logs the deduplication id of a message that a FIFO topic has received.
func (st *store) logPublishLocked(t *topic, p *publication, key string, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doPublish, ARN: t.arn, Key: key, ID: p.id, Sequence: p.sequence})
	}
}

func (st *store) restoreTopic(e *entry) {
	d := e.Topic
	t := st.topics[d.ARN]
	if t == nil {
		t = newTopic(d.Name, d.ARN, d.FIFO)
		st.topics[d.ARN] = t
	}
	t.attributes, t.known = d.Attributes, d.Known
	if t.tags = d.Tags; t.tags == nil {
		t.tags = map[string]string{}
	}
}

func (st *store) restoreSubscription(e *entry) error {
	d := e.Subscription
	t := st.topics[subscriptionTopic(d.ARN)]
	if t == nil {
		return errors.New("subscribe: there is no topic of " + d.ARN)
	}
	s := &subscription{arn: d.ARN, endpoint: d.Endpoint, attributes: map[string]string{}, since: d.Since}
	if reason := s.setAll(d.Attributes); reason != "" {
		return errors.New("subscribe: " + reason)
	}
	if i := slices.IndexFunc(t.subscriptions, func(other *subscription) bool { return other.arn == s.arn }); i >= 0 {
		t.subscriptions[i] = s
	} else {
		t.subscriptions = append(t.subscriptions, s)
	}
	return nil
}
