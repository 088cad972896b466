//go:build darwin || linux

package sqs

import (
	"encoding/json"
	"slices"
	"strings"
)

// A subscription sends the messages of a topic to a queue.
type subscription struct {
	arn        string
	endpoint   string // ARN of the queue
	attributes map[string]string
	since      instant // messages are delivered from this time on

	// The attributes, parsed.
	raw        bool
	filter     filter // nil: all messages
	filterBody bool
	deadLetter string // ARN
}

// subscriptionTopic returns the ARN of the topic of a subscription.
func subscriptionTopic(arn string) string {
	if i := strings.LastIndexByte(arn, ':'); i >= 0 {
		return arn[:i]
	}
	return ""
}

type subscribeResult struct {
	SubscriptionArn string
}

// snsProtocols are the protocols that SNS knows. Here only sqs can be subscribed.
var snsProtocols = []string{"http", "https", "email", "email-json", "sms", "sqs", "application", "lambda", "firehose"}

// subscribe implements Subscribe. It does not make a second subscription of the same queue
// with the same attributes.
func (st *store) subscribe(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	protocol, endpoint, attributes := f.Get("Protocol"), f.Get("Endpoint"), f.strings("Attributes")
	if !slices.Contains(snsProtocols, protocol) {
		return nil, invalidSNS("Amazon SNS does not support this protocol string: " + protocol)
	}
	if protocol != "sqs" {
		return nil, invalidSNS("Protocol Reason: the test server knows no endpoints but queues")
	}
	if strings.Count(endpoint, ":") != 5 || !strings.HasPrefix(endpoint, "arn:aws:sqs:") {
		return nil, invalidSNS("SQS endpoint ARN")
	}
	if strings.HasSuffix(endpoint, ".fifo") && !t.fifo {
		return nil, invalidSNS("Endpoint Reason: FIFO SQS Queues can not be subscribed to standard SNS topics")
	}
	s := &subscription{endpoint: endpoint, attributes: map[string]string{}, since: now.add(st.subscriptionDelay)}
	if reason := s.setAll(attributes); reason != "" {
		return nil, invalidSNS("Attributes Reason: " + reason)
	}
	for _, other := range t.subscriptions {
		if other.endpoint != endpoint {
			continue
		}
		for k, v := range attributes {
			if other.attributes[k] != v && !sameJSON(other.attributes[k], v) {
				return nil, invalidSNS("Attributes Reason: Subscription already exists with different attributes")
			}
		}
		return &subscribeResult{other.arn}, nil
	}
	s.arn = t.arn + ":" + newID()
	t.subscriptions = append(t.subscriptions, s)
	st.logSubscriptionLocked(s, now)
	return &subscribeResult{s.arn}, nil
}

// setAll sets attributes of a new subscription, and returns why one is invalid, or
// "".
func (s *subscription) setAll(attributes map[string]string) (reason string) {
	if scope, ok := attributes["FilterPolicyScope"]; ok { // the filter policy depends on it
		if reason := s.set("FilterPolicyScope", scope); reason != "" {
			return reason
		}
	}
	for _, k := range sortedKeys(attributes) {
		if reason := s.set(k, attributes[k]); reason != "" {
			return reason
		}
	}
	return ""
}

// set sets an attribute, and returns why it is invalid, or "".
func (s *subscription) set(name, value string) (reason string) {
	switch name {
	case "RawMessageDelivery":
		if value != "true" && value != "false" {
			return "RawMessageDelivery: Invalid value [" + value + "]. Must be true or false."
		}
		s.raw = value == "true"
	case "FilterPolicy":
		parsed, reason := parseFilter(value, s.filterBody)
		if reason != "" {
			return "FilterPolicy: " + reason
		}
		s.filter = parsed
	case "FilterPolicyScope":
		if value != "MessageAttributes" && value != "MessageBody" {
			return "FilterPolicyScope: Invalid value [" + value + "]. Please use either MessageBody or MessageAttributes"
		}
		s.filterBody = value == "MessageBody"
		if text := s.attributes["FilterPolicy"]; text != "" {
			if s.filter, reason = parseFilter(text, s.filterBody); reason != "" {
				return "FilterPolicy: " + reason
			}
		}
	case "RedrivePolicy":
		s.deadLetter = ""
		if value == "" {
			break
		}
		var policy struct {
			Target string `json:"deadLetterTargetArn"`
		}
		if err := json.Unmarshal([]byte(value), &policy); err != nil {
			return "RedrivePolicy: failed to parse JSON. " + err.Error()
		}
		if strings.Count(policy.Target, ":") != 5 || !strings.HasPrefix(policy.Target, "arn:") {
			return "RedrivePolicy: deadLetterTargetArn is an invalid arn"
		}
		s.deadLetter = policy.Target
	case "DeliveryPolicy", "SubscriptionRoleArn", "ReplayPolicy":
	default:
		return "Unknown attribute " + name
	}
	s.attributes[name] = value
	return ""
}

