package broker

// sendRefusal returns an error if an entity does not accept messages (page
// entity-suspend: "Disabled": the queue is suspended; "SendDisabled": the queue is
// partially suspended with receive being permitted).
func (e *entity) sendRefusal() *Error {
	if s := e.settings.Status; s == StatusDisabled || s == StatusSendDisabled {
		return errorf(CondEntityDisabled, "Messaging entity '%s' is currently disabled for sending.", e.path)
	}
	return nil
}

// receiveRefusal returns an error if an entity or its subqueue delivers no messages. A
// disabled topic does not affect its subscriptions: "you can receive messages that are
// already at the subscription" (page entity-suspend).
func (e *entity) receiveRefusal(subqueue Subqueue) *Error {
	switch s := e.settings.Status; {
	case e.kind == KindTopic:
		return errorf(CondNotAllowed, "Messages cannot be received from the topic '%s', but from its subscriptions.", e.path)
	case s == StatusDisabled || s == StatusReceiveDisabled:
		return errorf(CondEntityDisabled, "Messaging entity '%s' is currently disabled for receiving.", e.path)
	case subqueue == SubqueueNone && e.settings.ForwardTo != "":
		return errorf(CondNotAllowed, "Cannot create a message receiver on the entity '%s' with auto-forwarding enabled.", e.path)
	}
	return nil
}
