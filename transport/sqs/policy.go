package sqs

import (
	"encoding/json"
	"fmt"
	"slices"
)

// PolicyFor says what an endpoint does, for Policy.
type PolicyFor struct {
	// Partition, Region and Account are parts of ARNs. The defaults are "aws", "*" and "*".
	Partition, Region, Account string

	// Receives are the queues that the endpoint receives from: its input queue, and that of its instance.
	Receives []string
	// Sends are the queues that it sends to, its error queue and audit queue among them. That
	// it sends to its own queues, for delayed retries, needs not be said.
	Sends []string
	// Publishes and Subscribes are topics.
	Publishes, Subscribes []string
	// Provisions says that it creates what is missing.
	Provisions bool
}

// Policy returns the least IAM policy that lets an endpoint with the configuration do its work, as JSON to give to
// aws iam create-policy. Its error names what cannot be the name of a queue or a topic.
//
// A key of AWS KMS that queues are encrypted with (Config.KMSKey) also needs kms:GenerateDataKey and kms:Decrypt, which are in
// the policy where the configuration has the key's ARN.
func Policy(cfg Config, of PolicyFor) (string, error) {
	if err := cfg.complete(); err != nil {
		return "", fmt.Errorf("sqs: policy: %w", err)
	}
	t := &Transport{cfg: &cfg}
	p := policyBuilder{t: t, of: of}
	p.allow("Receive", p.queues(of.Receives), "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueUrl", "sqs:GetQueueAttributes", "sqs:SendMessage")
	p.allow("Send", p.queues(of.Sends), "sqs:SendMessage", "sqs:GetQueueUrl")
	p.allow("Publish", p.topics(of.Publishes), "sns:Publish")
	p.allow("Subscribe", p.topics(of.Subscribes), "sns:Subscribe", "sns:GetTopicAttributes", "sns:CreateTopic", "sns:ListSubscriptionsByTopic")
	if len(of.Subscribes) > 0 {
		p.allow("Unsubscribe", p.subscriptions(), "sns:Unsubscribe")
		p.allow("LetTopicsSend", p.queues(of.Receives), "sqs:SetQueueAttributes")
	}
	if of.Provisions {
		p.allow("Provision", p.queues(slices.Concat(of.Receives, of.Sends)), "sqs:CreateQueue", "sqs:GetQueueAttributes")
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
	t          *Transport
	of         PolicyFor
	statements []iamStatement
	err        error
}

func (p *policyBuilder) allow(sid string, resources []string, actions ...string) {
	if len(resources) > 0 {
		p.statements = append(p.statements, iamStatement{sid, "Allow", actions, resources})
	}
}

func (p *policyBuilder) arn(service, name string) string {
	part := func(s, otherwise string) string {
		if s == "" {
			return otherwise
		}
		return s
	}
	return "arn:" + part(p.of.Partition, "aws") + ":" + service + ":" + part(p.of.Region, "*") + ":" + part(p.of.Account, "*") + ":" + name
}

// queues returns the ARNs of queues, and of those of their long delays: who sends to a queue sends to these too.
func (p *policyBuilder) queues(names []string) (arns []string) {
	for _, name := range names {
		address, err := p.t.queueAddress(name)
		if err != nil {
			p.err = err
			continue
		}
		arns = append(arns, p.arn("sqs", p.t.cfg.QueuePrefix+address))
		if !p.t.cfg.NoLongDelays {
			arns = append(arns, p.arn("sqs", p.t.cfg.QueuePrefix+delayQueue(address)))
		}
	}
	return unique(arns)
}

func (p *policyBuilder) topics(topics []string) (arns []string) {
	for _, topic := range topics {
		name, err := p.t.topicName(topic)
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
	for _, arn := range p.topics(p.of.Subscribes) {
		arns = append(arns, arn+":*")
	}
	return arns
}

func unique(arns []string) []string {
	slices.Sort(arns)
	return slices.Compact(arns)
}

func isARN(key string) bool { return len(key) > len("arn:") && key[:len("arn:")] == "arn:" }
