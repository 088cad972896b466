package sqs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// queueURL returns the URL of a queue, which requests use as its name. It is cached: it
// does not change while the queue exists.
func (t *Transport) queueURL(ctx context.Context, address string) (string, error) {
	if url, ok := t.urls.Get(address); ok {
		return url, nil
	}
	name := t.cfg.QueuePrefix + address
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out, err := t.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		if faultOf(err) == faultNoQueue {
			return "", t.noQueue(address, err)
		}
		return "", err
	}
	t.urls.Put(strings.Clone(address), *out.QueueUrl) // it may be a part of a message
	return *out.QueueUrl, nil
}

// noQueue is the error of a queue that does not exist.
func (t *Transport) noQueue(address string, err error) error {
	return fmt.Errorf("%w: %q: %w; create it with Provision (Config.Provision of the endpoint), or check region and account", core.ErrQueueNotFound, t.cfg.QueuePrefix+address, err)
}

// forget removes a queue from the cache if an error says that the queue is gone.
func (t *Transport) forget(address string, err error) {
	if faultOf(err) == faultNoQueue {
		t.urls.Delete(address)
	}
}

// eventually repeats f for a few seconds while it fails because a queue or a topic does
// not exist: the service may not know one that was just created.
func (t *Transport) eventually(ctx context.Context, f func() error) error {
	for deadline := time.Now().Add(consistencyLimit); ; {
		err := f()
		if err == nil || faultOf(err) != faultNoQueue || time.Now().After(deadline) {
			return err
		}
		if err := transport.Sleep(ctx, t.life.Context(), consistencyPause, nil); err != nil {
			return err
		}
	}
}

const (
	consistencyLimit = 10 * time.Second
	consistencyPause = 200 * time.Millisecond
)

// inspect returns the URL and the attributes of a queue.
func (t *Transport) inspect(ctx context.Context, address string) (url string, attributes map[string]string, err error) {
	t.urls.Delete(address) // the queue may have been deleted
	if url, err = t.queueURL(ctx, address); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out, err := t.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		t.forget(address, err)
		if faultOf(err) == faultNoQueue {
			err = t.noQueue(address, err)
		}
		return "", nil, err
	}
	t.noteAccount(out.Attributes["QueueArn"])
	return url, out.Attributes, nil
}
