package sqs

import (
	"encoding/json"
	"fmt"
	"slices"
)

// PolicyFor describes an endpoint for Policy.
type PolicyFor struct {
	// Partition, Region and Account are parts of ARNs. The defaults are "aws", "*" and "*".
	Partition, Region, Account string

	// Receives are the queues that the endpoint receives from: its input queue, or those of
	// all endpoints of a process.
	Receives []string
	// Sends are the queues that it sends to, including its error queue and audit queue.
	// Its own queues need not be named: every endpoint sends to them, for delayed
	// retries.
	Sends []string
	// Publishes and Subscribes are topics.
	Publishes, Subscribes []string
	// Provisions is whether it creates missing queues.
	Provisions bool
}

// Policy returns the least IAM policy that an endpoint with the configuration needs, as
// JSON for aws iam create-policy. Its error names a queue or a topic whose name AWS does
// not allow.
//
// If queues are encrypted with a key of AWS KMS (Config.KMSKey), kms:GenerateDataKey and
// kms:Decrypt are needed as well. They are in the policy if the configuration has the
// key's ARN.
func Policy(cfg Config, endpoint PolicyFor) (string, error) {
	if err := cfg.complete(); err != nil {
		return "", fmt.Errorf("sqs: policy: %w", err)
	}
	p := policyBuilder{cfg: &cfg, endpoint: endpoint}
	p.allow("Receive", p.queues(endpoint.Receives), "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueUrl", "sqs:GetQueueAttributes", "sqs:SendMessage")
	p.allow("Send", p.queues(endpoint.Sends), "sqs:SendMessage", "sqs:GetQueueUrl")
	p.allow("Publish", p.topics(endpoint.Publishes), "sns:Publish")
	p.allow("Subscribe", p.topics(endpoint.Subscribes), "sns:Subscribe", "sns:GetTopicAttributes", "sns:CreateTopic", "sns:ListSubscriptionsByTopic")
	if len(endpoint.Subscribes) > 0 {
		p.allow("Unsubscribe", p.subscriptions(), "sns:Unsubscribe")
		p.allow("LetTopicsSend", p.queues(endpoint.Receives), "sqs:SetQueueAttributes")
	}
	if endpoint.Provisions {
		p.allow("Provision", p.queues(slices.Concat(endpoint.Receives, endpoint.Sends)), "sqs:CreateQueue", "sqs:GetQueueAttributes")
	}
	if isARN(cfg.KMSKey) {
		p.allow("Encrypt", []string{cfg.KMSKey}, "kms:GenerateDataKey", "kms:Decrypt")
	}
	if p.err != nil {
		return "", fmt.Errorf("sqs: policy: %w", p.err)
	}
	text, err := json.MarshalIndent(struct {
		Version   string
		Statement []iamStatement
	}{"2012-10-17", p.statements}, "", "  ")
	return string(text), err
}

type iamStatement struct {
	Sid, Effect      string
	Action, Resource []string
}

type policyBuilder struct {
	cfg        *Config
	endpoint   PolicyFor
	statements []iamStatement
	err        error
}

func (p *policyBuilder) allow(sid string, resources []string, actions ...string) {
	if len(resources) > 0 {
		p.statements = append(p.statements, iamStatement{sid, "Allow", actions, resources})
	}
}

func (p *policyBuilder) arn(service, name string) string {
	part := func(s, fallback string) string {
		if s == "" {
			return fallback
		}
		return s
	}
	return "arn:" + part(p.endpoint.Partition, "aws") + ":" + service + ":" + part(p.endpoint.Region, "*") + ":" + part(p.endpoint.Account, "*") + ":" + name
}

// queues returns the ARNs of queues, and of the queues of their long delays, to which
// their senders also send.
func (p *policyBuilder) queues(names []string) (arns []string) {
	for _, name := range names {
		address, err := p.cfg.queueAddress(name)
		if err != nil {
			p.err = err
			continue
		}
		arns = append(arns, p.arn("sqs", p.cfg.QueuePrefix+address))
		if !p.cfg.NoLongDelays {
			arns = append(arns, p.arn("sqs", p.cfg.QueuePrefix+delayQueue(address)))
		}
	}
	return unique(arns)
}

func (p *policyBuilder) topics(topics []string) (arns []string) {
	for _, topic := range topics {
		name, err := p.cfg.topicName(topic)
		if err != nil {
			p.err = err
			continue
		}
		arns = append(arns, p.arn("sns", name))
	}
	return unique(arns)
}

// subscriptions returns the ARNs that subscriptions to the topics have.
func (p *policyBuilder) subscriptions() (arns []string) {
	for _, arn := range p.topics(p.endpoint.Subscribes) {
		arns = append(arns, arn+":*")
	}
	return arns
}

func unique(arns []string) []string {
	slices.Sort(arns)
	return slices.Compact(arns)
}

func isARN(key string) bool { return len(key) > len("arn:") && key[:len("arn:")] == "arn:" }
