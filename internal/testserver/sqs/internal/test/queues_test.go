//go:build darwin || linux

package sqs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func TestCreateQueue_AttributesAreReadable(t *testing.T) {
	f := start(t, server.Config{Region: "eu-west-1", Account: "000000000001"})
	url := f.queue("q", "VisibilityTimeout", "20", "KmsMasterKeyId", "alias/key")
	if want := f.URL() + "/000000000001/q"; url != want {
		t.Errorf("URL %s, want %s", url, want)
	}
	created := fmt.Sprint(f.Now().Unix())
	want := map[string]string{
		"QueueArn": "arn:aws:sqs:eu-west-1:000000000001:q", "VisibilityTimeout": "20", "DelaySeconds": "0",
		"MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0",
		"SqsManagedSseEnabled": "false", "KmsMasterKeyId": "alias/key", "KmsDataKeyReusePeriodSeconds": "300",
		"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0", "ApproximateNumberOfMessagesDelayed": "0",
	}
	got := f.attributes(url)
	for _, stamp := range []string{"CreatedTimestamp", "LastModifiedTimestamp"} {
		if len(got[stamp]) != len(created) {
			t.Errorf("%s is %q, want seconds such as %s", stamp, got[stamp], created)
		}
		delete(got, stamp)
	}
	if !maps.Equal(got, want) {
		t.Errorf("attributes %v, want %v", got, want)
	}

	fifo := f.attributes(f.fifo("q.fifo"))
	for k, v := range map[string]string{
		"FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue",
	} {
		if fifo[k] != v {
			t.Errorf("%s of a FIFO queue is %q, want %q", k, fifo[k], v)
		}
	}
	out, err := f.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url})
	if err != nil || len(out.Attributes) != 0 {
		t.Errorf("without names: %v, %v, want no attributes", out, err)
	}
}

func TestCreateQueue_IsIdempotent(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q", "DelaySeconds", "3")
	if second := f.queue("q", "DelaySeconds", "3"); second != url {
		t.Errorf("the second time: %s, want %s", second, url)
	}
	f.queue("q") // attributes that are not given may be any
	_, err := f.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: new("q"), Attributes: pairs([]string{"DelaySeconds", "4"})})
	if !is[*types.QueueNameExists](err) {
		t.Errorf("with another attribute: %v, want QueueNameExists", err)
	}
	f.fails(err, "QueueAlreadyExists")
}

func TestCreateQueue_RefusesNamesAndAttributes(t *testing.T) {
	f := start(t, server.Config{})
	f.fifo("dead.fifo")
	f.queue("dead")
	policy := func(target, limit string) string {
		return `{"deadLetterTargetArn":"` + target + `","maxReceiveCount":` + limit + `}`
	}
	tests := map[string]struct {
		name       string
		attributes []string
		code       string
	}{
		"a character that names cannot have": {"a.b", nil, "InvalidParameterValue"},
		"81 characters":                      {strings.Repeat("a", 81), nil, "InvalidParameterValue"},
		"FIFO without suffix":                {"q", []string{"FifoQueue", "true"}, "InvalidParameterValue"},
		"the suffix without FIFO":            {"q.fifo", nil, "InvalidParameterValue"},
		"FIFO that is false":                 {"q", []string{"FifoQueue", "false"}, "InvalidAttributeName"},
		"an unknown attribute":               {"q", []string{"Nonsense", "1"}, "InvalidAttributeName"},
		"a read-only attribute":              {"q", []string{"QueueArn", "1"}, "InvalidAttributeName"},
		"a delay over 900":                   {"q", []string{"DelaySeconds", "901"}, "InvalidAttributeValue"},
		"a visibility timeout over 43200":    {"q", []string{"VisibilityTimeout", "43201"}, "InvalidAttributeValue"},
		"a number that is none":              {"q", []string{"VisibilityTimeout", "x"}, "InvalidAttributeValue"},
		"a size below 1024":                  {"q", []string{"MaximumMessageSize", "1023"}, "InvalidAttributeValue"},
		"a size over 1 MiB":                  {"q", []string{"MaximumMessageSize", "1048577"}, "InvalidAttributeValue"},
		"a retention below 60":               {"q", []string{"MessageRetentionPeriod", "59"}, "InvalidAttributeValue"},
		"a wait over 20":                     {"q", []string{"ReceiveMessageWaitTimeSeconds", "21"}, "InvalidAttributeValue"},
		"a policy that is no JSON":           {"q", []string{"Policy", "{"}, "InvalidAttributeValue"},
		"deduplication in a standard queue":  {"q", []string{"ContentBasedDeduplication", "true"}, "InvalidAttributeName"},
		"a scope in a standard queue":        {"q", []string{"DeduplicationScope", "queue"}, "InvalidAttributeName"},
		"throughput per group without scope": {"q.fifo", []string{"FifoQueue", "true", "FifoThroughputLimit", "perMessageGroupId"}, "InvalidAttributeValue"},
		"two kinds of encryption":            {"q", []string{"KmsMasterKeyId", "k", "SqsManagedSseEnabled", "true"}, "InvalidAttributeName"},
		"a dead-letter queue that is not":    {"q", []string{"RedrivePolicy", policy(f.QueueARN("none"), "1")}, "InvalidParameterValue"},
		"a dead-letter ARN that is none":     {"q", []string{"RedrivePolicy", policy("dummy", "1")}, "InvalidParameterValue"},
		"a dead-letter queue that is FIFO":   {"q", []string{"RedrivePolicy", policy(f.QueueARN("dead.fifo"), "1")}, "InvalidParameterValue"},
		"0 receives":                         {"q", []string{"RedrivePolicy", policy(f.QueueARN("dead"), "0")}, "InvalidParameterValue"},
		"1001 receives":                      {"q", []string{"RedrivePolicy", policy(f.QueueARN("dead"), "1001")}, "InvalidParameterValue"},
		"no receives":                        {"q", []string{"RedrivePolicy", `{"deadLetterTargetArn":"` + f.QueueARN("dead") + `"}`}, "InvalidParameterValue"},
		"an unknown redrive permission":      {"q", []string{"RedriveAllowPolicy", `{"redrivePermission":"some"}`}, "InvalidParameterValue"},
	}
	for name, tt := range tests {
		_, err := f.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &tt.name, Attributes: pairs(tt.attributes)})
		if codeOf(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
	f.queue("q", "RedrivePolicy", policy(f.QueueARN("dead"), `"3"`)) // the count may be a string
}

