//go:build darwin || linux

package sqs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/leaks"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// An event whose topic does not exist is refused with the topic's name, or accepted if configured.
func TestPublish_TopicIsMissing(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.queue(t, "billing")
	for _, ignore := range []bool{false, true} {
		cfg := configured(sqs.Config{}, s.URL())
		cfg.IgnoreMissingTopics = ignore
		transport := openConfigured(t, cfg)
		err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "Order.Placed"}, core.Outgoing{ID: "m-2", Queue: "billing"})
		if ignore {
			if err != nil {
				t.Errorf("with IgnoreMissingTopics: %v", err)
			}
			err := transport.Send(t.Context(), core.Outgoing{ID: "m-3", Topic: "Order.Placed", RequireSubscriber: true})
			if r := resultsOf(t, err, 1)[0]; r.State != core.SendRefused || !errors.Is(r.Err, core.ErrNoSubscriber) {
				t.Errorf("the event that requires a subscriber is %v: %v", r.State, r.Err)
			}
			continue
		}
		results := resultsOf(t, err, 2)
		if r := results[0]; r.State != core.SendRefused || errors.Is(r.Err, core.ErrQueueNotFound) || !errors.Is(r.Err, core.ErrNoSubscriber) {
			t.Errorf("the event is %v: %v", r.State, r.Err)
		}
		for _, said := range []string{`"Order.Placed"`, ":Order-Placed", "IgnoreMissingTopics", "Config.Provision"} {
			if !strings.Contains(results[0].Err.Error(), said) {
				t.Errorf("the error does not say %s: %v", said, results[0].Err)
			}
		}
		if r := results[1]; r.State != core.SendAccepted {
			t.Errorf("the message to a queue is %v: %v", r.State, r.Err)
		}
	}
}

// A transport remembers topics for as long as it lives, and none of their events.
func TestPublish_KeepsNoEvent(t *testing.T) {
	s := startSite(t, testserver.Config{})
	cfg := configured(sqs.Config{}, s.URL())
	cfg.IgnoreMissingTopics = true
	transport := openConfigured(t, cfg)
	publish := func(i, size int) {
		large := fmt.Sprintf("Order.Placed%d", i) + strings.Repeat("x", size)
		event := core.Outgoing{ID: "m-1", Topic: large[:len(large)-size], Body: []byte("small")} // the server keeps bodies
		if err := transport.Send(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	publish(0, 10) // opens connections
	const topics = 100
	growth := leaks.HeapGrowth(func() {
		for i := range topics {
			publish(i, 512<<10)
		}
	})
	if growth > 8<<20 {
		t.Errorf("%d topics keep %d MiB", topics, growth>>20)
	}
}

// The service may not know a topic that was just created.
func TestSubscribe_TopicIsKnownLater(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
	s.DelayTopics(time.Second)
	if err := transport.Subscribe(t.Context(), "billing", "Order.Placed"); err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "Order.Placed"}); err != nil {
		t.Fatal(err)
	}
	s.get(t, "billing")
}

// A topic that stays unknown is not reported as a missing queue.
func TestSubscribe_TopicStaysUnknown(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
	s.DelayTopics(time.Hour)
	err := transport.Subscribe(t.Context(), "billing", "Order.Placed")
	if err == nil || errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), "the topic does not exist") || !strings.Contains(err.Error(), ":Order-Placed") {
		t.Errorf("the error is: %v", err)
	}
}

// The service may not know a queue that was just created.
func TestProvision_QueueIsKnownLater(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	cfg := s.unrepeated(sqs.Config{})
	transport := openConfigured(t, cfg)
	s.Reject(testserver.Match{Operation: "GetQueueAttributes", Name: "billing", Times: 3}, testserver.QueueDoesNotExist)
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
		t.Fatal(err)
	}
	if got := s.Requests("billing")["GetQueueAttributes"]; got != 4 {
		t.Errorf("there were %d requests for the queue's attributes, want 4", got)
	}
}

// A queue that exists costs two requests, and none to STS, at each start.
func TestProvision_RequestsWhereQueuesExist(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.provisioned(t, sqs.Config{}, "billing", "error")
	s.ResetRequests()
	s.provisioned(t, sqs.Config{}, "billing", "error")
	want := map[string]int{"GetQueueUrl": 3, "GetQueueAttributes": 3} // of billing-delay.fifo too
	for operation, n := range s.Requests("") {
		if n != want[operation] {
			t.Errorf("%d requests %s, want %d", n, operation, want[operation])
		}
	}
}

