package topics

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/deduplication"
)

// A topic is a topic of SNS.
type topic struct {
	name, arn     string
	fifo          bool
	attributes    map[string]string // that can be set
	tags          map[string]string
	subscriptions []*subscription // in the order in which they were made
	deleted       int             // subscriptions
	known         clock.Instant   // other operations know it from this time on

	sent      deduplication.Memory // deduplication ids of a FIFO topic
	published uint64               // messages with a sequence number
}

const defaultTopicSize = 256 << 10

func topicNotFound() *api.Error { return api.SNSFailure("NotFound", 404, "Topic does not exist") }

// topicOfLocked returns the topic that a parameter names.
func (st *Store) topicOfLocked(f api.Form, parameter string, now clock.Instant) (*topic, *api.Error) {
	arn := f.Get(parameter)
	if n := strings.Count(arn, ":") + 1; n < 6 {
		return nil, api.InvalidSNSParameter(parameter + " Reason: An ARN must have at least 6 elements, not " + strconv.Itoa(n))
	}
	t := st.topicLocked(arn, now)
	if t == nil {
		return nil, topicNotFound()
	}
	return t, nil
}

type topicArnResult struct {
	TopicArn string
}

// createTopic implements CreateTopic. For an existing topic with the same attributes and tags
// it returns that topic's ARN.
func (st *Store) createTopic(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	name, attributes, tags := f.Get("Name"), f.Strings("Attributes"), map[string]string{}
	var wrong *api.Error
	f.Each("Tags.member", func(p string) {
		key := f.Get(p + ".Key")
		if _, repeated := tags[key]; repeated {
			wrong = api.InvalidSNSParameter("Duplicated keys are not allowed.")
		}
		tags[key] = f.Get(p + ".Value")
	})
	fifo := attributes["FifoTopic"] == "true"
	if wrong == nil {
		wrong = checkTopic(name, fifo, attributes)
	}
	if wrong != nil {
		return nil, wrong
	}
	now := st.queues.Begin()
	defer st.queues.End(now)
	if t := st.topics[st.TopicARN(name)]; t != nil {
		if err := t.differs(attributes, tags); err != nil {
			return nil, err
		}
		return &topicArnResult{t.arn}, nil
	}
	t := newTopic(name, st.TopicARN(name), fifo)
	t.known = now.Add(time.Duration(st.topicDelay.Load()))
	t.tags = tags
	maps.Copy(t.attributes, attributes)
	st.topics[t.arn] = t
	st.logTopicLocked(t, now)
	return &topicArnResult{t.arn}, nil
}

func newTopic(name, arn string, fifo bool) *topic {
	t := &topic{name: name, arn: arn, fifo: fifo, attributes: map[string]string{}, tags: map[string]string{}, sent: deduplication.New()}
	t.attributes["DisplayName"] = ""
	if fifo {
		t.attributes["FifoTopic"], t.attributes["ContentBasedDeduplication"], t.attributes["FifoThroughputScope"] = "true", "false", "Topic"
	}
	return t
}

func checkTopic(name string, fifo bool, attributes map[string]string) *api.Error {
	base, suffixed := strings.CutSuffix(name, ".fifo")
	switch {
	case fifo && (!suffixed || len(name) > 256 || !isTopicName(base)):
		return api.InvalidSNSParameter("Fifo Topic names must end with .fifo and must be made up of only uppercase and lowercase ASCII letters, numbers, underscores, and hyphens, and must be between 1 and 256 characters long.")
	case !fifo && !isTopicName(name):
		return api.InvalidSNSParameter("Topic Name")
	}
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		if err := checkTopicAttribute(k, attributes[k], fifo, true); err != nil {
			return err
		}
	}
	return nil
}

