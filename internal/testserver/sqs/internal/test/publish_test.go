//go:build darwin || linux

package sqs_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func (f *fixture) tryPublish(topic *string, body string, change ...func(*sns.PublishInput)) (*sns.PublishOutput, error) {
	in := &sns.PublishInput{TopicArn: topic, Message: &body}
	for _, c := range change {
		c(in)
	}
	return f.sns.Publish(f.Context(), in)
}

func (f *fixture) publish(topic *string, body string, change ...func(*sns.PublishInput)) *sns.PublishOutput {
	f.Helper()
	out, err := f.tryPublish(topic, body, change...)
	if err != nil {
		f.Fatal(err)
	}
	return out
}

func withAttributes(name, kind, value string) func(*sns.PublishInput) {
	return func(in *sns.PublishInput) {
		if in.MessageAttributes == nil {
			in.MessageAttributes = map[string]types.MessageAttributeValue{}
		}
		v := types.MessageAttributeValue{DataType: &kind, StringValue: &value}
		if kind == "Binary" {
			v.StringValue, v.BinaryValue = nil, []byte(value)
		}
		in.MessageAttributes[name] = v
	}
}

func TestPublish_RawAndInTheEnvelope(t *testing.T) {
	f := start(t, server.Config{})
	topic := f.topic("t")
	for _, q := range []string{"raw", "wrapped"} {
		f.queue(q)
		f.allow(q, topic)
	}
	f.subscribe(topic, "raw", "RawMessageDelivery", "true")
	arn := f.subscribe(topic, "wrapped")
	const body = "a < \"b\" & 😀\n"
	out := f.publish(topic, body, withAttributes("s", "String", "v"), withAttributes("b", "Binary", "\x00\x01"), withAttributes("n", "Number", "5"),
		func(in *sns.PublishInput) { in.Subject = new("about it"); in.MessageGroupId = new("tenant") })

	m := f.one(f.QueueURL("raw"))
	if *m.Body != body || deref(m.MessageAttributes["s"].StringValue) != "v" || string(m.MessageAttributes["b"].BinaryValue) != "\x00\x01" || *m.MessageAttributes["n"].DataType != "Number" {
		t.Errorf("raw: %q with %v", *m.Body, m.MessageAttributes)
	}
	if m.Attributes["MessageGroupId"] != "tenant" {
		t.Errorf("the group id of a tenant arrived as %q", m.Attributes["MessageGroupId"])
	}

	m = f.one(f.QueueURL("wrapped"))
	var got map[string]any
	if err := json.Unmarshal([]byte(*m.Body), &got); err != nil || len(m.MessageAttributes) != 0 {
		t.Fatalf("wrapped: %s, %v, with %v", *m.Body, err, m.MessageAttributes)
	}
	for k, v := range map[string]string{
		"Type": "Notification", "MessageId": *out.MessageId, "TopicArn": *topic, "Subject": "about it", "Message": body, "SignatureVersion": "1",
		"Timestamp": f.Now().UTC().Format("2006-01-02T15:04:05.000Z"), "MessageAttributes": "map[b:map[Type:Binary Value:AAE=] n:map[Type:Number Value:5] s:map[Type:String Value:v]]",
	} {
		if fmt.Sprint(got[k]) != v {
			t.Errorf("wrapped: %s is %q, want %q", k, got[k], v)
		}
	}
	if unsubscribe := fmt.Sprint(got["UnsubscribeURL"]); !strings.HasSuffix(unsubscribe, *arn) || got["Signature"] == nil || got["SigningCertURL"] == nil {
		t.Errorf("wrapped: %v", got)
	}
}

