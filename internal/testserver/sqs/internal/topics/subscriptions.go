package topics

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/filter"
)

// A subscription sends the messages of a topic to a queue.
type subscription struct {
	arn        string
	endpoint   string // ARN of the queue
	attributes map[string]string
	since      clock.Instant // messages are delivered from this time on

	// The attributes, parsed.
	raw        bool
	filter     filter.Filter // nil: all messages
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
func (st *Store) subscribe(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	protocol, endpoint, attributes := f.Get("Protocol"), f.Get("Endpoint"), f.Strings("Attributes")
	if !slices.Contains(snsProtocols, protocol) {
		return nil, api.InvalidSNSParameter("Amazon SNS does not support this protocol string: " + protocol)
	}
	if protocol != "sqs" {
		return nil, api.InvalidSNSParameter("Protocol Reason: the test server knows no endpoints but queues")
	}
	if strings.Count(endpoint, ":") != 5 || !strings.HasPrefix(endpoint, "arn:aws:sqs:") {
		return nil, api.InvalidSNSParameter("SQS endpoint ARN")
	}
	if strings.HasSuffix(endpoint, ".fifo") && !t.fifo {
		return nil, api.InvalidSNSParameter("Endpoint Reason: FIFO SQS Queues can not be subscribed to standard SNS topics")
	}
	s := &subscription{endpoint: endpoint, attributes: map[string]string{}, since: now.Add(time.Duration(st.subscriptionDelay.Load()))}
	if reason := s.setAll(attributes); reason != "" {
		return nil, api.InvalidSNSParameter("Attributes Reason: " + reason)
	}
	for _, other := range t.subscriptions {
		if other.endpoint != endpoint {
			continue
		}
		for k, v := range attributes {
			if other.attributes[k] != v && !api.SameJSON(other.attributes[k], v) {
				return nil, api.InvalidSNSParameter("Attributes Reason: Subscription already exists with different attributes")
			}
		}
		return &subscribeResult{other.arn}, nil
	}
	s.arn = t.arn + ":" + content.NewID()
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
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
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
		parsed, reason := filter.Parse(value, s.filterBody)
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
			if s.filter, reason = filter.Parse(text, s.filterBody); reason != "" {
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
func (st *Store) subscriptionOfLocked(f api.Form) (*topic, *subscription, *api.Error) {
	arn := f.Get("SubscriptionArn")
	if strings.Count(arn, ":") != 6 {
		return nil, nil, api.InvalidSNSParameter("SubscriptionArn Reason: An ARN must have at least 6 elements, not " + arn)
	}
	if t := st.topics[subscriptionTopic(arn)]; t != nil {
		for _, s := range t.subscriptions {
			if s.arn == arn {
				return t, s, nil
			}
		}
	}
	return nil, nil, api.SNSFailure("NotFound", 404, "Subscription does not exist")
}

// unsubscribe implements Unsubscribe. It succeeds if there is no such subscription.
func (st *Store) unsubscribe(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, s, err := st.subscriptionOfLocked(f)
	if err != nil {
		if err.Query == "NotFound" {
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
func (st *Store) getSubscriptionAttributes(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, s, err := st.subscriptionOfLocked(f)
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"SubscriptionArn": s.arn, "TopicArn": t.arn, "Owner": st.queues.Account, "Endpoint": s.endpoint, "Protocol": "sqs",
		"ConfirmationWasAuthenticated": "true", "PendingConfirmation": "false", "RawMessageDelivery": "false",
		"SubscriptionPrincipal": "arn:aws:iam::" + st.queues.Account + ":user/test",
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
func (st *Store) setSubscriptionAttributes(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	_, s, err := st.subscriptionOfLocked(f)
	if err != nil {
		return nil, err
	}
	name := f.Get("AttributeName")
	if !slices.Contains(subscriptionAttributes, name) {
		return nil, api.InvalidSNSParameter("AttributeName")
	}
	if reason := s.set(name, f.Get("AttributeValue")); reason != "" {
		return nil, api.InvalidSNSParameter(reason)
	}
	s.since = now.Add(time.Duration(st.subscriptionDelay.Load()))
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
func (st *Store) listSubscriptionsByTopic(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	return st.subscriptionPageLocked(t.subscriptions, f)
}

// listSubscriptions implements ListSubscriptions.
func (st *Store) listSubscriptions(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	var all []*subscription
	for _, t := range st.topics {
		all = append(all, t.subscriptions...)
	}
	return st.subscriptionPageLocked(all, f)
}

func (st *Store) subscriptionPageLocked(all []*subscription, f api.Form) (api.AnswerXML, *api.Error) {
	byARN := map[string]*subscription{}
	for _, s := range all {
		byARN[s.arn] = s
	}
	arns, token, err := snsPageOf(slices.Sorted(maps.Keys(byARN)), f)
	if err != nil {
		return nil, err
	}
	result := &subscriptionsResult{NextToken: token}
	for _, arn := range arns {
		result.Subscriptions = append(result.Subscriptions, subscriptionMember{arn, st.queues.Account, "sqs", byARN[arn].endpoint, subscriptionTopic(arn)})
	}
	return result, nil
}

// SubscribeQueue subscribes a queue to a topic, raw, and has the queue's policy allow the topic. It reports whether both
// exist.
func (st *Store) SubscribeQueue(topicName, queueName string) bool {
	now, ok := st.queues.TryBegin()
	if !ok {
		return false
	}
	defer st.queues.End(now)
	t := st.topics[st.TopicARN(topicName)]
	if t == nil || !st.queues.AllowTopicLocked(queueName, t.arn, now) {
		return false
	}
	sub := &subscription{arn: t.arn + ":" + content.NewID(), endpoint: st.queues.QueueARN(queueName), attributes: map[string]string{}, since: now.Add(time.Duration(st.subscriptionDelay.Load()))}
	sub.set("RawMessageDelivery", "true")
	t.subscriptions = append(t.subscriptions, sub)
	st.logSubscriptionLocked(sub, now)
	return true
}
