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
	"github.com/aws/aws-sdk-go-v2/service/sts"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

// topic creates a topic and returns its ARN.
func (f *fixture) topic(name string, attributes ...string) *string {
	f.Helper()
	out, err := f.sns.CreateTopic(f.Context(), &sns.CreateTopicInput{Name: &name, Attributes: pairs(attributes)})
	if err != nil {
		f.Fatal(err)
	}
	return out.TopicArn
}

func TestTopics_AreCreatedOnceListedAndDeleted(t *testing.T) {
	f := start(t, server.Config{})
	arn := f.topic("t", "DisplayName", "D")
	if *arn != "arn:aws:sns:us-east-1:123456789012:t" || *f.topic("t") != *arn || *arn != f.TopicARN("t") {
		t.Errorf("ARN %s", *arn)
	}
	_, err := f.sns.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: new("t"), Attributes: pairs([]string{"DisplayName", "E"})})
	if !is[*types.InvalidParameterException](err) {
		t.Errorf("with another attribute: %v, want InvalidParameter", err)
	}
	for _, name := range []string{"", "a.b", strings.Repeat("t", 257), "t.fifo"} {
		_, err := f.sns.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: &name})
		f.fails(err, "InvalidParameter")
	}
	for i := range 150 {
		f.topic(fmt.Sprintf("page-%03d", i))
	}
	var got []string
	pages, n := sns.NewListTopicsPaginator(f.sns, &sns.ListTopicsInput{}), 0
	for ; pages.HasMorePages(); n++ {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range page.Topics {
			got = append(got, *topic.TopicArn)
		}
	}
	if n != 2 || len(got) != 151 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 151 {
		t.Errorf("%d topics on %d pages, want 151 on 2", len(got), n)
	}
	for range 2 { // the second time is no error
		if _, err := f.sns.DeleteTopic(t.Context(), &sns.DeleteTopicInput{TopicArn: arn}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = f.sns.GetTopicAttributes(t.Context(), &sns.GetTopicAttributesInput{TopicArn: arn})
	if !is[*types.NotFoundException](err) {
		t.Errorf("of a deleted topic: %v, want NotFound", err)
	}
	_, err = f.sns.GetTopicAttributes(t.Context(), &sns.GetTopicAttributesInput{TopicArn: new("t")})
	f.fails(err, "InvalidParameter")
}

func TestTopicAttributes_AndTags(t *testing.T) {
	f := start(t, server.Config{})
	arn := f.topic("t")
	f.queue("q")
	f.subscribe(arn, "q")
	set := func(name, value string) error {
		_, err := f.sns.SetTopicAttributes(t.Context(), &sns.SetTopicAttributesInput{TopicArn: arn, AttributeName: &name, AttributeValue: &value})
		return err
	}
	if err := set("DisplayName", "D & <D>"); err != nil {
		t.Fatal(err)
	}
	f.fails(set("FifoTopic", "true"), "InvalidParameter")
	f.fails(set("Nonsense", "1"), "InvalidParameter")
	f.fails(set("MaximumMessageSize", "1048577"), "InvalidParameter")
	out, err := f.sns.GetTopicAttributes(t.Context(), &sns.GetTopicAttributesInput{TopicArn: arn})
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"TopicArn": *arn, "Owner": "123456789012", "DisplayName": "D & <D>", "SubscriptionsConfirmed": "1"} {
		if out.Attributes[k] != v {
			t.Errorf("%s is %q, want %q", k, out.Attributes[k], v)
		}
	}
	if !json.Valid([]byte(out.Attributes["Policy"])) {
		t.Errorf("policy %q", out.Attributes["Policy"])
	}
	if _, err := f.sns.TagResource(t.Context(), &sns.TagResourceInput{ResourceArn: arn, Tags: []types.Tag{{Key: new("a"), Value: new("1")}, {Key: new("b"), Value: new("2")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.sns.UntagResource(t.Context(), &sns.UntagResourceInput{ResourceArn: arn, TagKeys: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	tags, err := f.sns.ListTagsForResource(t.Context(), &sns.ListTagsForResourceInput{ResourceArn: arn})
	if err != nil || len(tags.Tags) != 1 || *tags.Tags[0].Key != "b" || *tags.Tags[0].Value != "2" {
		t.Errorf("tags %v, %v", tags, err)
	}
	_, err = f.sns.ListTagsForResource(t.Context(), &sns.ListTagsForResourceInput{ResourceArn: new(f.TopicARN("none"))})
	f.fails(err, "ResourceNotFound")
	if _, err := f.sns.AddPermission(t.Context(), &sns.AddPermissionInput{
		TopicArn: arn, Label: new("l"), AWSAccountId: []string{"111111111111"}, ActionName: []string{"Publish"},
	}); err != nil {
		t.Error(err)
	}
	if _, err := f.sns.RemovePermission(t.Context(), &sns.RemovePermissionInput{TopicArn: arn, Label: new("l")}); err != nil {
		t.Error(err)
	}
}

func TestNewTopicsAndSubscriptions_AreKnownLater(t *testing.T) {
	f := start(t, server.Config{})
	f.queue("q")
	f.DelayTopics(time.Minute)
	topic := f.topic("t")
	if *f.topic("t") != *topic {
		t.Error("to create it again gave another ARN")
	}
	_, err := f.tryPublish(topic, "x")
	f.fails(err, "NotFound")
	f.Advance(time.Minute)
	f.publish(topic, "x")
	f.DelaySubscriptions(time.Minute)
	f.SubscribeQueue("t", "q")
	f.publish(topic, "too early")
	f.Advance(time.Minute)
	f.publish(topic, "delivered")
	f.gets(f.QueueURL("q"), "delivered")
}

func TestGetCallerIdentity_AnswersTheAccount(t *testing.T) {
	f := start(t, server.Config{Account: "000000000007"})
	client := sts.New(sts.Options{BaseEndpoint: new(f.URL()), Region: "us-east-1", Credentials: keys})
	out, err := client.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil || *out.Account != "000000000007" || *out.UserId == "" || *out.Arn == "" {
		t.Errorf("identity %v, %v", out, err)
	}
}
