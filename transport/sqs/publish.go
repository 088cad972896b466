package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
)

// identity is the account of the credentials.
type identity struct{ partition, account string }

// account returns the account of the credentials: that of a queue of the transport, once one was
// inspected, or else the answer of STS, which needs no right.
func (t *Transport) account(ctx context.Context) (identity, error) {
	if known := t.identity.Load(); known != nil {
		return *known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out, err := t.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return identity{}, fmt.Errorf("ask STS for the account: %w", err)
	}
	known := identity{"aws", aws.ToString(out.Account)}
	if parts := strings.Split(aws.ToString(out.Arn), ":"); len(parts) > 1 && parts[1] != "" {
		known.partition = parts[1] // aws-cn, aws-us-gov
	}
	t.identity.Store(&known)
	return known, nil
}

// noteAccount remembers the account in the ARN of a queue.
func (t *Transport) noteAccount(queueARN string) {
	if t.identity.Load() != nil {
		return
	}
	// arn:partition:sqs:region:account:name
	if parts := strings.Split(queueARN, ":"); len(parts) == 6 && parts[1] != "" && parts[4] != "" {
		t.identity.Store(&identity{parts[1], parts[4]})
	}
}

// topicARN returns the ARN that a topic has, or would have.
func (t *Transport) topicARN(ctx context.Context, name string) (string, error) {
	owner, err := t.account(ctx)
	if err != nil {
		return "", err
	}
	return "arn:" + owner.partition + ":sns:" + t.cfg.AWS.Region + ":" + owner.account + ":" + name, nil
}

// CheckTopic implements core.Subscriber.
func (t *Transport) CheckTopic(topic string) error {
	_, err := t.cfg.topicName(topic)
	return err
}

// preparePublish encodes an event for its topic.
func (t *Transport) preparePublish(ctx context.Context, out *core.Outgoing, limit, reserved int) (*pendingSend, error) {
	name, err := t.cfg.topicName(out.Topic)
	if err != nil {
		return nil, err
	}
	arn, err := t.topicARN(ctx, name)
	if err != nil {
		return nil, err
	}
	m, err := t.codec.Encode(ctx, out, limit, reserved, 1)
	if err != nil {
		return nil, err
	}
	s := &sending{Encoded: m, size: m.Bytes(), required: out.RequireSubscriber}
	if out.Delay > 0 { // SNS has no delays: the receivers delay the message
		s.Add(message.AttrWait, strconv.FormatInt(out.Delay.Milliseconds(), 10))
	}
	if isFIFO(name) {
		t.fifo(s, out)
	}
	b := t.batcher(t.publishers, arn, func(arn string) *batch.Batcher[*sending] {
		topic := strings.Clone(out.Topic)
		b := &batch.Batcher[*sending]{
			Life: t.life, Runners: t.runners, MaxBytes: topicLimit, Partly: partlyAtOnce, MaxConcurrent: maxConcurrentRequests, Timeout: requestTimeout,
			Do: func(ctx context.Context, entries []*batch.Entry[*sending]) {
				t.publishBatch(ctx, topic, arn, entries)
			},
		}
		if isFIFO(name) {
			b.Partly, b.MaxConcurrent = 1, 1
		}
		return b
	})
	return &pendingSend{entry: batch.Entry[*sending]{Item: s, Bytes: s.bytes()}, to: b, batch: b}, nil
}

// publishBatch makes one request.
func (t *Transport) publishBatch(ctx context.Context, topic, arn string, entries []*batch.Entry[*sending]) {
	in := &sns.PublishBatchInput{TopicArn: &arn, PublishBatchRequestEntries: make([]snstypes.PublishBatchRequestEntry, len(entries))}
	for i, e := range entries {
		s := e.Item
		in.PublishBatchRequestEntries[i] = snstypes.PublishBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), Message: &s.Text, MessageAttributes: snsAttributes(s.Attrs),
			MessageGroupId: optional(s.group), MessageDeduplicationId: optional(s.deduplication),
		}
	}
	out, err := t.sns.PublishBatch(ctx, in)
	switch {
	case err == nil:
	case faultOf(err) == faultNoQueue && t.cfg.IgnoreMissingTopics:
		for _, e := range entries { // the others have succeeded
			if e.Item.required {
				e.Err = fmt.Errorf("%w: there is no SNS topic for %q", core.ErrNoSubscriber, topic)
			}
		}
		return
	case faultOf(err) == faultNoQueue:
		refuse(entries, fmt.Errorf("there is no SNS topic for %q, because it has no subscriber (%s); to fix: start a subscriber with Config.Provision, create the topic, or set Config.IgnoreMissingTopics: %w", topic, arn, noTopicError{err}))
		return
	default:
		fail(entries, err)
		return
	}
	failed := make([]types.BatchResultErrorEntry, len(out.Failed))
	for i, f := range out.Failed {
		failed[i] = types.BatchResultErrorEntry{Id: f.Id, Code: f.Code, Message: f.Message, SenderFault: f.SenderFault}
	}
	outcomeOfSend(entries, failed, len(out.Successful))
}

// noTopicError distinguishes the error of a missing topic from that of a missing queue.
type noTopicError struct{ error }

// Is reports that an event without a topic has no subscriber.
func (noTopicError) Is(target error) bool { return target == core.ErrNoSubscriber }

func snsAttributes(attrs []message.Attr) map[string]snstypes.MessageAttributeValue {
	m := make(map[string]snstypes.MessageAttributeValue, len(attrs))
	for _, a := range attrs {
		m[a.Name] = snstypes.MessageAttributeValue{DataType: &stringType, StringValue: &a.Value}
	}
	return m
}

var errStandardTopic = errors.New("SNS delivers to a FIFO queue from FIFO topics alone, whose names end in .fifo")
