//go:build darwin || linux

package sqs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func (f *fixture) trySubscribe(topic *string, queue string, attributes ...string) (*string, error) {
	out, err := f.sns.Subscribe(f.Context(), &sns.SubscribeInput{
		TopicArn: topic, Protocol: new("sqs"), Endpoint: new(f.QueueARN(queue)), Attributes: pairs(attributes), ReturnSubscriptionArn: true,
	})
	if err != nil {
		return nil, err
	}
	return out.SubscriptionArn, nil
}

// subscribe subscribes a queue, whose policy must allow it, and returns the ARN.
func (f *fixture) subscribe(topic *string, queue string, attributes ...string) *string {
	f.Helper()
	arn, err := f.trySubscribe(topic, queue, attributes...)
	if err != nil {
		f.Fatal(err)
	}
	return arn
}

// allow has a queue's policy allow a topic.
func (f *fixture) allow(queue string, topic *string) {
	f.Helper()
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"sns.amazonaws.com"},"Action":"sqs:SendMessage",` +
		`"Resource":"` + f.QueueARN(queue) + `","Condition":{"ArnLike":{"aws:SourceArn":"` + *topic + `"}}}]}`
	if err := f.setAttributes(f.QueueURL(queue), "Policy", policy); err != nil {
		f.Fatal(err)
	}
}

func TestSubscriptions_AreMadeOnceListedAndRemoved(t *testing.T) {
	f := start(t, server.Config{})
	topic := f.topic("t")
	f.fifo("q.fifo")
	first := f.subscribe(topic, "q", "RawMessageDelivery", "true")
	if second := f.subscribe(topic, "q", "RawMessageDelivery", "true"); *second != *first {
		t.Errorf("the second time: %s, want %s", *second, *first)
	}
	for name, attributes := range map[string][]string{
		"another value":         {"RawMessageDelivery", "false"},
		"a wrong value":         {"RawMessageDelivery", "yes"},
		"a filter that is none": {"FilterPolicy", "{"},
		"a scope that is none":  {"FilterPolicyScope", "All"},
		"an unknown attribute":  {"Nonsense", "1"},
		"a redrive to nothing":  {"RedrivePolicy", `{"deadLetterTargetArn":"x"}`},
	} {
		if _, err := f.trySubscribe(topic, "q", attributes...); codeOf(err) != "InvalidParameter" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := f.trySubscribe(topic, "q.fifo")
	f.fails(err, "InvalidParameter")
	_, err = f.trySubscribe(new(f.TopicARN("none")), "q")
	f.fails(err, "NotFound")
	for i := range 120 {
		f.subscribe(topic, fmt.Sprintf("q-%d", i)) // queues need not be there
	}
	n := 0
	for pages := sns.NewListSubscriptionsByTopicPaginator(f.sns, &sns.ListSubscriptionsByTopicInput{TopicArn: topic}); pages.HasMorePages(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Subscriptions)
		if s := page.Subscriptions[0]; *s.Protocol != "sqs" || *s.TopicArn != *topic || !strings.HasPrefix(*s.Endpoint, f.QueueARN("q")) {
			t.Errorf("subscription %v", s)
		}
	}
	if n != 121 {
		t.Errorf("%d subscriptions, want 121", n)
	}

	get := func() (map[string]string, error) {
		out, err := f.sns.GetSubscriptionAttributes(t.Context(), &sns.GetSubscriptionAttributesInput{SubscriptionArn: first})
		if err != nil {
			return nil, err
		}
		return out.Attributes, nil
	}
	set := func(name, value string) error {
		_, err := f.sns.SetSubscriptionAttributes(t.Context(), &sns.SetSubscriptionAttributesInput{SubscriptionArn: first, AttributeName: &name, AttributeValue: &value})
		return err
	}
	if err := set("FilterPolicy", `{"a":["b"]}`); err != nil {
		t.Fatal(err)
	}
	f.fails(set("Nonsense", "1"), "InvalidParameter")
	a, err := get()
	if err != nil || a["RawMessageDelivery"] != "true" || a["FilterPolicy"] != `{"a":["b"]}` || a["FilterPolicyScope"] != "MessageAttributes" || a["Endpoint"] != f.QueueARN("q") {
		t.Errorf("attributes %v, %v", a, err)
	}
	for range 2 { // the second time is no error
		if _, err := f.sns.Unsubscribe(t.Context(), &sns.UnsubscribeInput{SubscriptionArn: first}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = get()
	f.fails(err, "NotFound")
}

func TestFilterPolicy_ChoosesMessages(t *testing.T) {
	f := start(t, server.Config{})
	topic := f.topic("t")
	url := f.queue("q")
	f.allow("q", topic)
	arn := f.subscribe(topic, "q", "RawMessageDelivery", "true", "FilterPolicy", `{"event":["created",{"prefix":"order-"}],"internal":[{"exists":false}]}`)
	publish := func(event string, more ...func(*sns.PublishInput)) {
		f.publish(topic, event, append(more, withAttributes("event", "String", event))...)
	}
	publish("created")
	publish("deleted")
	publish("order-1")
	publish("order-2", withAttributes("internal", "String", "yes"))
	f.publish(topic, "no attribute")
	f.gets(url, "created", "order-1")

	f.setSubscription(arn, "FilterPolicyScope", "MessageBody")
	f.setSubscription(arn, "FilterPolicy", `{"order":{"size":[{"numeric":[">",5]}]}}`)
	f.publish(topic, `{"order":{"size":6}}`)
	f.publish(topic, `{"order":{"size":5}}`)
	f.publish(topic, `no JSON`)
	f.gets(url, `{"order":{"size":6}}`)
}

func (f *fixture) setSubscription(arn *string, name, value string) {
	f.Helper()
	if _, err := f.sns.SetSubscriptionAttributes(f.Context(), &sns.SetSubscriptionAttributesInput{SubscriptionArn: arn, AttributeName: &name, AttributeValue: &value}); err != nil {
		f.Fatal(err)
	}
}
