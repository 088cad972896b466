package suite

import (
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// event returns a message to its own topic, which has no subscribers yet.
func (t *caseT) event(body string) core.Outgoing {
	event := t.message("", body)
	event.Topic = t.uniqueName() + ".Happened"
	return event
}

// subscribe waits until the subscription is certain to be in effect.
func (t *caseT) subscribe(transport core.Transport, queue string, topics ...string) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := t.subscriber(transport).Subscribe(ctx, queue, topics...); err != nil {
		t.stop(fmt.Sprintf("Subscribe lets a queue receive the topics %q", topics), "%v", err)
	}
	t.sleep(t.caps.SubscriptionDelay)
}

// subscriber returns the transport as a core.Subscriber, which it has to be if it claims
// PublishSubscribe.
func (t *caseT) subscriber(transport core.Transport) core.Subscriber {
	s, ok := transport.(core.Subscriber)
	if !ok {
		t.stop("a transport that claims PublishSubscribe is a core.Subscriber", "%T has no methods Subscribe and Unsubscribe", transport)
	}
	return s
}
