package topics

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/deduplication"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/queues"
)

// A publication is a message that is published.
type publication struct {
	content.Content
	subject                   *string
	group, deduplication      *string
	deduplicationID, sequence string // of a FIFO topic
	at                        clock.Instant
	isJSON                    bool // the structure of the message
}

type publishResult struct {
	MessageID      string `xml:"MessageId"`
	SequenceNumber string `xml:",omitempty"`
}

// publish implements Publish, for topics.
func (st *Store) publish(c *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	parameter := "TopicArn"
	if f.Get("TopicArn") == "" && f.Has("TargetArn") {
		parameter = "TargetArn"
	}
	p, wrong := readPublication(f, "")
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.topicOfLocked(f, parameter, now)
	if err != nil {
		return nil, err
	}
	if wrong == nil {
		wrong = t.checkPublication(p)
	}
	if wrong != nil {
		return nil, wrong
	}
	if p.Size() > t.maxSize() {
		return nil, api.InvalidSNSParameter("Message too long")
	}
	return st.deliverLocked(t, p, now), nil
}

func (t *topic) maxSize() int {
	n, _ := strconv.Atoi(t.attribute("MaximumMessageSize")) // was checked
	return n
}

// readPublication reads a message whose parameters have a prefix, and makes all checks that
// do not depend on the topic.
func readPublication(f api.Form, prefix string) (*publication, *api.Error) {
	p := &publication{subject: f.Optional(prefix + "Subject")}
	p.group, p.deduplication = f.Optional(prefix+"MessageGroupId"), f.Optional(prefix+"MessageDeduplicationId")
	p.Body = f.Get(prefix + "Message")
	if p.Body == "" {
		return p, api.InvalidSNSParameter("Empty message")
	}
	if s := p.subject; s != nil && (*s == "" || len(*s) > 100 || !validSubject(*s)) {
		return p, api.InvalidSNSParameter("Subject")
	}
	if structure := f.Get(prefix + "MessageStructure"); structure == "json" {
		body, err := bodyForSQS(p.Body)
		if err != nil {
			return p, err
		}
		p.Body, p.isJSON = body, true
	} else if structure != "" {
		return p, api.InvalidSNSParameter("MessageStructure")
	}
	var err *api.Error
	if p.Attributes, err = readPublishedAttributes(f.Attributes(prefix)); err != nil {
		return p, err
	}
	p.ID = content.NewID()
	return p, nil
}

func validSubject(s string) bool {
	for _, r := range s {
		if r < ' ' {
			return false
		}
	}
	return true
}

// bodyForSQS returns the text for queues of a message whose structure is json.
func bodyForSQS(text string) (string, *api.Error) {
	var parts map[string]any
	if json.Unmarshal([]byte(text), &parts) != nil {
		return "", api.InvalidSNSParameter("Message Structure - JSON message body failed to parse")
	}
	standard, ok := parts["default"].(string)
	if !ok {
		return "", api.InvalidSNSParameter("Message Structure - No default entry in JSON message body")
	}
	if own, ok := parts["sqs"].(string); ok {
		return own, nil
	}
	return standard, nil
}

// readPublishedAttributes checks message attributes as SNS does: it has no limit on their
// number, but has the type String.Array.
func readPublishedAttributes(values map[string]api.AttributeValue) ([]content.Attribute, *api.Error) {
	var attributes []content.Attribute
	for _, name := range slices.Sorted(maps.Keys(values)) {
		a, err := content.ParseAttribute(name, values[name], "user")
		if err != nil {
			return nil, api.SNSFailure("ParameterValueInvalid", 400, err.Message)
		}
		if a.Type == "String.Array" && !json.Valid([]byte(a.String)) {
			return nil, api.InvalidSNSParameter("Message attribute '" + name + "' is no JSON array")
		}
		attributes = append(attributes, a)
	}
	return attributes, nil
}

