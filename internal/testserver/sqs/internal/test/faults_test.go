//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func (f *fixture) trySend(url, body string) error {
	_, err := f.sqs.SendMessage(f.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body})
	return err
}

// struck fails unless a fault has struck.
func (f *fixture) struck(fault <-chan struct{}) {
	f.Helper()
	select {
	case <-fault:
	default:
		f.Error("the fault has not struck")
	}
}

func TestLoseAnswer_RequestIsExecuted(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	other := f.queue("other")
	fault := f.LoseAnswer(server.Match{Operation: "SendMessage", Name: "q"})
	f.send(other, "x") // does not match
	if err := f.trySend(url, "lost"); err == nil || codeOf(err) != "" {
		t.Errorf("the client got %v, want an error of the connection", err)
	}
	f.struck(fault)
	f.gets(url, "lost")
	f.send(url, "next")
}

func TestCutConnection_RequestIsNotExecuted(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	fault := f.CutConnection(server.Match{Operation: "SendMessage"})
	if err := f.trySend(url, "cut"); err == nil || codeOf(err) != "" {
		t.Errorf("the client got %v, want an error of the connection", err)
	}
	f.struck(fault)
	f.gets(url)
}

func TestReject_AnswersTheGivenError(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	topic := f.topic("t")
	for code, want := range map[server.Code]struct {
		code   string
		status int
		sns    string
	}{
		server.Throttling:         {"ThrottlingException", 400, "Throttling"},
		server.RequestThrottled:   {"RequestThrottled", 403, "Throttled"},
		server.KmsThrottled:       {"KMS.ThrottlingException", 400, "KMSThrottling"},
		server.KmsAccessDenied:    {"KMS.AccessDeniedException", 400, "KMSAccessDenied"},
		server.AccessDenied:       {"AccessDenied", 403, "AuthorizationError"},
		server.ExpiredToken:       {"ExpiredToken", 403, "ExpiredToken"},
		server.TimeTooSkewed:      {"RequestTimeTooSkewed", 403, "RequestTimeTooSkewed"},
		server.InternalFailure:    {"InternalFailure", 500, "InternalError"},
		server.ServiceUnavailable: {"ServiceUnavailable", 503, "ServiceUnavailable"},
		server.InvalidClientToken: {"InvalidClientTokenId", 403, "InvalidClientTokenId"},
	} {
		fault := f.Reject(server.Match{Name: "q"}, code)
		err := f.trySend(url, "x")
		var response *awshttp.ResponseError
		if codeOf(err) != want.code || !errors.As(err, &response) || response.HTTPStatusCode() != want.status {
			t.Errorf("%s: %v, want %s with %d", code, err, want.code, want.status)
		}
		f.struck(fault)
		f.Reject(server.Match{Operation: "Publish", Name: "t"}, code)
		if _, err := f.tryPublish(topic, "x"); codeOf(err) != want.sns {
			t.Errorf("%s: SNS answers %v, want %s", code, err, want.sns)
		}
	}
	f.Reject(server.Match{}, server.KmsThrottled)
	if err := f.trySend(url, "x"); !is[*types.KmsThrottled](err) {
		t.Errorf("%v has no type of its own", err)
	}
	f.Reject(server.Match{}, server.KmsThrottled)
	if _, err := f.tryPublish(topic, "x"); !is[*snstypes.KMSThrottlingException](err) {
		t.Errorf("%v has no type of its own", err)
	}
	f.gets(url)
}

func TestFaults_InTheirOrderAndNumber(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	send := server.Match{Operation: "SendMessage"}
	twice := send
	twice.Times = 2
	first := f.Reject(twice, server.InternalFailure)
	second := f.Reject(send, server.Throttling)
	f.fails(f.trySend(url, "x"), "InternalFailure")
	select {
	case <-first:
		t.Error("a fault that is to strike twice says so after the first time")
	default:
	}
	f.fails(f.trySend(url, "x"), "InternalFailure")
	f.struck(first)
	f.fails(f.trySend(url, "x"), "ThrottlingException")
	f.struck(second)
	f.send(url, "good")

	permanent := f.Reject(server.Match{Operation: "SendMessage", Times: -1}, server.ServiceUnavailable)
	for range 4 {
		f.fails(f.trySend(url, "x"), "ServiceUnavailable")
	}
	f.struck(permanent)
	f.ClearFaults()
	f.send(url, "good")
}

