package sqs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Remove implements core.Remover. It deletes queues, the queues for their long delays, the
// subscriptions of the queues, and topics with all their subscriptions. To find the
// subscriptions of queues it lists those of the account in the region, unless no queue has a policy
// that lets topics send; those of a queue that does not exist stay. The service may
// accept and deliver messages of a deleted queue for a minute, and creates none of the same
// name in that time: Provision returns an error matching core.ErrUnavailable. A statement in
// the policy of another queue that lets a removed topic send to it stays.
func (t *Transport) Remove(ctx context.Context, queues, topics []string) error {
	if err := t.remove(ctx, queues, topics); err != nil {
		return fmt.Errorf("sqs: remove: %w", transport.Unavailable(ctx, t.explained(err), transient))
	}
	return nil
}

func (t *Transport) remove(ctx context.Context, queues, topics []string) error {
	if err := t.life.Err(ctx); err != nil {
		return err
	}
	var addresses, topicNames []string
	for _, queue := range queues {
		address, err := t.cfg.queueAddress(queue)
		if err != nil {
			return err
		}
		addresses = append(addresses, address)
	}
	for _, topic := range topics {
		name, err := t.cfg.topicName(topic)
		if err != nil {
			return err
		}
		topicNames = append(topicNames, name)
	}
	if err := t.removeSubscriptions(ctx, addresses); err != nil {
		return err
	}
	for _, address := range addresses {
		for _, each := range []string{address, delayQueue(address)} {
			if err := t.removeQueue(ctx, each); err != nil {
				return fmt.Errorf("delete the queue %q: %w", t.cfg.QueuePrefix+each, err)
			}
		}
	}
	for _, name := range topicNames {
		arn, err := t.topicARN(ctx, name)
		if err != nil {
			return err
		}
		if _, err := t.sns.DeleteTopic(ctx, &sns.DeleteTopicInput{TopicArn: &arn}); err != nil && faultOf(err) != faultNoQueue {
			return fmt.Errorf("delete the topic %q: %w", name, err)
		}
	}
	return nil
}

// removeQueue deletes a queue if it exists.
func (t *Transport) removeQueue(ctx context.Context, address string) error {
	name := t.cfg.QueuePrefix + address
	defer t.urls.Delete(address)
	found, err := t.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	if err == nil {
		_, err = t.sqs.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: found.QueueUrl})
	}
	if err != nil && faultOf(err) == faultNoQueue {
		return nil
	}
	return err
}

// removeSubscriptions deletes the subscriptions of queues to all topics.
func (t *Transport) removeSubscriptions(ctx context.Context, addresses []string) error {
	own := map[string]bool{}
	for _, address := range addresses {
		_, has, err := t.inspect(ctx, address)
		switch {
		case errors.Is(err, core.ErrQueueNotFound):
		case err != nil:
			return err
		case has["Policy"] != "": // without it no topic can send to the queue
			own[has["QueueArn"]] = true
		}
	}
	if len(own) == 0 {
		return nil
	}
	var subscriptions []string
	pages := sns.NewListSubscriptionsPaginator(t.sns, &sns.ListSubscriptionsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list the subscriptions: %w", err)
		}
		for _, s := range page.Subscriptions {
			if aws.ToString(s.Protocol) == "sqs" && own[aws.ToString(s.Endpoint)] && strings.HasPrefix(aws.ToString(s.SubscriptionArn), "arn:") {
				subscriptions = append(subscriptions, *s.SubscriptionArn)
			}
		}
	}
	for _, arn := range subscriptions {
		if _, err := t.sns.Unsubscribe(ctx, &sns.UnsubscribeInput{SubscriptionArn: &arn}); err != nil && faultOf(err) != faultNoQueue {
			return fmt.Errorf("delete the subscription %s: %w", arn, err)
		}
	}
	return nil
}
