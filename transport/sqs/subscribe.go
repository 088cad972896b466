package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/transport"
)

// Subscribe subscribes a queue to topics: it creates each missing topic, and a
// subscription with raw delivery. If the queue's policy does not let a topic send to
// it, it adds a statement that lets all topics of the account whose names begin with
// Config.TopicPrefix. The service takes up to a minute to apply that: after 10 s Subscribe returns an
// error matching core.ErrUnavailable, and a later call finds the statement.
func (t *Transport) Subscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.subscribeAll(ctx, queue, topics); err != nil {
		return fmt.Errorf("sqs: subscribe %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return nil
}

func (t *Transport) subscribeAll(ctx context.Context, queue string, topics []string) error {
	names, url, arn, err := t.subscription(ctx, queue, topics)
	if err != nil {
		return err
	}
	var topicARNs []string
	for _, name := range names {
		attributes := map[string]string{}
		if isFIFO(name) {
			attributes["FifoTopic"] = "true"
		} else if isFIFO(arn) {
			return transport.Permanent(fmt.Errorf("the topic %q: %w", name, errStandardTopic))
		}
		if t.cfg.KMSKey != "" {
			attributes["KmsMasterKeyId"] = t.cfg.KMSKey
		}
		topicARN, err := t.findOrCreateTopic(ctx, name, attributes)
		if err != nil {
			return fmt.Errorf("create the topic %q: %w", name, err)
		}
		topicARNs = append(topicARNs, topicARN)
	}
	anyTopic, err := t.topicARN(ctx, t.cfg.TopicPrefix+"*")
	if err != nil {
		return err
	}
	if err := t.allow(ctx, url, arn, topicARNs, anyTopic); err != nil {
		return err
	}
	for _, topicARN := range topicARNs {
		err := t.eventually(ctx, func() error { return t.subscribe(ctx, topicARN, arn) })
		switch {
		case err != nil && faultOf(err) == faultNoQueue:
			return fmt.Errorf("the topic does not exist %v after it was created: %w", consistencyLimit, noTopicError{err})
		case err != nil:
			return err
		}
	}
	return nil
}

// findOrCreateTopic returns the ARN of a topic. An existing topic stays unchanged, even
// if its attributes differ.
func (t *Transport) findOrCreateTopic(ctx context.Context, name string, attributes map[string]string) (string, error) {
	arn, err := t.topicARN(ctx, name)
	if err != nil {
		return "", err
	}
	_, err = t.sns.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &arn})
	switch {
	case err == nil:
		return arn, nil
	case faultOf(err) != faultNoQueue:
		return "", err
	}
	out, err := t.sns.CreateTopic(ctx, &sns.CreateTopicInput{Name: &name, Attributes: attributes})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.TopicArn), nil
}

func (t *Transport) subscribe(ctx context.Context, topicARN, queueARN string) error {
	protocol := "sqs"
	_, err := t.sns.Subscribe(ctx, &sns.SubscribeInput{
		TopicArn: &topicARN, Protocol: &protocol, Endpoint: &queueARN, Attributes: map[string]string{"RawMessageDelivery": "true"}, ReturnSubscriptionArn: true,
	})
	if err == nil {
		return nil
	}
	if subscription, findErr := t.findSubscription(ctx, topicARN, queueARN); findErr == nil && subscription != "" {
		return nil // its attributes differ, which is its owner's choice: a receiver reads both kinds of delivery
	}
	return fmt.Errorf("subscribe to %s: %w", topicARN, err)
}

// Unsubscribe deletes the subscriptions of a queue to topics. The topics and the queue's policy stay.
func (t *Transport) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.unsubscribeAll(ctx, queue, topics); err != nil {
		return fmt.Errorf("sqs: unsubscribe %q: %w", queue, transport.Unavailable(ctx, t.explained(err), transient))
	}
	return nil
}

func (t *Transport) unsubscribeAll(ctx context.Context, queue string, topics []string) error {
	names, _, arn, err := t.subscription(ctx, queue, topics)
	if err != nil {
		return err
	}
	for _, name := range names {
		topicARN, err := t.topicARN(ctx, name)
		if err != nil {
			return err
		}
		subscription, err := t.findSubscription(ctx, topicARN, arn)
		switch {
		case err != nil && faultOf(err) == faultNoQueue: // the topic does not exist
		case err != nil:
			return err
		case subscription != "":
			if _, err := t.sns.Unsubscribe(ctx, &sns.UnsubscribeInput{SubscriptionArn: &subscription}); err != nil {
				return fmt.Errorf("unsubscribe from %s: %w", topicARN, err)
			}
		}
	}
	return nil
}

// subscription returns the names of topics, and the URL and the ARN of a queue.
func (t *Transport) subscription(ctx context.Context, queue string, topics []string) (names []string, url, arn string, err error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, "", "", err
	}
	address, err := t.cfg.queueAddress(queue)
	if err != nil {
		return nil, "", "", err
	}
	for _, topic := range topics {
		name, err := t.cfg.topicName(topic)
		if err != nil {
			return nil, "", "", err
		}
		names = append(names, name)
	}
	url, has, err := t.inspect(ctx, address)
	if err != nil {
		return nil, "", "", err
	}
	return names, url, has["QueueArn"], nil
}