// checkPublication checks a message against the settings of the topic.
func (t *topic) checkPublication(p *publication) *api.Error {
	if g := p.group; g != nil && !api.IsToken(*g) {
		return api.InvalidSNSParameter("MessageGroupId")
	}
	if d := p.deduplication; d != nil && !api.IsToken(*d) {
		return api.InvalidSNSParameter("MessageDeduplicationId")
	}
	switch {
	case !t.fifo && p.deduplication != nil:
		return api.InvalidSNSParameter("MessageDeduplicationId Reason: The request includes MessageDeduplicationId parameter that is not valid for this topic type")
	case t.fifo && p.group == nil:
		return api.InvalidSNSParameter("The MessageGroupId parameter is required for FIFO topics")
	case t.fifo && p.deduplication == nil && t.attributes["ContentBasedDeduplication"] != "true":
		return api.InvalidSNSParameter("The topic should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	return nil
}

// checkFIFOBatch refuses a whole batch for a FIFO topic if an entry lacks a group id or a
// required deduplication id, as SQS does.
func (t *topic) checkFIFOBatch(all []*publication) *api.Error {
	if !t.fifo {
		return nil
	}
	for _, p := range all {
		if err := t.checkPublication(p); err != nil && (p.group == nil || p.deduplication == nil) {
			return err
		}
	}
	return nil
}

type publishBatchResult struct {
	Successful []publishedMember     `xml:"Successful>member"`
	Failed     []failedPublishMember `xml:"Failed>member"`
}

type publishedMember struct {
	ID             string `xml:"Id"`
	MessageID      string `xml:"MessageId"`
	SequenceNumber string `xml:",omitempty"`
}

type failedPublishMember struct {
	ID          string `xml:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

// snsBatchErrors are SNS's texts for the errors of CheckBatch.
var snsBatchErrors = map[string]string{
	"BatchEntryIdsNotDistinct":     "Two or more batch entries in the request have the same Id.",
	"EmptyBatchRequest":            "The batch request doesn't contain any entries.",
	"InvalidBatchEntryId":          "The Id of a batch entry in a batch request doesn't abide by the specification.",
	"TooManyEntriesInBatchRequest": "The batch request contains more entries than permissible.",
}

// publishBatch implements PublishBatch.
func (st *Store) publishBatch(c *api.Call, f api.Form) (api.AnswerXML, *api.Error) {
	var ids []string
	var all []*publication
	var wrong []*api.Error
	total := 0
	f.Each("PublishBatchRequestEntries.member", func(prefix string) {
		p, err := readPublication(f, prefix+".")
		ids, all, wrong = append(ids, f.Get(prefix+".Id")), append(all, p), append(wrong, err)
		total += p.Size()
	})
	now := st.queues.Begin()
	defer st.queues.End(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	if err := api.CheckBatch("PublishBatchRequestEntry", ids); err != nil {
		return nil, api.SNSFailure(err.Shape, 400, snsBatchErrors[err.Shape])
	}
	if err := t.checkFIFOBatch(all); err != nil {
		return nil, err
	}
	if total > t.maxSize() {
		return nil, api.SNSFailure("BatchRequestTooLong", 400, "The length of all the messages put together is more than the limit.")
	}
	result := &publishBatchResult{}
	for i, p := range all {
		err := c.EntryFailure(i)
		if err != nil {
			err = err.ForSNS()
		} else if err = wrong[i]; err == nil {
			err = t.checkPublication(p)
		}
		if err != nil {
			result.Failed = append(result.Failed, failedPublishMember{ids[i], err.Query, err.Message, !err.Receiver})
			continue
		}
		r := st.deliverLocked(t, p, now)
		result.Successful = append(result.Successful, publishedMember{ids[i], r.MessageID, r.SequenceNumber})
	}
	return result, nil
}

// DeliverLocked delivers a message at once to all subscriptions of a topic that it matches,
// unless a FIFO topic has received a message with its deduplication id in the last five
// minutes.
func (st *Store) deliverLocked(t *topic, p *publication, now clock.Instant) *publishResult {
	p.at = now
	if t.fifo {
		p.deduplicationID = deduplication.IDOfBody(p.Body)
		if p.deduplication != nil {
			p.deduplicationID = *p.deduplication
		}
		key := deduplication.Key(t.attributes["FifoThroughputScope"] == "MessageGroup", *p.group, p.deduplicationID)
		if earlier, ok := t.sent.Find(key, now); ok {
			return &publishResult{earlier.ID, earlier.Sequence}
		}
		t.published++
		p.sequence = topicSequenceNumber(t.published)
		t.sent.Add(key, deduplication.Sent{ID: p.ID, Sequence: p.sequence, At: now})
		st.logPublishLocked(t, p, key, now)
	}
	for _, s := range t.subscriptions {
		if s.since > now || s.filter != nil && !s.matches(p) {
			continue
		}
		if !st.deliverToLocked(t, s, s.endpoint, p, now) && s.deadLetter != "" {
			st.deliverToLocked(t, s, s.deadLetter, p, now)
		}
	}
	return &publishResult{p.ID, p.sequence}
}

// topicSequenceNumber returns the n-th sequence number of a FIFO topic, which has 20 digits.
func topicSequenceNumber(n uint64) string {
	digits := strconv.FormatUint(n*1000, 10)
	const zeros = "10000000000000000000"
	return zeros[:len(zeros)-len(digits)] + digits
}

// deliverToLocked delivers a message to the queue with an ARN, and reports whether it could. Like the service, it does
// not tell the publisher if it could not: raw messages with more than 10 attributes, for example, do not fit
// (https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html). That page also says that attributes are not
// delivered if the structure of the message is JSON.
func (st *Store) deliverToLocked(t *topic, s *subscription, arn string, p *publication, now clock.Instant) bool {
	if s.raw && len(p.Attributes) > content.MaxAttributes {
		return false
	}
	c := content.Content{ID: content.NewID(), Body: p.Body, Sender: "AIDAISDSWNGQVSEXAMPLE"}
	switch {
	case !s.raw:
		c.Body = p.envelope(t, s)
	case !p.isJSON:
		c.Attributes = p.Attributes
	}
	d := queues.TopicDelivery{Topic: t.arn, FIFO: t.fifo, Content: c, DeduplicationID: p.deduplicationID}
	if p.group != nil {
		d.Group = *p.group
	}
	return st.queues.DeliverLocked(arn, d, now)
}

// envelope returns the body of a message that is not delivered raw. It has no valid
// signature.
func (p *publication) envelope(t *topic, s *subscription) string {
	type value struct{ Type, Value string }
	e := struct {
		Type              string
		ID                string `json:"MessageId"`
		SequenceNumber    string `json:",omitempty"`
		TopicArn          string
		Subject           *string `json:",omitempty"`
		Message           string
		Timestamp         string
		SignatureVersion  string
		Signature         string
		SigningCertURL    string
		UnsubscribeURL    string
		MessageAttributes map[string]value `json:",omitempty"`
	}{
		Type: "Notification", ID: p.ID, SequenceNumber: p.sequence, TopicArn: t.arn, Subject: p.subject, Message: p.Body,
		Timestamp:        p.at.Time().UTC().Format("2006-01-02T15:04:05.000Z"),
		SignatureVersion: "1", Signature: "EXAMPLEpH+..", SigningCertURL: "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0000000000000000000000.pem",
		UnsubscribeURL: "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn=" + s.arn,
	}
	if v := t.attributes["SignatureVersion"]; v != "" {
		e.SignatureVersion = v
	}
	for i := range p.Attributes {
		a := &p.Attributes[i]
		if p.isJSON {
			break
		}
		if e.MessageAttributes == nil {
			e.MessageAttributes = map[string]value{}
		}
		v := a.Value()
		if v.BinaryValue != nil {
			e.MessageAttributes[a.Name] = value{a.Type, *v.BinaryValue}
		} else {
			e.MessageAttributes[a.Name] = value{a.Type, a.String}
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ") // as the service writes it
	_ = encoder.Encode(e)       // it has strings only
	return string(bytes.TrimRight(out.Bytes(), "\n"))
}

// matches reports whether a message passes the filter policy of a subscription.
func (s *subscription) matches(p *publication) bool {
	if s.filterBody {
		return s.filter.MatchesBody(p.Body)
	}
	return s.filter.MatchesAttributes(p.Attributes)
}
