//go:build darwin || linux

package sqs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/reprise-go/reprise/internal/testserver/given"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
)

// everything returns the queues, topics and subscriptions of a server.
func (s *site) everything(t *testing.T) []string {
	t.Helper()
	all := s.Queues()
	topics, err := s.sns.ListTopics(t.Context(), &awssns.ListTopicsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics.Topics {
		all = append(all, *topic.TopicArn)
	}
	subscriptions, err := s.sns.ListSubscriptions(t.Context(), &awssns.ListSubscriptionsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, subscription := range subscriptions.Subscriptions {
		all = append(all, *subscription.SubscriptionArn)
	}
	slices.Sort(all)
	return all
}

// environment names a server as the one that is given.
func (s *site) environment(secret string) []string {
	return []string{
		givenVariable + "=us-east-1", endpointVariable + "=" + s.URL(),
		"AWS_ACCESS_KEY_ID=" + accessKey, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_EC2_METADATA_DISABLED=true",
	}
}

// madeByCheck is how many queues, topics and subscriptions there are before the first case.
const madeByCheck = 7

func TestGivenServer_IsLeftAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of the suite on a server: not in short runs")
	}
	t.Parallel()
	s := startSite(t, testserver.Config{AccessKey: accessKey})
	if _, err := s.sqs.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("reprise_test")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.sns.CreateTopic(t.Context(), &awssns.CreateTopicInput{Name: aws.String("orders")}); err != nil {
		t.Fatal(err)
	}
	before := s.everything(t)
	for _, c := range []struct {
		name, cases string
		kill        bool
	}{
		{"at the end of the tests", "^(C19 subscribing|C24 in None)", false},
		{"when the tests are killed", "^C19", true}, // long before the last of them
	} {
		t.Run(c.name, func(t *testing.T) {
			run := given.Start(t, "^TestConformance$/"+c.cases, s.environment(secretKey)...)
			if c.kill {
				run.Await("a case has made something", func() bool { return len(s.everything(t)) >= len(before)+madeByCheck+5 })
				run.Kill()
			} else if err := run.End(); err != nil || !strings.Contains(run.Output(), "all that the run has made") || !strings.Contains(run.Output(), "conformance: ") {
				t.Errorf("the tests ended with %v:\n%s", err, run.Output())
			}
			if after := s.everything(t); !slices.Equal(after, before) {
				t.Errorf("the server was changed:\nbefore: %q\nafter:  %q\n%s", before, after, run.Output())
			}
			if strings.Contains(run.Output(), secretKey) {
				t.Errorf("the secret key is in the output:\n%s", run.Output())
			}
		})
	}
}

// A refusal says how to fix it, and does not have the key.
func TestGivenServer_RefusalIsExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the tests once more: not in short runs")
	}
	t.Parallel()
	s := startSite(t, testserver.Config{AccessKey: accessKey})
	for _, c := range []struct {
		name        string
		environment []string
		before      func()
		want        string
	}{
		{"an unknown access key", []string{"AWS_ACCESS_KEY_ID=AKIANOBODY"}, func() {}, "to fix: check the credentials"},
		{"no credentials", []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_SHARED_CREDENTIALS_FILE=none", "AWS_CONFIG_FILE=none"}, func() {}, "to fix: set AWS_ACCESS_KEY_ID"},
		{"no right to create queues", nil, func() {
			s.Reject(testserver.Match{Operation: "CreateQueue", Times: -1}, testserver.AccessDenied)
		}, "to fix: allow sqs:* and sns:*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.before()
			defer s.ClearFaults()
			run := given.Start(t, "^TestConformance$/^C24", slices.Concat(s.environment(secretKey), c.environment)...)
			if err := run.End(); err == nil || !strings.Contains(run.Output(), c.want) {
				t.Errorf("the tests ended with %v, and have not said %q:\n%s", err, c.want, run.Output())
			}
			if strings.Contains(run.Output(), secretKey) {
				t.Errorf("the secret key is in the output:\n%s", run.Output())
			}
			if left := s.everything(t); len(left) > 0 {
				t.Errorf("the tests have left %v", fmt.Sprint(left))
			}
		})
	}
}

// An emulator without SNS and STS runs all cases but those of events.
func TestGivenServer_WithoutEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the tests once more: not in short runs")
	}
	t.Parallel()
	s := startSite(t, testserver.Config{AccessKey: accessKey})
	s.Reject(testserver.Match{Operation: "ListTopics", Times: -1}, testserver.UnsupportedOperation)
	run := given.Start(t, "^TestConformance$/^(C18|C19|C23)", s.environment(secretKey)...)
	if err := run.End(); err != nil || !strings.Contains(run.Output(), "the cases of events are left out") || !strings.Contains(run.Output(), " 0 failed") {
		t.Errorf("the tests ended with %v:\n%s", err, run.Output())
	}
	for operation := range s.Requests("") {
		switch operation {
		case "GetCallerIdentity", "CreateTopic", "Subscribe", "Publish", "PublishBatch", "ListSubscriptions", "GetTopicAttributes", "DeleteTopic":
			t.Errorf("there was a request %s", operation)
		}
	}
	if left := s.Queues(); len(left) > 0 {
		t.Errorf("the tests have left %q", left)
	}
}