func TestPublish_OnlyWhereTheQueueAllows(t *testing.T) {
	f := start(t, server.Config{})
	topic, other := f.topic("t"), f.topic("other")
	url := f.queue("q")
	f.queue("dead")
	f.allow("dead", topic)
	f.publish(topic, "without subscription")
	arn := f.subscribe(topic, "q", "RawMessageDelivery", "true")
	f.publish(topic, "without policy") // is no error
	f.allow("q", other)
	f.publish(topic, "allowed to another topic")
	f.gets(url)
	f.allow("q", topic)
	f.publish(topic, "allowed")
	f.gets(url, "allowed")

	if err := f.setAttributes(url, "Policy", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.sns.SetSubscriptionAttributes(t.Context(), &sns.SetSubscriptionAttributesInput{
		SubscriptionArn: arn, AttributeName: new("RedrivePolicy"), AttributeValue: new(`{"deadLetterTargetArn":"` + f.QueueARN("dead") + `"}`),
	}); err != nil {
		t.Fatal(err)
	}
	f.publish(topic, "to the dead-letter queue")
	f.gets(f.QueueURL("dead"), "to the dead-letter queue")
	_, err := f.tryPublish(new(f.TopicARN("none")), "x")
	if !is[*types.NotFoundException](err) {
		t.Errorf("to a topic that is not there: %v, want NotFound", err)
	}
	if !f.SubscribeQueue("other", "q") || f.SubscribeQueue("none", "q") || f.SubscribeQueue("t", "none") {
		t.Error("SubscribeQueue reports the wrong thing")
	}
	f.publish(other, "by SubscribeQueue")
	f.gets(url, "by SubscribeQueue")
}

func TestPublish_Refuses(t *testing.T) {
	f := start(t, server.Config{})
	topic := f.topic("t")
	big := strings.Repeat("x", 256<<10)
	for name, tt := range map[string]struct {
		body   string
		change func(*sns.PublishInput)
		code   string
	}{
		"an empty message":            {"", nil, "InvalidParameter"},
		"more than 256 KiB":           {big + "x", nil, "InvalidParameter"},
		"with attributes":             {big, withAttributes("a", "String", "v"), "InvalidParameter"},
		"an empty subject":            {"x", func(in *sns.PublishInput) { in.Subject = new("") }, "InvalidParameter"},
		"a long subject":              {"x", func(in *sns.PublishInput) { in.Subject = new(strings.Repeat("s", 101)) }, "InvalidParameter"},
		"a deduplication id":          {"x", func(in *sns.PublishInput) { in.MessageDeduplicationId = new("d") }, "InvalidParameter"},
		"an empty attribute":          {"x", withAttributes("a", "String", ""), "ParameterValueInvalid"},
		"a structure without default": {`{"sqs":"x"}`, func(in *sns.PublishInput) { in.MessageStructure = new("json") }, "InvalidParameter"},
	} {
		change := func(*sns.PublishInput) {}
		if tt.change != nil {
			change = tt.change
		}
		if _, err := f.tryPublish(topic, tt.body, change); codeOf(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
	f.publish(topic, big)

	large := f.topic("large", "MaximumMessageSize", "1048576")
	f.queue("q")
	f.SubscribeQueue("large", "q")
	f.publish(large, strings.Repeat("x", 1<<20))
	f.counts(f.QueueURL("q"), "1", "0", "0")
	f.publish(large, `{"default":"d","sqs":"for queues"}`, withAttributes("a", "String", "v"), func(in *sns.PublishInput) { in.MessageStructure = new("json") })
	if m := f.receive(f.QueueURL("q")); len(m) != 2 || *m[1].Body != "for queues" || len(m[1].MessageAttributes) != 0 {
		t.Errorf("received %d messages", len(m))
	}
}

func TestPublish_ManyAttributesAreNoRawMessage(t *testing.T) {
	f := start(t, server.Config{})
	topic := f.topic("t")
	url := f.queue("q")
	f.SubscribeQueue("t", "q")
	var many []func(*sns.PublishInput)
	for i := range 11 {
		many = append(many, withAttributes(fmt.Sprint("a", i), "String", "v"))
	}
	f.publish(topic, "11 attributes", many...)
	f.publish(topic, "10 attributes", many[:10]...)
	f.gets(url, "10 attributes")
}

func TestPublishBatch_PartialFailureAndRefusal(t *testing.T) {
	f := start(t, server.Config{})
	topic := f.topic("t")
	url := f.queue("q")
	f.SubscribeQueue("t", "q")
	batch := func(bodies ...string) ([]types.PublishBatchResultEntry, []types.BatchResultErrorEntry, error) {
		var entries []types.PublishBatchRequestEntry
		for i, b := range bodies {
			entries = append(entries, types.PublishBatchRequestEntry{Id: new(fmt.Sprint(i % 11)), Message: &b})
		}
		if len(bodies) == 2 && bodies[1] == "same id" {
			entries[1].Id = entries[0].Id
		}
		if len(bodies) == 0 {
			entries = []types.PublishBatchRequestEntry{}
		}
		out, err := f.sns.PublishBatch(t.Context(), &sns.PublishBatchInput{TopicArn: topic, PublishBatchRequestEntries: entries})
		if err != nil {
			return nil, nil, err
		}
		return out.Successful, out.Failed, nil
	}
	good, bad, err := batch("a", "", "c")
	if err != nil || len(good) != 2 || len(bad) != 1 || *bad[0].Id != "1" || *bad[0].Code != "InvalidParameter" || !bad[0].SenderFault || *good[1].MessageId == "" {
		t.Fatalf("published %v, failed %v, %v", good, bad, err)
	}
	f.gets(url, "a", "c")
	_, _, err = batch("x", "same id")
	f.fails(err, "BatchEntryIdsNotDistinct")
	_, _, err = batch()
	f.fails(err, "EmptyBatchRequest")
	_, _, err = batch(slices.Repeat([]string{"x"}, 11)...)
	f.fails(err, "TooManyEntriesInBatchRequest")
	half := strings.Repeat("x", 128<<10)
	_, _, err = batch(half, half+"x")
	f.fails(err, "BatchRequestTooLong")
}

func TestFIFOTopic_OrderAndDeduplication(t *testing.T) {
	f := start(t, server.Config{})
	topic := f.topic("t.fifo", "FifoTopic", "true")
	url := f.fifo("q.fifo")
	plain := f.queue("plain")
	f.SubscribeQueue("t.fifo", "q.fifo")
	f.SubscribeQueue("t.fifo", "plain")
	to := func(group, deduplication string) func(*sns.PublishInput) {
		return func(in *sns.PublishInput) {
			in.MessageGroupId = &group
			if deduplication != "" {
				in.MessageDeduplicationId = &deduplication
			}
		}
	}
	_, err := f.tryPublish(topic, "x")
	f.fails(err, "InvalidParameter")
	_, err = f.tryPublish(topic, "x", to("g", ""))
	f.fails(err, "InvalidParameter")
	_, err = f.sns.PublishBatch(t.Context(), &sns.PublishBatchInput{TopicArn: topic, PublishBatchRequestEntries: []types.PublishBatchRequestEntry{
		{Id: new("0"), Message: new("x"), MessageGroupId: new("g"), MessageDeduplicationId: new("x")}, {Id: new("1"), Message: new("y")},
	}})
	f.fails(err, "InvalidParameter") // the whole batch
	first := f.publish(topic, "0", to("g", "d0"))
	if second := f.publish(topic, "1", to("g", "d0")); *second.MessageId != *first.MessageId || *second.SequenceNumber != *first.SequenceNumber {
		t.Error("a duplicate got an id of its own")
	}
	second := f.publish(topic, "2", to("g", "d2"))
	if len(*second.SequenceNumber) != 20 || *second.SequenceNumber <= *first.SequenceNumber {
		t.Errorf("sequence numbers %s, %s", *first.SequenceNumber, *second.SequenceNumber)
	}
	got := f.gets(url, "0", "2")
	if a := got[1].Attributes; a["MessageGroupId"] != "g" || a["MessageDeduplicationId"] != "d2" {
		t.Errorf("attributes %v", a)
	}
	f.gets(plain, "0", "2")
	f.Advance(5 * time.Minute)
	f.publish(topic, "later", to("g", "d0"))
	f.counts(url, "3", "0", "0")
}
