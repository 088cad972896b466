package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
)

// Depth implements queues.DepthReader. All numbers are the service's estimates, and Receivers is -1. Delayed has those of the queue
// for long delays too, which is a second request without Config.NoLongDelays. It needs sqs:GetQueueUrl and sqs:GetQueueAttributes on
// both; without them on the second queue Delayed is -1.
func (t *Transport) Depth(ctx context.Context, queue string) (queues.Depth, error) {
	depth, err := t.depth(ctx, queue)
	if err != nil {
		return queues.Depth{}, fmt.Errorf("sqs: count the messages of %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return depth, nil
}

func (t *Transport) depth(ctx context.Context, queue string) (queues.Depth, error) {
	if err := t.life.Err(ctx); err != nil {
		return queues.Depth{}, err
	}
	address, err := t.cfg.queueAddress(queue)
	if err != nil {
		return queues.Depth{}, err
	}
	depth, err := t.count(ctx, address)
	if err != nil || t.cfg.NoLongDelays {
		return depth, err
	}
	longDelays, err := t.count(ctx, delayQueue(address))
	switch {
	case errors.Is(err, core.ErrQueueNotFound):
	case err != nil && faultOf(err) == faultRefused:
		depth.Delayed = -1
	case err != nil:
		return queues.Depth{}, err
	case min(depth.Delayed, longDelays.Ready, longDelays.Locked, longDelays.Delayed) < 0:
		depth.Delayed = -1
	default:
		depth.Delayed += longDelays.Ready + longDelays.Locked + longDelays.Delayed
	}
	return depth, nil
}

// count returns the service's numbers of a queue.
func (t *Transport) count(ctx context.Context, address string) (queues.Depth, error) {
	url, err := t.queueURL(ctx, address)
	if err != nil {
		return queues.Depth{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out, err := t.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}})
	if err != nil {
		t.forget(address, err)
		if faultOf(err) == faultNoQueue {
			err = t.noQueue(address, err)
		}
		return queues.Depth{}, err
	}
	number := func(name types.QueueAttributeName) int {
		n, err := strconv.Atoi(out.Attributes[string(name)])
		if err != nil {
			return -1
		}
		return n
	}
	return queues.Depth{
		Ready:     number(types.QueueAttributeNameApproximateNumberOfMessages),
		Locked:    number(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
		Delayed:   number(types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
		Receivers: -1,
	}, nil
}

// maxListed is the most queues of an answer, and makes the service return further ones in another answer.
const maxListed = 1000

// ListQueues implements queues.Lister: the queues of the account in the region that begin with Config.QueuePrefix, without that, and
// without the queues for the long delays of others. It needs sqs:ListQueues, which the service grants for all queues or none. The
// service may list a queue some seconds after it was created.
func (t *Transport) ListQueues(ctx context.Context) ([]string, error) {
	addresses, err := t.listQueues(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqs: list queues: %w", transport.Unavailable(ctx, t.explained(err), transient))
	}
	return addresses, nil
}

func (t *Transport) listQueues(ctx context.Context) (addresses []string, err error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	input := &sqs.ListQueuesInput{MaxResults: new(int32(maxListed))}
	if t.cfg.QueuePrefix != "" {
		input.QueueNamePrefix = &t.cfg.QueuePrefix
	}
	delays := map[string]bool{} // queues for long delays, by address
	for pages := sqs.NewListQueuesPaginator(t.sqs, input); pages.HasMorePages(); {
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		page, err := pages.NextPage(limited)
		cancel()
		if err != nil {
			return nil, err
		}
		for _, url := range page.QueueUrls {
			name, found := strings.CutPrefix(url[strings.LastIndexByte(url, '/')+1:], t.cfg.QueuePrefix)
			if !found {
				continue
			}
			if address, err := t.cfg.queueAddress(name); err == nil {
				addresses = append(addresses, address)
				delays[delayQueue(address)] = !t.cfg.NoLongDelays
			}
		}
	}
	addresses = slices.DeleteFunc(addresses, func(address string) bool { return delays[address] })
	slices.Sort(addresses)
	return addresses, nil
}
