//go:build darwin || linux

package sqs_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// statement is one of a policy.
type statement struct {
	Sid, Effect      string
	Action, Resource []string
}

// statements returns those of a policy, without Sid and Effect.
func statements(t *testing.T, policy string) map[string]statement {
	t.Helper()
	var p struct {
		Version   string
		Statement []statement
	}
	d := json.NewDecoder(strings.NewReader(policy))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("the policy is no JSON: %v\n%s", err, policy)
	}
	if p.Version != "2012-10-17" {
		t.Errorf("the version is %q", p.Version)
	}
	byID := map[string]statement{}
	for _, s := range p.Statement {
		if s.Effect != "Allow" || byID[s.Sid].Sid != "" {
			t.Errorf("the policy has the statement %+v", s)
		}
		byID[s.Sid] = s
	}
	return byID
}

func TestPolicy_LeastActionsOfEachRole(t *testing.T) {
	t.Parallel()
	receive := []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueUrl", "sqs:GetQueueAttributes", "sqs:SendMessage"}
	for name, c := range map[string]struct {
		cfg    sqs.Config
		config sqs.PolicyFor
		want   map[string]statement
	}{
		"nothing": {},
		"receiver": {
			config: sqs.PolicyFor{Receives: []string{"My.Billing"}},
			want:   map[string]statement{"Receive": {Action: receive, Resource: []string{"arn:aws:sqs:*:*:My-Billing", "arn:aws:sqs:*:*:My-Billing-delay.fifo"}}},
		},
		"receiver without long delays, in one account": {
			cfg:    sqs.Config{NoLongDelays: true, QueuePrefix: "test-"},
			config: sqs.PolicyFor{Partition: "aws-cn", Region: "cn-north-1", Account: "123456789012", Receives: []string{"billing.fifo"}},
			want:   map[string]statement{"Receive": {Action: receive, Resource: []string{"arn:aws-cn:sqs:cn-north-1:123456789012:test-billing.fifo"}}},
		},
		"sender": {
			config: sqs.PolicyFor{Sends: []string{"billing", "audit", "billing"}},
			want: map[string]statement{"Send": {Action: []string{"sqs:SendMessage", "sqs:GetQueueUrl"}, Resource: []string{
				"arn:aws:sqs:*:*:audit", "arn:aws:sqs:*:*:audit-delay.fifo", "arn:aws:sqs:*:*:billing", "arn:aws:sqs:*:*:billing-delay.fifo",
			}}},
		},
		"publisher": {
			cfg:    sqs.Config{TopicPrefix: "test-"},
			config: sqs.PolicyFor{Publishes: []string{"My.Outer+Order"}},
			want:   map[string]statement{"Publish": {Action: []string{"sns:Publish"}, Resource: []string{"arn:aws:sns:*:*:test-My-Outer-Order"}}},
		},
		"subscriber": {
			cfg:    sqs.Config{NoLongDelays: true},
			config: sqs.PolicyFor{Receives: []string{"billing"}, Subscribes: []string{"Order"}},
			want: map[string]statement{
				"Receive":       {Action: receive, Resource: []string{"arn:aws:sqs:*:*:billing"}},
				"Subscribe":     {Action: []string{"sns:Subscribe", "sns:GetTopicAttributes", "sns:CreateTopic", "sns:ListSubscriptionsByTopic"}, Resource: []string{"arn:aws:sns:*:*:Order"}},
				"Unsubscribe":   {Action: []string{"sns:Unsubscribe"}, Resource: []string{"arn:aws:sns:*:*:Order:*"}},
				"LetTopicsSend": {Action: []string{"sqs:SetQueueAttributes"}, Resource: []string{"arn:aws:sqs:*:*:billing"}},
			},
		},
		"provisioner with a key": {
			cfg:    sqs.Config{NoLongDelays: true, KMSKey: "arn:aws:kms:us-east-1:123456789012:key/7"},
			config: sqs.PolicyFor{Receives: []string{"billing"}, Sends: []string{"error"}, Provisions: true},
			want: map[string]statement{
				"Receive":   {Action: receive, Resource: []string{"arn:aws:sqs:*:*:billing"}},
				"Send":      {Action: []string{"sqs:SendMessage", "sqs:GetQueueUrl"}, Resource: []string{"arn:aws:sqs:*:*:error"}},
				"Provision": {Action: []string{"sqs:CreateQueue", "sqs:GetQueueAttributes"}, Resource: []string{"arn:aws:sqs:*:*:billing", "arn:aws:sqs:*:*:error"}},
				"Encrypt":   {Action: []string{"kms:GenerateDataKey", "kms:Decrypt"}, Resource: []string{"arn:aws:kms:us-east-1:123456789012:key/7"}},
			},
		},
		"alias of a key, which no policy names": {
			cfg:    sqs.Config{NoLongDelays: true, KMSKey: "alias/billing"},
			config: sqs.PolicyFor{Sends: []string{"error"}},
			want:   map[string]statement{"Send": {Action: []string{"sqs:SendMessage", "sqs:GetQueueUrl"}, Resource: []string{"arn:aws:sqs:*:*:error"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, err := sqs.Policy(c.cfg, c.config)
			if err != nil {
				t.Fatal(err)
			}
			got := statements(t, policy)
			if !maps.EqualFunc(got, c.want, func(a, b statement) bool {
				return slices.Equal(a.Action, b.Action) && slices.Equal(a.Resource, b.Resource)
			}) {
				t.Errorf("the policy is\n%s\nwant %+v", policy, c.want)
			}
		})
	}
}

func TestPolicy_RefusesWrongNames(t *testing.T) {
	t.Parallel()
	for said, c := range map[string]struct {
		cfg    sqs.Config
		config sqs.PolicyFor
	}{
		`"bill ing"`:         {config: sqs.PolicyFor{Receives: []string{"bill ing"}}},
		`"to/error"`:         {config: sqs.PolicyFor{Sends: []string{"to/error", "error"}}},
		`"Order 7"`:          {config: sqs.PolicyFor{Publishes: []string{"Order 7"}}},
		`"Order 8"`:          {config: sqs.PolicyFor{Subscribes: []string{"Order 8"}}},
		"Config.WaitTime":    {cfg: sqs.Config{WaitTime: -1}},
		"Config.QueuePrefix": {cfg: sqs.Config{QueuePrefix: "a b"}},
	} {
		if policy, err := sqs.Policy(c.cfg, c.config); err == nil || policy != "" || !strings.Contains(err.Error(), said) {
			t.Errorf("with %s the policy is %q, and the error: %v", said, policy, err)
		}
	}
}

// actions maps operations to the actions that they need, where these have another name.
var actions = map[string]string{
	"SendMessageBatch": "SendMessage", "DeleteMessageBatch": "DeleteMessage", "ChangeMessageVisibilityBatch": "ChangeMessageVisibility", "PublishBatch": "Publish",
}

// The policy of an endpoint allows every request that one makes, and no action that none needs.
func TestPolicy_EqualsTheRequestsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	queues, topics := []string{"billing", "billing-delay.fifo", "error"}, []string{"Order"}
	policy, err := sqs.Policy(sqs.Config{}, sqs.PolicyFor{
		Region: s.Region(), Account: s.Account(), Receives: []string{"billing"}, Sends: []string{"error"}, Publishes: topics, Subscribes: topics, Provisions: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, sqs.Config{})
	topology := core.Topology{InputQueue: "billing", Queues: []string{"billing", "error"}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(transport.Provision(t.Context(), topology))
	must(transport.Check(t.Context(), topology))
	must(transport.Subscribe(t.Context(), "billing", "Order"))
	receiver := openReceiver(t, transport, "billing", 1)
	must(transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "Order"}))
	must(take(t, receiver, 1)[0].Abandon(t.Context(), errors.New("it failed")))
	must(take(t, receiver, 1)[0].Complete(t.Context()))
	must(transport.Send(t.Context(), core.Outgoing{ID: "m-2", Queue: "error"}))
	must(transport.Unsubscribe(t.Context(), "billing", "Order"))
	// Where topics may not send to a queue, Subscribe lets them.
	s.setAttribute(t, "billing", "Policy", "")
	must(transport.Subscribe(t.Context(), "billing", "Order"))
	must(receiver.Close(t.Context()))

	used := map[string]bool{}
	byID := statements(t, policy)
	for service, names := range map[string][]string{"sqs": queues, "sns": topics} {
		for _, name := range names {
			for operation := range s.Requests(name) {
				action := service + ":" + operation
				if other := actions[operation]; other != "" {
					action = service + ":" + other
				}
				used[action] = true
				arn := "arn:aws:" + service + ":" + s.Region() + ":" + s.Account() + ":" + name
				if !slices.ContainsFunc(slices.Collect(maps.Values(byID)), func(s statement) bool {
					return slices.Contains(s.Action, action) && slices.ContainsFunc(s.Resource, func(r string) bool {
						return r == arn || strings.HasPrefix(r, arn+":")
					})
				}) {
					t.Errorf("the endpoint needs %s on %s, which this policy does not allow:\n%s", action, arn, policy)
				}
			}
		}
	}
	for _, s := range byID {
		for _, action := range s.Action {
			if !used[action] {
				t.Errorf("the policy allows %s, which the endpoint did not need: %v", action, slices.Sorted(maps.Keys(used)))
			}
		}
	}
}
