package asb

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/names"
)

// Subscribe lets a queue receive the events that are published to the topics: it creates each topic that does not exist, and a
// subscription with the name of the queue, which forwards to it. A subscription that forwards to a queue of that name which was deleted is changed, so that it forwards
// to the one that was created anew. It needs the right Manage. With Config.NoAdmin it asks for nothing and
// succeeds, and Warnings has the commands that create topics and subscriptions.
func (t *Transport) Subscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.subscribeAll(ctx, queue, topics); err != nil {
		return fmt.Errorf("asb: subscribe %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return nil
}

func (t *Transport) subscribeAll(ctx context.Context, queue string, topics []string) error {
	address, err := t.subscription(ctx, queue, topics)
	if err != nil {
		return err
	}
	if t.cfg.NoAdmin {
		t.warnings.Add(fmt.Sprintf("with Config.NoAdmin it is not known whether the queue %q is subscribed to its events, which do not arrive otherwise; to fix: deploy the file of asb.Bicep, or once: %s", t.cfg.QueuePrefix+address, t.subscribeCommands(address, topics)))
		return nil
	}
	if err = t.subscribeEach(ctx, address, topics); err != nil && faultOf(err) == faultRefused {
		err = fmt.Errorf("%w; or set Config.NoAdmin after: %s", err, t.subscribeCommands(address, topics))
	}
	return err
}

// subscribeEach creates the missing topics and subscriptions of a queue.
func (t *Transport) subscribeEach(ctx context.Context, address string, topics []string) error {
	created, err := t.creationOf(ctx, t.cfg.QueuePrefix+address)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if err := t.subscribe(ctx, address, created, topic); err != nil {
			return err
		}
	}
	return nil
}

// creationOf returns when a queue was created.
func (t *Transport) creationOf(ctx context.Context, queue string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	has, err := t.admin.GetQueueRuntimeProperties(ctx, queue, nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("look for the queue %q: %w", queue, err)
	}
	if has == nil {
		return time.Time{}, fmt.Errorf("%w: %q", core.ErrQueueNotFound, queue)
	}
	return has.CreatedAt, nil
}

// subscribe creates the topic of an event and the subscription of a queue to it, where they are missing. The queue was created at a time.
func (t *Transport) subscribe(ctx context.Context, address string, created time.Time, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := t.createTopic(ctx, topic); err != nil {
		return err
	}
	return t.createSubscription(ctx, address, created, topic)
}

// subscription checks the names of a queue and topics, and returns the queue's address.
func (t *Transport) subscription(ctx context.Context, queue string, topics []string) (address string, err error) {
	if err := t.life.Err(ctx); err != nil {
		return "", err
	}
	for _, topic := range topics {
		if err := t.cfg.names().CheckTopic(topic); err != nil {
			return "", err
		}
	}
	return t.cfg.names().Target(queue)
}

// topicMetadata is the beginning of the user metadata of a topic that Subscribe creates.
// The event's name follows it: the service ignores case in names, but events whose names
// differ only in case are different.
const topicMetadata = "Reprise: events of "

// createTopic creates the topic of an event if it is missing.
func (t *Transport) createTopic(ctx context.Context, topic string) error {
	name := t.cfg.names().TopicOf(topic)
	has, err := t.admin.GetTopic(ctx, name, nil)
	if err != nil {
		return fmt.Errorf("look for the topic %q: %w", name, err)
	}
	if has == nil {
		properties := &admin.TopicProperties{EnableBatchedOperations: new(true), UserMetadata: new(topicMetadata + topic)}
		_, err := t.admin.CreateTopic(ctx, name, &admin.CreateTopicOptions{Properties: properties})
		if err == nil {
			return nil
		}
		if !isConflict(err) {
			return fmt.Errorf("create the topic %q: %w", name, err)
		}
		if has, err = t.admin.GetTopic(ctx, name, nil); err != nil || has == nil {
			return fmt.Errorf("look for the topic %q, which another instance creates: %w", name, err)
		}
	}
	if event, ours := strings.CutPrefix(value(has.UserMetadata), topicMetadata); ours && event != topic && strings.EqualFold(names.TopicName(event), names.TopicName(topic)) {
		return transport.Permanent(fmt.Errorf("the topic %q is that of the event %q, and Service Bus compares names without case; to fix: give one of the two events another name", name, event))
	}
	return nil
}

// createSubscription creates the subscription of a queue to an event if it is missing.
func (t *Transport) createSubscription(ctx context.Context, address string, created time.Time, topic string) error {
	name, subscription := t.cfg.names().TopicOf(topic), t.cfg.names().SubscriptionName(address)
	properties := &admin.SubscriptionProperties{
		ForwardTo:               new(t.cfg.QueuePrefix + address),
		LockDuration:            new(duration(maxLock)),
		MaxDeliveryCount:        new(int32(maxDeliveryCount)),
		EnableBatchedOperations: new(true),
		EnableDeadLetteringOnFilterEvaluationExceptions: new(false),
		UserMetadata: new(forwardMetadata(created)),
	}
	if t.cfg.CustomizeSubscription != nil {
		t.cfg.CustomizeSubscription(address, topic, properties)
	}
	_, err := t.admin.CreateSubscription(ctx, name, subscription, &admin.CreateSubscriptionOptions{Properties: properties})
	switch {
	case err == nil:
		return nil
	case !isConflict(err):
		return fmt.Errorf("create the subscription %q of the topic %q: %w", subscription, name, t.cfg.refusedByEmulator(err))
	}
	return t.compareSubscription(ctx, address, created, name, subscription)
}