func TestRetries_OfTheSDKSucceed(t *testing.T) {
	f := start(t, server.Config{})
	f.queue("q")
	url := f.QueueURL("q")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := newSQS(f.URL(), transport, func(o *sqs.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff, o.MaxAttempts = time.Millisecond, 10 })
	})
	f.ResetRequests()
	match := server.Match{Operation: "SendMessage", Name: "q"}
	f.CutConnection(match)
	f.LoseAnswer(match)
	for _, code := range []server.Code{server.Throttling, server.RequestThrottled, server.InternalFailure, server.ServiceUnavailable} {
		f.Reject(match, code)
	}
	if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: new("x")}); err != nil {
		t.Fatal(err)
	}
	if n := f.Requests("q"); n["SendMessage"] != 7 || len(n) != 1 {
		t.Errorf("requests %v, want 7 to send", n)
	}
	f.gets(url, "x", "x") // once by the request whose answer was lost
	f.Reject(match, server.AccessDenied)
	_, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: new("x")})
	f.fails(err, "AccessDenied")
	if n := f.Requests("q")["SendMessage"]; n != 8 {
		t.Errorf("%d requests to send, want no retry", n)
	}
}

func TestFailEntry_TheOthersSucceed(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.FailEntry(server.Match{Operation: "SendMessageBatch"}, 1, server.InternalFailure)
	out, err := f.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: batchOf("a", "b", "c")})
	if err != nil || len(out.Successful) != 2 || len(out.Failed) != 1 || *out.Failed[0].Code != "InternalFailure" || out.Failed[0].SenderFault {
		t.Fatalf("sent %v, %v", out, err)
	}
	got := f.gets(url, "a", "c")
	f.FailEntry(server.Match{Operation: "DeleteMessageBatch"}, 0, server.KmsThrottled)
	deleted, err := f.sqs.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{
		{Id: new("0"), ReceiptHandle: got[0].ReceiptHandle}, {Id: new("1"), ReceiptHandle: got[1].ReceiptHandle},
	}})
	if err != nil || len(deleted.Successful) != 1 || len(deleted.Failed) != 1 || *deleted.Failed[0].Code != "KMS.ThrottlingException" {
		t.Fatalf("deleted %v, %v", deleted, err)
	}
	f.counts(url, "0", "1", "0")
	topic := f.topic("t")
	f.FailEntry(server.Match{Operation: "PublishBatch", Name: "t"}, 0, server.InternalFailure)
	published, err := f.sns.PublishBatch(t.Context(), &sns.PublishBatchInput{TopicArn: topic, PublishBatchRequestEntries: []snstypes.PublishBatchRequestEntry{
		{Id: new("0"), Message: new("x")}, {Id: new("1"), Message: new("y")},
	}})
	if err != nil || len(published.Successful) != 1 || len(published.Failed) != 1 || *published.Failed[0].Code != "InternalError" || published.Failed[0].SenderFault {
		t.Fatalf("published %v, %v", published, err)
	}
}