func TestMissingQueue_HasATypeAndItsCode(t *testing.T) {
	f := start(t, server.Config{})
	url := f.QueueURL("none")
	_, get := f.sqs.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: new("none")})
	_, send := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: new("x")})
	_, receive := f.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url})
	for name, err := range map[string]error{"get": get, "send": send, "receive": receive} {
		if !is[*types.QueueDoesNotExist](err) {
			t.Errorf("%s: %v, want QueueDoesNotExist", name, err)
		}
		f.fails(err, "AWS.SimpleQueueService.NonExistentQueue")
	}
	_, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: new("none"), MessageBody: new("x")})
	f.fails(err, "InvalidAddress")
}

func TestListQueues_PrefixAndPages(t *testing.T) {
	f := start(t, server.Config{})
	for _, name := range []string{"b-1", "a-2", "a-1", "a-3"} {
		f.queue(name)
	}
	var got []string
	pages := sqs.NewListQueuesPaginator(f.sqs, &sqs.ListQueuesInput{QueueNamePrefix: new("a-"), MaxResults: new(int32(2))})
	n := 0
	for ; pages.HasMorePages(); n++ {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page.QueueUrls...)
	}
	if want := []string{f.QueueURL("a-1"), f.QueueURL("a-2"), f.QueueURL("a-3")}; n != 2 || !slices.Equal(got, want) {
		t.Errorf("%q on %d pages, want %q on 2", got, n, want)
	}
	_, err := f.sqs.ListQueues(t.Context(), &sqs.ListQueuesInput{MaxResults: new(int32(1001))})
	f.fails(err, "InvalidParameterValue")
	if got, want := f.Queues(), []string{"a-1", "a-2", "a-3", "b-1"}; !slices.Equal(got, want) {
		t.Errorf("Queues: %q, want %q", got, want)
	}
}

func TestTags_OfAQueue(t *testing.T) {
	f := start(t, server.Config{})
	out, err := f.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: new("q"), Tags: map[string]string{"a": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	url := out.QueueUrl
	if _, err := f.sqs.TagQueue(t.Context(), &sqs.TagQueueInput{QueueUrl: url, Tags: map[string]string{"b": "2", "c": ""}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.sqs.UntagQueue(t.Context(), &sqs.UntagQueueInput{QueueUrl: url, TagKeys: []string{"a", "none"}}); err != nil {
		t.Fatal(err)
	}
	tags, err := f.sqs.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: url})
	if err != nil || !maps.Equal(tags.Tags, map[string]string{"b": "2", "c": ""}) {
		t.Errorf("tags %v, %v, want b and c", tags, err)
	}
}

func TestSetQueueAttributes_ChangesAndRefuses(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q", "Policy", `{"Statement":[]}`)
	if err := f.setAttributes(url, "VisibilityTimeout", "7", "Policy", ""); err != nil {
		t.Fatal(err)
	}
	a := f.attributes(url)
	if _, ok := a["Policy"]; a["VisibilityTimeout"] != "7" || ok {
		t.Errorf("attributes %v, want VisibilityTimeout 7 and no Policy", a)
	}
	f.fails(f.setAttributes(url, "FifoQueue", "true"), "InvalidAttributeName")
	f.fails(f.setAttributes(url, "Nonsense", "1"), "InvalidAttributeName")
	f.fails(f.setAttributes(url, "DelaySeconds", "-1"), "InvalidAttributeValue")
	fifo := f.fifo("q.fifo")
	f.fails(f.setAttributes(fifo, "FifoQueue", "false"), "InvalidAttributeValue")
	_, err := f.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"Nonsense"}})
	f.fails(err, "InvalidAttributeName")
}

