package broker

import (
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// sendRefusal returns an error if an entity does not accept messages (page
// entity-suspend: "Disabled": the queue is suspended; "SendDisabled": the queue is
// partially suspended with receive being permitted).
func (e *entity) sendRefusal() *condition.Error {
	if s := e.settings.Status; s == properties.StatusDisabled || s == properties.StatusSendDisabled {
		return condition.Errorf(condition.EntityDisabled, "Messaging entity '%s' is currently disabled for sending.", e.path)
	}
	return nil
}

// receiveRefusal returns an error if an entity or its subqueue delivers no messages. A
// disabled topic does not affect its subscriptions: "you can receive messages that are
// already at the subscription" (page entity-suspend).
func (e *entity) receiveRefusal(subqueue Subqueue) *condition.Error {
	switch s := e.settings.Status; {
	case e.kind == KindTopic:
		return condition.Errorf(condition.NotAllowed, "Messages cannot be received from the topic '%s', but from its subscriptions.", e.path)
	case s == properties.StatusDisabled || s == properties.StatusReceiveDisabled:
		return condition.Errorf(condition.EntityDisabled, "Messaging entity '%s' is currently disabled for receiving.", e.path)
	case subqueue == SubqueueNone && e.settings.ForwardTo != "":
		return condition.Errorf(condition.NotAllowed, "Cannot create a message receiver on the entity '%s' with auto-forwarding enabled.", e.path)
	}
	return nil
}