func TestDelayAnswer_RequestIsExecutedAtOnce(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	fault := f.DelayAnswer(server.Match{Operation: "SendMessage"}, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.sqs.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &url, MessageBody: new("x")})
		done <- err
	}()
	<-fault
	if got := f.answer(f.poll(t.Context(), "q", 0, 20, 1)); len(got) != 1 {
		t.Errorf("received %q", bodies(got))
	}
	select {
	case err := <-done:
		t.Fatalf("it was answered at once: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	f.DelayAnswer(server.Match{Operation: "SendMessage"}, time.Millisecond)
	f.send(url, "y")
}

func TestDuplicateDeliveries_OfAStandardQueue(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	id := f.send(url, "x")
	if !f.DuplicateDeliveries("q", 1) || f.DuplicateDeliveries("none", 1) {
		t.Error("DuplicateDeliveries reports the wrong thing")
	}
	first := f.one(url)
	second := f.one(url)
	if *first.MessageId != id || *second.MessageId != id || *first.ReceiptHandle == *second.ReceiptHandle {
		t.Errorf("received %s and %s, want %s twice", *first.MessageId, *second.MessageId, id)
	}
	f.delete(url, first)
	f.setVisibility(url, second, 0)
	f.gets(url, "x")
	f.Advance(30 * time.Second)
	f.gets(url, "x") // no third one
}

func TestShuffle_StandardQueue(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	f.Shuffle("q", true)
	var sent []string
	for i := range 30 {
		sent = append(sent, strconv.Itoa(i))
		f.send(url, sent[i])
	}
	got := append(bodies(f.receive(url)), append(bodies(f.receive(url)), bodies(f.receive(url))...)...)
	if slices.Equal(got, sent) {
		t.Error("30 messages were received in their order") // which happens once in 30! runs
	}
	slices.Sort(got)
	slices.Sort(sent)
	if !slices.Equal(got, sent) {
		t.Errorf("received %q, want %q", got, sent)
	}
	f.Shuffle("q", false)
	f.send(url, "a")
	f.send(url, "b")
	f.gets(url, "a", "b")
}

func TestRequests_AreCountedByOperationAndName(t *testing.T) {
	f := start(t, server.Config{})
	q, other := f.queue("q"), f.queue("other")
	topic := f.topic("t")
	f.send(q, "x")
	f.send(other, "x")
	f.receive(q)
	f.publish(topic, "x")
	_ = f.trySend(q, "") // refused ones count, too
	if n := f.Requests("q"); n["SendMessage"] != 2 || n["ReceiveMessage"] != 1 || n["CreateQueue"] != 1 {
		t.Errorf("requests %v for q", n)
	}
	if n := f.Requests(""); n["SendMessage"] != 3 || n["Publish"] != 1 || n["CreateTopic"] != 1 {
		t.Errorf("requests %v in all", n)
	}
	if n := f.Requests("t"); n["Publish"] != 1 {
		t.Errorf("requests %v for the topic", n)
	}
	f.ResetRequests()
	if n := f.Requests(""); len(n) != 0 {
		t.Errorf("requests %v after the reset", n)
	}
}

func TestContents_OfAQueue(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	if _, ok := f.Contents("none"); ok {
		t.Error("there is a queue that was not created")
	}
	now := f.Now()
	f.send(url, "in flight")
	f.receive(url)
	f.send(url, "first", func(in *sqs.SendMessageInput) {
		in.MessageAttributes = map[string]types.MessageAttributeValue{"a": text("v")}
	})
	f.send(url, "second")
	f.send(url, "delayed", func(in *sqs.SendMessageInput) { in.DelaySeconds = 5 })
	c, ok := f.Contents("q")
	if !ok || len(c.Ready) != 2 || len(c.Delayed) != 1 || len(c.InFlight) != 1 {
		t.Fatalf("contents %+v, %t", c, ok)
	}
	if c.Ready[0].Body != "first" || c.Ready[0].Attributes["a"] != "v" || c.Ready[1].Body != "second" {
		t.Errorf("ready %+v", c.Ready)
	}
	if d := c.Delayed[0]; d.Body != "delayed" || !d.Due.Equal(now.Add(5*time.Second)) || !d.Sent.Equal(now) {
		t.Errorf("delayed %+v", d)
	}
	if m := c.InFlight[0]; m.Body != "in flight" || m.ReceiveCount != 1 || !m.Due.Equal(now.Add(30*time.Second)) {
		t.Errorf("in flight %+v", m)
	}
}

func TestAccessKey_IsChecked(t *testing.T) {
	f := start(t, server.Config{AccessKey: "AKIAOTHER"})
	_, err := f.sqs.ListQueues(t.Context(), &sqs.ListQueuesInput{})
	f.fails(err, "InvalidClientTokenId")
	_, err = f.sns.ListTopics(t.Context(), &sns.ListTopicsInput{})
	f.fails(err, "InvalidClientTokenId")
	client := newSQS(f.URL(), http.DefaultTransport, func(o *sqs.Options) { o.Credentials = aws.AnonymousCredentials{} })
	_, err = client.ListQueues(t.Context(), &sqs.ListQueuesInput{})
	f.fails(err, "MissingAuthenticationToken")
}

func TestCredentials_ExpireAndAreRenewed(t *testing.T) {
	f := start(t, server.Config{AccessKey: "AKIATEST"})
	f.queue("q")
	f.SetCredentialsExpired(true)
	_, err := f.sqs.ListQueues(t.Context(), &sqs.ListQueuesInput{})
	f.fails(err, "ExpiredToken")
	_, err = f.sns.ListTopics(t.Context(), &sns.ListTopicsInput{})
	f.fails(err, "ExpiredToken")
	f.SetCredentialsExpired(false)
	if _, err := f.sqs.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil {
		t.Error(err)
	}
}

func TestClocks_ApartAreRefusedUntilTheSDKCorrectsIts(t *testing.T) {
	f := start(t, server.Config{Now: time.Now})
	f.queue("q")
	f.CheckClocks(true)
	if _, err := f.sqs.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil {
		t.Fatal(err)
	}
	f.Advance(16 * time.Minute)
	_, err := f.sqs.ListQueues(t.Context(), &sqs.ListQueuesInput{})
	f.fails(err, "RequestTimeTooSkewed")

	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := newSQS(f.URL(), transport, func(o *sqs.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
	})
	if _, err := client.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil {
		t.Errorf("with retries: %v", err)
	}
	f.CheckClocks(false)
	if _, err := f.sqs.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil {
		t.Error(err)
	}
}