var subscriptionAttributes = []string{
	"RawMessageDelivery", "FilterPolicy", "FilterPolicyScope", "RedrivePolicy", "DeliveryPolicy", "SubscriptionRoleArn", "ReplayPolicy",
}

// subscriptionOfLocked returns the subscription that a request names, and its topic.
func (st *store) subscriptionOfLocked(f form) (*topic, *subscription, *apiError) {
	arn := f.Get("SubscriptionArn")
	if strings.Count(arn, ":") != 6 {
		return nil, nil, invalidSNS("SubscriptionArn Reason: An ARN must have at least 6 elements, not " + arn)
	}
	if t := st.topics[subscriptionTopic(arn)]; t != nil {
		for _, s := range t.subscriptions {
			if s.arn == arn {
				return t, s, nil
			}
		}
	}
	return nil, nil, snsFailure("NotFound", 404, "Subscription does not exist")
}

// unsubscribe implements Unsubscribe. It succeeds if there is no such subscription.
func (st *store) unsubscribe(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	t, s, err := st.subscriptionOfLocked(f)
	if err != nil {
		if err.query == "NotFound" {
			return nil, nil
		}
		return nil, err
	}
	t.drop(s.arn)
	st.logUnsubscribeLocked(s.arn, now)
	return nil, nil
}

// drop removes a subscription.
func (t *topic) drop(arn string) {
	t.subscriptions = slices.DeleteFunc(t.subscriptions, func(s *subscription) bool { return s.arn == arn })
	t.deleted++
}

// getSubscriptionAttributes implements GetSubscriptionAttributes.
func (st *store) getSubscriptionAttributes(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	t, s, err := st.subscriptionOfLocked(f)
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"SubscriptionArn": s.arn, "TopicArn": t.arn, "Owner": st.account, "Endpoint": s.endpoint, "Protocol": "sqs",
		"ConfirmationWasAuthenticated": "true", "PendingConfirmation": "false", "RawMessageDelivery": "false",
		"SubscriptionPrincipal": "arn:aws:iam::" + st.account + ":user/test",
	}
	for k, v := range s.attributes {
		if v != "" {
			all[k] = v
		}
	}
	if all["FilterPolicy"] != "" && all["FilterPolicyScope"] == "" {
		all["FilterPolicyScope"] = "MessageAttributes"
	}
	return attributesXML(all), nil
}

// setSubscriptionAttributes implements SetSubscriptionAttributes.
func (st *store) setSubscriptionAttributes(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	_, s, err := st.subscriptionOfLocked(f)
	if err != nil {
		return nil, err
	}
	name := f.Get("AttributeName")
	if !slices.Contains(subscriptionAttributes, name) {
		return nil, invalidSNS("AttributeName")
	}
	if reason := s.set(name, f.Get("AttributeValue")); reason != "" {
		return nil, invalidSNS(reason)
	}
	s.since = now.add(st.subscriptionDelay)
	st.logSubscriptionLocked(s, now)
	return nil, nil
}

type subscriptionMember struct {
	SubscriptionArn, Owner, Protocol, Endpoint, TopicArn string
}

type subscriptionsResult struct {
	Subscriptions []subscriptionMember `xml:"Subscriptions>member"`
	NextToken     string               `xml:",omitempty"`
}

// listSubscriptionsByTopic implements ListSubscriptionsByTopic.
func (st *store) listSubscriptionsByTopic(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	return st.subscriptionPageLocked(t.subscriptions, f)
}

// listSubscriptions implements ListSubscriptions.
func (st *store) listSubscriptions(_ *call, f form) (answerXML, *apiError) {
	now := st.begin()
	defer st.end(now)
	var all []*subscription
	for _, t := range st.topics {
		all = append(all, t.subscriptions...)
	}
	return st.subscriptionPageLocked(all, f)
}

func (st *store) subscriptionPageLocked(all []*subscription, f form) (answerXML, *apiError) {
	byARN := map[string]*subscription{}
	for _, s := range all {
		byARN[s.arn] = s
	}
	arns, token, err := snsPageOf(sortedKeys(byARN), f)
	if err != nil {
		return nil, err
	}
	result := &subscriptionsResult{NextToken: token}
	for _, arn := range arns {
		result.Subscriptions = append(result.Subscriptions, subscriptionMember{arn, st.account, "sqs", byARN[arn].endpoint, subscriptionTopic(arn)})
	}
	return result, nil
}