// findSubscription returns the ARN of the subscription of a queue to a topic, or "".
func (t *Transport) findSubscription(ctx context.Context, topicARN, queueARN string) (string, error) {
	pages := sns.NewListSubscriptionsByTopicPaginator(t.sns, &sns.ListSubscriptionsByTopicInput{TopicArn: &topicARN})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", err
		}
		for _, s := range page.Subscriptions {
			if aws.ToString(s.Protocol) == "sqs" && aws.ToString(s.Endpoint) == queueARN && strings.HasPrefix(aws.ToString(s.SubscriptionArn), "arn:") {
				return *s.SubscriptionArn, nil
			}
		}
	}
	return "", nil
}

// accessPolicy is the policy of a queue. Members that the adapter does not know stay as they are.
type accessPolicy map[string]any

type accessStatement struct {
	Sid       string                       `json:",omitempty"`
	Effect    string                       //
	Principal map[string]string            //
	Action    string                       //
	Resource  string                       //
	Condition map[string]map[string]string `json:",omitempty"`
}

// mayBeSentTo is a statement that lets topics of the account send to a queue.
func mayBeSentTo(queueARN, topicPattern string) accessStatement {
	return accessStatement{
		Effect: "Allow", Principal: map[string]string{"Service": "sns.amazonaws.com"}, Action: "sqs:SendMessage", Resource: queueARN,
		Condition: map[string]map[string]string{"ArnLike": {"aws:SourceArn": topicPattern}},
	}
}

// allow adds a statement to the policy of a queue if it does not let all topics send, and waits
// until the queue has it. Other programs may write the policy at the same time, which the service
// does not detect: it is written again over any other that lacks the statement.
func (t *Transport) allow(ctx context.Context, url, arn string, topicARNs []string, anyTopic string) error {
	replaced, written := "", false
	pause := firstPolicyPause
	for deadline := time.Now().Add(policyWait); ; pause = min(2*pause, lastPolicyPause) {
		out, err := t.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: policyAttribute})
		if err != nil {
			return err
		}
		before := out.Attributes["Policy"]
		policy := accessPolicy{}
		if before != "" {
			if err := json.Unmarshal([]byte(before), &policy); err != nil {
				return transport.Permanent(fmt.Errorf("the queue's policy cannot be read: %w", err))
			}
		}
		switch {
		case !policy.add(arn, topicARNs, anyTopic):
			return nil
		case time.Now().After(deadline):
			return errPolicyLate
		case !written || before != replaced:
			text, err := json.Marshal(policy)
			if err != nil {
				return err
			}
			if _, err := t.sqs.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{"Policy": string(text)}}); err != nil {
				return fmt.Errorf("letting topics send to the queue: %w", err)
			}
			replaced, written = before, true
		}
		if err := transport.Sleep(ctx, t.life.Context(), pause, nil); err != nil {
			return err
		}
	}
}

var (
	policyAttribute = []types.QueueAttributeName{types.QueueAttributeNamePolicy}
	errPolicyLate   = errors.New("the queue's policy does not let topics send to it yet: SQS takes up to 60 s to apply a change; if it takes longer, another program changes the policy at the same time; to fix: stop that program, or add the statements to its policy")
)

const (
	firstPolicyPause = 50 * time.Millisecond
	lastPolicyPause  = 2 * time.Second
	policyWait       = 10 * time.Second
)

// add adds a statement that lets any topic send, unless the policy lets all of topicARNs. It reports
// whether it added one.
func (p accessPolicy) add(queueARN string, topicARNs []string, anyTopic string) bool {
	var statements []any
	switch s := p["Statement"].(type) {
	case []any:
		statements = s
	case map[string]any:
		statements = []any{s}
	}
	if !slices.ContainsFunc(topicARNs, func(topic string) bool { return !allowedBy(statements, topic) }) {
		return false
	}
	p["Statement"] = append(statements, mayBeSentTo(queueARN, anyTopic))
	if p["Version"] == nil {
		p["Version"] = "2012-10-17"
	}
	return true
}

// allowedBy reports whether a statement that this adapter, or NServiceBus, may have
// written lets a topic send.
func allowedBy(statements []any, topicARN string) bool {
	for _, s := range statements {
		m, _ := s.(map[string]any)
		if m["Effect"] != "Allow" || !anyMatches(m["Action"], "sqs:SendMessage", true) && !anyMatches(m["Action"], "SQS:SendMessage", true) {
			continue
		}
		conditions, _ := m["Condition"].(map[string]any)
		for _, kind := range []string{"ArnLike", "ArnEquals", "StringLike", "StringEquals"} {
			condition, _ := conditions[kind].(map[string]any)
			for key, values := range condition {
				if strings.EqualFold(key, "aws:SourceArn") && len(conditions) == 1 && len(condition) == 1 && anyMatches(values, topicARN, strings.HasSuffix(kind, "Like")) {
					return true
				}
			}
		}
	}
	return false
}

// anyMatches reports whether text matches one of values, which may be patterns with "*"
// at the end.
func anyMatches(values any, text string, patterns bool) bool {
	list, ok := values.([]any)
	if !ok {
		list = []any{values}
	}
	for _, v := range list {
		value, _ := v.(string)
		prefix, isPattern := strings.CutSuffix(value, "*")
		if value == text || patterns && isPattern && strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}
