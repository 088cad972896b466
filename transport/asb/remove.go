package asb

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/names"
)

// Remove implements core.Remover. It deletes queues, the subscriptions that forward to them
// (it lists the topics of the namespace with Config.TopicPrefix to find these), and topics
// with all their subscriptions. It needs the right Manage. With Config.NoAdmin its error has
// the commands.
func (t *Transport) Remove(ctx context.Context, queues, topics []string) error {
	if err := t.remove(ctx, queues, topics); err != nil {
		return fmt.Errorf("asb: remove: %w", transport.Unavailable(ctx, t.explained(err), transient))
	}
	return nil
}

func (t *Transport) remove(ctx context.Context, queues, topics []string) error {
	if err := t.life.Err(ctx); err != nil {
		return err
	}
	var addresses []string
	for _, queue := range queues {
		address, err := t.cfg.names().Target(queue)
		if err != nil {
			return err
		}
		addresses = append(addresses, address)
	}
	for _, topic := range topics {
		if err := t.cfg.names().CheckTopic(topic); err != nil {
			return err
		}
	}
	if t.cfg.NoAdmin {
		return transport.Permanent(fmt.Errorf("nothing is deleted with Config.NoAdmin; to fix: %s", t.removeCommands(addresses, topics)))
	}
	if err := t.removeSubscriptions(ctx, addresses); err != nil {
		return err
	}
	for _, address := range addresses {
		if err := t.deleteEntity(ctx, func(ctx context.Context) error {
			_, err := t.admin.DeleteQueue(ctx, t.cfg.QueuePrefix+address, nil)
			return err
		}); err != nil {
			return fmt.Errorf("delete the queue %q: %w", t.cfg.QueuePrefix+address, err)
		}
	}
	for _, topic := range topics {
		name := t.cfg.names().TopicOf(topic)
		if err := t.deleteEntity(ctx, func(ctx context.Context) error {
			_, err := t.admin.DeleteTopic(ctx, name, nil)
			return err
		}); err != nil {
			return fmt.Errorf("delete the topic %q: %w", name, err)
		}
	}
	return nil
}

// deleteEntity returns nil also if there is no entity to delete.
func (t *Transport) deleteEntity(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := request(ctx)
	if err != nil && faultOf(err) == faultNoEntity {
		return nil
	}
	return err
}

// removeSubscriptions deletes the subscriptions of queues to all topics.
func (t *Transport) removeSubscriptions(ctx context.Context, addresses []string) error {
	if len(addresses) == 0 {
		return nil
	}
	var all []string
	for pages := t.admin.NewListTopicsPager(nil); pages.More(); {
		page, err := nextPage(ctx, pages)
		if err != nil {
			return fmt.Errorf("list the topics: %w", err)
		}
		for _, topic := range page.Topics {
			if name := topic.TopicName; len(name) >= len(t.cfg.TopicPrefix) && strings.EqualFold(name[:len(t.cfg.TopicPrefix)], t.cfg.TopicPrefix) {
				all = append(all, name)
			}
		}
	}
	for _, name := range all {
		for _, address := range addresses {
			subscription := t.cfg.names().SubscriptionName(address)
			if err := t.deleteEntity(ctx, func(ctx context.Context) error {
				_, err := t.admin.DeleteSubscription(ctx, name, subscription, nil)
				return err
			}); err != nil {
				return fmt.Errorf("delete the subscription %q of the topic %q: %w", subscription, name, err)
			}
		}
	}
	return nil
}

// pager lists entities.
type pager[T any] interface {
	NextPage(ctx context.Context) (T, error)
}

func nextPage[T any](ctx context.Context, pages pager[T]) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return pages.NextPage(ctx)
}

// removeCommands returns the commands that delete queues and topics.
func (t *Transport) removeCommands(addresses, topics []string) string {
	var commands []string
	where := t.cfg.where()
	for _, address := range addresses {
		commands = append(commands, fmt.Sprintf("az servicebus queue delete %s --name %s", where, names.ARMName(t.cfg.QueuePrefix+address)))
	}
	for _, topic := range topics {
		commands = append(commands, fmt.Sprintf("az servicebus topic delete %s --name %s", where, names.ARMName(t.cfg.names().TopicOf(topic))))
	}
	return strings.Join(commands, "; ")
}
