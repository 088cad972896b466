package asb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/names"
)

// Depth implements queues.DepthReader. The service counts locked and deferred messages among the active ones, so that Ready has them
// too, and does not tell its receivers. It needs the right Manage: without that, or with Config.NoAdmin, all numbers are -1.
func (t *Transport) Depth(ctx context.Context, queue string) (queues.Depth, error) {
	depth, err := t.depth(ctx, queue)
	if err != nil {
		return queues.Depth{}, fmt.Errorf("asb: count the messages of %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return depth, nil
}

func (t *Transport) depth(ctx context.Context, queue string) (queues.Depth, error) {
	depth := queues.Depth{Ready: -1, Locked: -1, Delayed: -1, Receivers: -1}
	if err := t.life.Err(ctx); err != nil {
		return depth, err
	}
	address, err := t.cfg.names().QueueAddress(queue)
	switch {
	case err != nil:
		return depth, err
	case t.cfg.NoAdmin:
		return depth, t.reach(ctx, address)
	}
	name, _ := t.cfg.names().Source(address)
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	counted, err := t.admin.GetQueueRuntimeProperties(limited, name, nil)
	switch {
	case err != nil && faultOf(err) == faultRefused:
		return depth, t.reach(ctx, address)
	case err != nil:
		return depth, err
	case counted == nil:
		return depth, fmt.Errorf("%w: %q", core.ErrQueueNotFound, name)
	case names.IsDeadLetterQueue(address):
		depth.Ready, depth.Delayed = int(counted.DeadLetterMessageCount), 0 // nothing is scheduled there
	default:
		depth.Ready, depth.Delayed = int(counted.ActiveMessageCount), int(counted.ScheduledMessageCount)
	}
	return depth, nil
}

// ListQueues implements queues.Lister: the queues of the namespace that begin with Config.QueuePrefix, without that. It needs the
// right Manage, and returns an error matching errors.ErrUnsupported with Config.NoAdmin.
func (t *Transport) ListQueues(ctx context.Context) ([]string, error) {
	addresses, err := t.listQueues(ctx)
	if err != nil {
		return nil, fmt.Errorf("asb: list queues: %w", transport.Unavailable(ctx, t.explained(err), transient))
	}
	return addresses, nil
}

func (t *Transport) listQueues(ctx context.Context) (addresses []string, err error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	if t.cfg.NoAdmin {
		return nil, transport.Permanent(fmt.Errorf("queues are not listed with Config.NoAdmin; to fix: name the queue: %w", errors.ErrUnsupported))
	}
	for pages := t.admin.NewListQueuesPager(nil); pages.More(); {
		page, err := nextPage[admin.ListQueuesResponse](ctx, pages)
		if err != nil {
			return nil, err
		}
		for _, q := range page.Queues {
			prefix := t.cfg.QueuePrefix
			if len(q.QueueName) < len(prefix) || !strings.EqualFold(q.QueueName[:len(prefix)], prefix) {
				continue
			}
			if address, err := t.cfg.names().QueueAddress(q.QueueName[len(prefix):]); err == nil {
				addresses = append(addresses, address)
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil // a queue that is created moves others to the next page
}