// Subscribe adds a statement unless one that is there lets the topic send.
func TestSubscribe_AddsMissingStatement(t *testing.T) {
	t.Parallel()
	const topic = "arn:aws:sns:us-east-1:123456789012:Order"
	for name, c := range map[string]struct {
		policy string // of the queue; "": it has none
		added  bool
	}{
		"no policy":        {"", true},
		"of NServiceBus":   {`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sqs:SendMessage","Resource":"QUEUE","Condition":{"ArnLike":{"aws:SourceArn":"` + topic + `"}}}]}`, false},
		"one statement":    {`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":"*","Action":["sqs:SendMessage"],"Resource":"QUEUE","Condition":{"ArnLike":{"aws:SourceArn":["arn:aws:sns:us-east-1:123456789012:*"]}}}}`, false},
		"every action":     {`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:*","Resource":"QUEUE","Condition":{"StringEquals":{"aws:SourceArn":"` + topic + `"}}}]}`, false},
		"another action":   {`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:ReceiveMessage","Resource":"QUEUE","Condition":{"ArnLike":{"aws:SourceArn":"` + topic + `"}}}]}`, true},
		"another topic":    {`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"QUEUE","Condition":{"ArnLike":{"aws:SourceArn":"` + topic + `s"}}}]}`, true},
		"denied":           {`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"sqs:SendMessage","Resource":"QUEUE","Condition":{"ArnLike":{"aws:SourceArn":"` + topic + `"}}}]}`, true},
		"second condition": {`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"QUEUE","Condition":{"ArnLike":{"aws:SourceArn":"` + topic + `"},"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}}]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
			before := strings.ReplaceAll(c.policy, "QUEUE", s.QueueARN("billing"))
			s.setAttribute(t, "billing", "Policy", before)
			if err := transport.Subscribe(t.Context(), "billing", "Order"); err != nil {
				t.Fatal(err)
			}
			after := s.attribute(t, "billing", "Policy")
			if (after != before) != c.added {
				t.Errorf("the policy %s became %s", before, after)
			}
			if !c.added {
				return
			}
			var policy struct{ Statement []map[string]any }
			if err := json.Unmarshal([]byte(after), &policy); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(policy.Statement, func(m map[string]any) bool {
				condition, _ := m["Condition"].(map[string]any)
				arns, _ := condition["ArnLike"].(map[string]any)
				return m["Effect"] == "Allow" && m["Action"] == "sqs:SendMessage" && arns["aws:SourceArn"] == "arn:aws:sns:us-east-1:123456789012:*" && len(condition) == 1
			}) {
				t.Errorf("the policy %s does not let topics send", after)
			}
			if want := strings.Count(before, "Effect") + 1; len(policy.Statement) != want {
				t.Errorf("the policy has %d statements, want %d: %s", len(policy.Statement), want, after)
			}
		})
	}
}

// An endpoint without events needs SQS alone, also where its queues are made and removed. With events it knows
// its account from the ARN of a queue.
func TestTransport_NeedsNoOtherService(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.open(t, sqs.Config{})
	topology := core.Topology{InputQueue: "billing", Queues: []string{"billing", "error"}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(transport.Check(t.Context(), core.Topology{})) // of an endpoint that only sends
	must(transport.Provision(t.Context(), topology))
	must(transport.Check(t.Context(), topology))
	receiver := openReceiver(t, transport, "billing", 1)
	must(transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing"}))
	must(take(t, receiver, 1)[0].Complete(t.Context()))
	must(receiver.Close(t.Context()))
	must(transport.Remove(t.Context(), []string{"billing"}, nil))
	requests := []string{"GetQueueUrl", "GetQueueAttributes", "CreateQueue", "DeleteQueue", "SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"}
	for operation := range s.Requests("") {
		if !slices.Contains(requests, operation) {
			t.Errorf("there was a request %s", operation)
		}
	}
	must(transport.Provision(t.Context(), core.Topology{InputQueue: "shipping", Queues: []string{"shipping"}}))
	must(transport.Subscribe(t.Context(), "shipping", "Order"))
	must(transport.Send(t.Context(), core.Outgoing{ID: "m-2", Topic: "Order"}))
	must(transport.Remove(t.Context(), []string{"shipping"}, []string{"Order"}))
	if n := s.Requests("")["GetCallerIdentity"]; n > 0 {
		t.Errorf("STS got %d requests", n)
	}
	if left := s.everything(t); len(left) != 1 { // the error queue
		t.Errorf("these are left: %q", left)
	}
}

// A program that only publishes knows no queue: STS tells the account.
func TestPublish_AccountOfSTS(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	if _, err := s.sns.CreateTopic(t.Context(), &awssns.CreateTopicInput{Name: aws.String("Order")}); err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, sqs.Config{})
	s.Reject(testserver.Match{Operation: "GetCallerIdentity"}, testserver.AccessDenied)
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "Order"}); err == nil || !strings.Contains(err.Error(), "ask STS for the account") {
		t.Errorf("the error is: %v", err)
	}
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "Order"}); err != nil {
		t.Error(err)
	}
}