func isTopicName(s string) bool {
	for i := range len(s) {
		if !api.IsAlphanumeric(s[i]) && s[i] != '-' && s[i] != '_' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 256
}

func (t *topic) differs(attributes, tags map[string]string) *api.Error {
	for k, v := range tags {
		if have, ok := t.tags[k]; !ok || have != v {
			return api.InvalidSNSParameter("Tags Reason: Topic already exists with different tags")
		}
	}
	for k, v := range attributes {
		if have := t.attribute(k); have != v && !api.SameJSON(have, v) {
			return api.InvalidSNSParameter("Attributes Reason: Topic already exists with different attributes")
		}
	}
	return nil
}

func (t *topic) attribute(name string) string {
	v := t.attributes[name]
	switch {
	case v == "" && name == "FifoTopic":
		return "false"
	case v == "" && name == "MaximumMessageSize":
		return strconv.Itoa(defaultTopicSize)
	}
	return v
}

// plainTopicAttributes are the attributes whose values are kept without effect.
var plainTopicAttributes = []string{
	"DeliveryPolicy", "DisplayName", "KmsMasterKeyId", "TracingConfig", "SignatureVersion", "ArchivePolicy", "DataProtectionPolicy",
	"SQSSuccessFeedbackRoleArn", "SQSSuccessFeedbackSampleRate", "SQSFailureFeedbackRoleArn",
}

func checkTopicAttribute(name, value string, fifo, creating bool) *api.Error {
	switch {
	case slices.Contains(plainTopicAttributes, name):
		return nil
	case name == "Policy":
		if value != "" && !json.Valid([]byte(value)) {
			return api.InvalidSNSParameter("Policy Error: null")
		}
		return nil
	case name == "MaximumMessageSize":
		if n, err := strconv.Atoi(value); err != nil || n < 1024 || n > api.MaxMessageSize {
			return api.InvalidSNSParameter("Attributes Reason: MaximumMessageSize must be between 1024 and 1048576")
		}
		return nil
	case name == "FifoTopic" && creating && (value == "true" || value == "false"):
		return nil
	case name == "ContentBasedDeduplication" && (value == "true" || value == "false") && fifo:
		return nil
	case name == "FifoThroughputScope" && (value == "Topic" || value == "MessageGroup") && fifo:
		return nil
	case creating:
		return api.InvalidSNSParameter("Attributes Reason: Unknown attribute " + name)
	default:
		return api.InvalidSNSParameter("AttributeName")
	}
}

// deleteTopic implements DeleteTopic. It succeeds if there is no such topic.
func (st *Store) deleteTopic(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	arn := f.Get("TopicArn")
	if n := strings.Count(arn, ":") + 1; n < 6 {
		return nil, api.InvalidSNSParameter("TopicArn Reason: An ARN must have at least 6 elements, not " + strconv.Itoa(n))
	}
	if st.topics[arn] != nil {
		delete(st.topics, arn)
		st.logDropTopicLocked(arn, now)
	}
	return nil, nil
}

type topicMember struct {
	TopicArn string
}

type listTopicsResult struct {
	Topics    []topicMember `xml:"Topics>member"`
	NextToken string        `xml:",omitempty"`
}

// snsPage is the number of topics or subscriptions on a page.
const snsPage = 100

// listTopics implements ListTopics.
func (st *Store) listTopics(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	arns := slices.DeleteFunc(slices.Sorted(maps.Keys(st.topics)), func(arn string) bool { return st.topics[arn].known > now })
	page, token, err := snsPageOf(arns, f)
	result := &listTopicsResult{NextToken: token}
	for _, arn := range page {
		result.Topics = append(result.Topics, topicMember{arn})
	}
	return result, err
}

// snsPageOf returns the page of sorted items at NextToken, and the next token.
func snsPageOf(items []string, f api.Form) (page []string, token string, _ *api.Error) {
	if t := f.Get("NextToken"); t != "" {
		last, ok := api.DecodeToken(t)
		if !ok {
			return nil, "", api.InvalidSNSParameter("NextToken")
		}
		i, found := slices.BinarySearch(items, last)
		if found {
			i++
		}
		items = items[i:]
	}
	if len(items) > snsPage {
		return items[:snsPage], api.EncodeToken(items[snsPage-1]), nil
	}
	return items, "", nil
}

type attributeMember struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type attributesResult struct {
	Attributes []attributeMember `xml:"Attributes>entry"`
}

func attributesXML(m map[string]string) *attributesResult {
	result := &attributesResult{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		result.Attributes = append(result.Attributes, attributeMember{k, m[k]})
	}
	return result
}

// getTopicAttributes implements GetTopicAttributes.
func (st *Store) getTopicAttributes(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"TopicArn": t.arn, "Owner": st.queues.Account, "SubscriptionsConfirmed": strconv.Itoa(len(t.subscriptions)),
		"SubscriptionsDeleted": strconv.Itoa(t.deleted), "SubscriptionsPending": "0", "EffectiveDeliveryPolicy": effectiveDeliveryPolicy,
		"Policy": st.defaultTopicPolicy(t),
	}
	for k, v := range t.attributes {
		if v != "" || k == "DisplayName" {
			all[k] = v
		}
	}
	return attributesXML(all), nil
}

const effectiveDeliveryPolicy = `{"http":{"defaultHealthyRetryPolicy":{"minDelayTarget":20,"maxDelayTarget":20,"numRetries":3,"numMaxDelayRetries":0,"numNoDelayRetries":0,"numMinDelayRetries":0,"backoffFunction":"linear"},"disableSubscriptionOverrides":false,"defaultRequestPolicy":{"headerContentType":"text/plain; charset=UTF-8"}}}`

func (st *Store) defaultTopicPolicy(t *topic) string {
	return `{"Version":"2008-10-17","Id":"__default_policy_ID","Statement":[{"Sid":"__default_statement_ID","Effect":"Allow","Principal":{"AWS":"*"},"Action":["SNS:GetTopicAttributes","SNS:SetTopicAttributes","SNS:AddPermission","SNS:RemovePermission","SNS:DeleteTopic","SNS:Subscribe","SNS:ListSubscriptionsByTopic","SNS:Publish"],"Resource":"` +
		t.arn + `","Condition":{"StringEquals":{"AWS:SourceOwner":"` + st.queues.Account + `"}}}]}`
}

// setTopicAttributes implements SetTopicAttributes.
func (st *Store) setTopicAttributes(_ *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	name, value := f.Get("AttributeName"), f.Get("AttributeValue")
	if err := checkTopicAttribute(name, value, t.fifo, false); err != nil {
		return nil, err
	}
	t.attributes[name] = value
	st.logTopicLocked(t, now)
	return nil, nil
}
