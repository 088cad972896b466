package asb

import (
	"fmt"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/asb/internal/message"
)

// errNoTopic is the error of a missing topic, distinct from that of a missing queue.
var errNoTopic error = noTopicError{}

type noTopicError struct{}

func (noTopicError) Error() string { return "there is no such topic" }

// Is reports that an event without a topic has no subscriber.
func (noTopicError) Is(target error) bool { return target == core.ErrNoSubscriber }

// prepareEvent returns a topic in the namespace, and an event in the form that the SDK
// publishes.
func (t *Transport) prepareEvent(out *core.Outgoing) (to destination, m *message.Outgoing, err error) {
	if err := t.cfg.names().CheckTopic(out.Topic); err != nil {
		return to, nil, err
	}
	// A subscribing queue with sessions needs a session for each message.
	if m, err = t.codec.Encode(out, true); err != nil {
		return to, nil, err
	}
	return destination{t.cfg.names().TopicOf(out.Topic), true}, m, nil
}

// missing adds its meaning to the error of a missing topic. It returns nil if such an
// event may be dropped.
func (t *Transport) missing(to destination, err error) error {
	if !to.topic || faultOf(err) != faultNoEntity {
		return err
	}
	if t.cfg.IgnoreMissingTopics {
		return nil
	}
	return fmt.Errorf("%w: %q, because it has no subscriber; to fix: start a subscriber with Config.Provision, create the topic, or set Config.IgnoreMissingTopics: %w", errNoTopic, to.entity, err)
}
