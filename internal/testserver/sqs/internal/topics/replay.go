package topics

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/deduplication"
)

// Apply applies an entry of a journal, and reports whether it is one of topics.
func (st *Store) Apply(line []byte) (known bool, err error) {
	var e topicChange
	if err := json.Unmarshal(line, &e); err != nil {
		return false, err
	}
	switch e.Do {
	case doTopic:
		st.restoreTopic(e.Topic)
	case doDropTopic:
		delete(st.topics, e.ARN)
	case doSubscribe:
		return true, st.restoreSubscription(e.Subscription)
	case doUnsubscribe:
		if t := st.topics[subscriptionTopic(e.ARN)]; t != nil {
			t.drop(e.ARN)
		}
	case doPublish:
		if t := st.topics[e.ARN]; t != nil {
			t.sent.Add(e.Key, deduplication.Sent{ID: e.ID, Sequence: e.Sequence, At: e.At})
			t.published++
		}
	default:
		return false, nil
	}
	return true, nil
}

func (st *Store) restoreTopic(d *topicEntry) {
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

func (st *Store) restoreSubscription(d *subscriptionEntry) error {
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