func TestDeleteQueue_ItsNameIsFreeAfterAMinute(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.send(url, "x")
	poll := f.poll(t.Context(), "q", 0, 0, 1) // a short poll takes the message
	f.answer(poll)
	waits := f.poll(t.Context(), "q", 1, 20, 1)
	if _, err := f.sqs.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
		t.Fatal(err)
	}
	if got := f.answer(waits); len(got) != 0 {
		t.Errorf("a poll of the deleted queue got %q", bodies(got))
	}
	_, err := f.sqs.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &url})
	f.fails(err, "AWS.SimpleQueueService.NonExistentQueue")
	_, err = f.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: new("q")})
	if !is[*types.QueueDeletedRecently](err) {
		t.Errorf("created at once: %v, want QueueDeletedRecently", err)
	}
	f.Advance(time.Minute)
	f.gets(f.queue("q"))
}

func TestPurgeQueue_OnceAMinute(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	purge := func() error {
		_, err := f.sqs.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &url})
		return err
	}
	f.send(url, "in flight")
	f.receive(url)
	f.send(url, "ready")
	f.send(url, "delayed", func(in *sqs.SendMessageInput) { in.DelaySeconds = 5 })
	if err := purge(); err != nil {
		t.Fatal(err)
	}
	f.counts(url, "0", "0", "0")
	err := purge()
	if !is[*types.PurgeQueueInProgress](err) {
		t.Errorf("at once again: %v, want PurgeQueueInProgress", err)
	}
	f.Advance(time.Minute)
	if err := purge(); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

func TestRetention_MessagesExpire(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q", "MessageRetentionPeriod", "60")
	f.send(url, "first")
	f.Advance(59 * time.Second)
	f.send(url, "second")
	f.counts(url, "2", "0", "0")
	f.Advance(time.Second)
	f.gets(url, "second")
	f.Advance(59 * time.Second) // also while it is in flight, or is ready again
	f.counts(url, "0", "0", "0")
	f.send(url, "third")
	if err := f.setAttributes(url, "MessageRetentionPeriod", "120"); err != nil {
		t.Fatal(err)
	}
	f.Advance(119 * time.Second)
	f.gets(url, "third")
}

func TestPermissions_BecomeThePolicy(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	add := func(label string, actions ...string) error {
		_, err := f.sqs.AddPermission(t.Context(), &sqs.AddPermissionInput{
			QueueUrl: &url, Label: &label, AWSAccountIds: []string{"111111111111"}, Actions: actions,
		})
		return err
	}
	remove := func(label string) error {
		_, err := f.sqs.RemovePermission(t.Context(), &sqs.RemovePermissionInput{QueueUrl: &url, Label: &label})
		return err
	}
	if err := add("one", "ReceiveMessage"); err != nil {
		t.Fatal(err)
	}
	arn := f.QueueARN("q")
	want := `{"Version":"2008-10-17","Id":"` + arn + `/SQSDefaultPolicy","Statement":[{"Sid":"one","Effect":"Allow",` +
		`"Principal":{"AWS":"arn:aws:iam::111111111111:root"},"Action":"SQS:ReceiveMessage","Resource":"` + arn + `"}]}`
	if got := f.attributes(url)["Policy"]; got != want {
		t.Errorf("policy\n%s\nwant\n%s", got, want)
	}
	f.fails(add("one", "SendMessage"), "InvalidParameterValue")
	f.fails(add("two", "CreateQueue"), "InvalidParameterValue")
	f.fails(add("two", slices.Repeat([]string{"SendMessage"}, 8)...), "OverLimit")
	f.fails(remove("two"), "InvalidParameterValue")
	if err := remove("one"); err != nil {
		t.Fatal(err)
	}
	if got := f.attributes(url)["Policy"]; got != "" {
		t.Errorf("policy %s after the last permission was removed", got)
	}
}