// compareSubscription returns an error if a subscription that exists does not forward to the queue, which was created at a time.
func (t *Transport) compareSubscription(ctx context.Context, address string, created time.Time, topic, subscription string) error {
	has, err := t.admin.GetSubscription(ctx, topic, subscription, nil)
	switch {
	case err != nil:
		return fmt.Errorf("look for the subscription %q of the topic %q: %w", subscription, topic, err)
	case has == nil:
		return fmt.Errorf("the subscription %q of the topic %q was deleted while it was created", subscription, topic)
	}
	forward, wanted := value(has.ForwardTo), t.cfg.QueuePrefix+address
	if strings.EqualFold(forwardName(forward), wanted) {
		has.ForwardTo = &wanted
		return t.renewForwarding(ctx, created, topic, subscription, has.SubscriptionProperties)
	}
	return transport.Permanent(fmt.Errorf("the subscription %q of the topic %q has ForwardTo %q, and not %q; to fix: delete it, or correct ForwardTo", subscription, topic, forward, wanted))
}

// forwardName returns the name of the queue in ForwardTo, which the service answers as a URL.
func forwardName(forward string) string {
	if _, address, isURL := strings.Cut(forward, "://"); isURL {
		_, forward, _ = strings.Cut(address, "/")
	}
	return forward
}

// forwardPrefix begins the user metadata of a subscription that Subscribe creates. They tell which queue it forwards to.
const forwardPrefix = "Reprise: forwards to the queue created at "

func forwardMetadata(created time.Time) string {
	return forwardPrefix + created.UTC().Format(time.RFC3339Nano)
}

// maxMetadata is the most characters of user metadata.
const maxMetadata = 1024

// renewForwarding lets a subscription forward to a queue that was deleted and created anew at a time. The service forwards to the queue that had the
// name when the subscription was changed last, and dead-letters all messages when that is gone (azure-service-bus#693).
func (t *Transport) renewForwarding(ctx context.Context, created time.Time, topic, subscription string, has admin.SubscriptionProperties) error {
	metadata, known := forwardMetadata(created), value(has.UserMetadata)
	if known == metadata || created.IsZero() {
		return nil
	}
	if !strings.HasPrefix(known, forwardPrefix) { // it was created by others
		at, err := t.admin.GetSubscriptionRuntimeProperties(ctx, topic, subscription, nil)
		if err != nil {
			return fmt.Errorf("look for the subscription %q of the topic %q: %w", subscription, topic, err)
		}
		if at == nil || !created.After(at.UpdatedAt) {
			return nil
		}
		if kept := strings.TrimSpace(known + " " + metadata); len(kept) <= maxMetadata {
			metadata = kept
		}
	}
	has.UserMetadata = &metadata
	if _, err := t.admin.UpdateSubscription(ctx, topic, subscription, has, nil); err != nil {
		return fmt.Errorf("let the subscription %q of the topic %q forward to the queue %q, which was created anew: %w", subscription, topic, value(has.ForwardTo), err)
	}
	return nil
}

// Unsubscribe deletes the subscriptions of a queue to topics. The topics stay. With Config.NoAdmin its error has the commands.
func (t *Transport) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.unsubscribeAll(ctx, queue, topics); err != nil {
		return fmt.Errorf("asb: unsubscribe %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return nil
}

func (t *Transport) unsubscribeAll(ctx context.Context, queue string, topics []string) error {
	address, err := t.subscription(ctx, queue, topics)
	if err != nil {
		return err
	}
	if t.cfg.NoAdmin {
		return transport.Permanent(fmt.Errorf("nothing is deleted with Config.NoAdmin; to fix: %s", t.unsubscribeCommands(address, topics)))
	}
	subscription := t.cfg.names().SubscriptionName(address)
	for _, topic := range topics {
		name := t.cfg.names().TopicOf(topic)
		if err := t.unsubscribe(ctx, name, subscription); err != nil && faultOf(err) != faultNoEntity {
			return fmt.Errorf("delete the subscription %q of the topic %q: %w", subscription, name, err)
		}
	}
	return nil
}

// unsubscribe deletes a subscription.
func (t *Transport) unsubscribe(ctx context.Context, name, subscription string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := t.admin.DeleteSubscription(ctx, name, subscription, nil)
	return err
}

// where returns the options of az that name the namespace.
func (c *Config) where() string {
	return "--resource-group GROUP --namespace-name " + c.namespaceName()
}

// unsubscribeCommands returns the commands that end the subscription of a queue to
// topics.
func (t *Transport) unsubscribeCommands(address string, topics []string) string {
	var commands []string
	for _, topic := range topics {
		commands = append(commands, fmt.Sprintf("az servicebus topic subscription delete %s --topic-name %s --name %s", t.cfg.where(), names.ARMName(t.cfg.names().TopicOf(topic)), t.cfg.names().SubscriptionName(address)))
	}
	return strings.Join(commands, "; ")
}

// subscribeCommands returns the commands that subscribe a queue to topics.
func (t *Transport) subscribeCommands(address string, topics []string) string {
	var commands []string
	where := t.cfg.where()
	for _, topic := range topics {
		name := names.ARMName(t.cfg.names().TopicOf(topic))
		commands = append(commands,
			fmt.Sprintf("az servicebus topic create %s --name %s", where, name),
			fmt.Sprintf("az servicebus topic subscription create %s --topic-name %s --name %s --forward-to %s", where, name, t.cfg.names().SubscriptionName(address), names.ARMName(t.cfg.QueuePrefix+address)))
	}
	return strings.Join(commands, "; ")
}
