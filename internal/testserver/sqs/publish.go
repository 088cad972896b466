//go:build darwin || linux

package sqs

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// A publication is a message that is published.
type publication struct {
	content
	subject                   *string
	group, deduplication      *string
	deduplicationID, sequence string // of a FIFO topic
	at                        instant
	isJSON                    bool // the structure of the message
}

type publishResult struct {
	MessageID      string `xml:"MessageId"`
	SequenceNumber string `xml:",omitempty"`
}

// publish implements Publish, for topics.
func (st *store) publish(c *call, f form) (answerXML, *apiError) {
	parameter := "TopicArn"
	if f.Get("TopicArn") == "" && f.has("TargetArn") {
		parameter = "TargetArn"
	}
	p, wrong := readPublication(f, "")
	now := st.begin()
	defer st.end(now)
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
	if p.size() > t.maxSize() {
		return nil, invalidSNS("Message too long")
	}
	return st.deliverLocked(t, p, now), nil
}

func (t *topic) maxSize() int {
	n, _ := strconv.Atoi(t.attribute("MaximumMessageSize")) // was checked
	return n
}

// readPublication reads a message whose parameters have a prefix, and makes all checks that
// do not depend on the topic.
func readPublication(f form, prefix string) (*publication, *apiError) {
	p := &publication{subject: f.optional(prefix + "Subject")}
	p.group, p.deduplication = f.optional(prefix+"MessageGroupId"), f.optional(prefix+"MessageDeduplicationId")
	p.body = f.Get(prefix + "Message")
	if p.body == "" {
		return p, invalidSNS("Empty message")
	}
	if s := p.subject; s != nil && (*s == "" || len(*s) > 100 || !validSubject(*s)) {
		return p, invalidSNS("Subject")
	}
	if structure := f.Get(prefix + "MessageStructure"); structure == "json" {
		body, err := bodyForSQS(p.body)
		if err != nil {
			return p, err
		}
		p.body, p.isJSON = body, true
	} else if structure != "" {
		return p, invalidSNS("MessageStructure")
	}
	var err *apiError
	if p.attributes, err = readPublishedAttributes(f.attributes(prefix)); err != nil {
		return p, err
	}
	p.id = newID()
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
func bodyForSQS(text string) (string, *apiError) {
	var parts map[string]any
	if json.Unmarshal([]byte(text), &parts) != nil {
		return "", invalidSNS("Message Structure - JSON message body failed to parse")
	}
	standard, ok := parts["default"].(string)
	if !ok {
		return "", invalidSNS("Message Structure - No default entry in JSON message body")
	}
	if own, ok := parts["sqs"].(string); ok {
		return own, nil
	}
	return standard, nil
}

// readPublishedAttributes checks message attributes as SNS does: it has no limit on their
// number, but has the type String.Array.
func readPublishedAttributes(values map[string]attributeValue) ([]attribute, *apiError) {
	var attributes []attribute
	for _, name := range sortedKeys(values) {
		a, err := parseAttribute(name, values[name], "user")
		if err != nil {
			return nil, snsFailure("ParameterValueInvalid", 400, err.message)
		}
		if a.Type == "String.Array" && !json.Valid([]byte(a.String)) {
			return nil, invalidSNS("Message attribute '" + name + "' is no JSON array")
		}
		attributes = append(attributes, a)
	}
	return attributes, nil
}

// checkPublication checks a message against the settings of the topic.
func (t *topic) checkPublication(p *publication) *apiError {
	if g := p.group; g != nil && !isToken(*g) {
		return invalidSNS("MessageGroupId")
	}
	if d := p.deduplication; d != nil && !isToken(*d) {
		return invalidSNS("MessageDeduplicationId")
	}
	switch {
	case !t.fifo && p.deduplication != nil:
		return invalidSNS("MessageDeduplicationId Reason: The request includes MessageDeduplicationId parameter that is not valid for this topic type")
	case t.fifo && p.group == nil:
		return invalidSNS("The MessageGroupId parameter is required for FIFO topics")
	case t.fifo && p.deduplication == nil && t.attributes["ContentBasedDeduplication"] != "true":
		return invalidSNS("The topic should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	return nil
}

// checkFIFOBatch refuses a whole batch for a FIFO topic if an entry lacks a group id or a
// required deduplication id, as SQS does.
func (t *topic) checkFIFOBatch(all []*publication) *apiError {
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

// snsBatchErrors are SNS's texts for the errors of checkBatch.
var snsBatchErrors = map[string]string{
	"BatchEntryIdsNotDistinct":     "Two or more batch entries in the request have the same Id.",
	"EmptyBatchRequest":            "The batch request doesn't contain any entries.",
	"InvalidBatchEntryId":          "The Id of a batch entry in a batch request doesn't abide by the specification.",
	"TooManyEntriesInBatchRequest": "The batch request contains more entries than permissible.",
}

// publishBatch implements PublishBatch.
func (st *store) publishBatch(c *call, f form) (answerXML, *apiError) {
	var ids []string
	var all []*publication
	var wrong []*apiError
	total := 0
	f.each("PublishBatchRequestEntries.member", func(prefix string) {
		p, err := readPublication(f, prefix+".")
		ids, all, wrong = append(ids, f.Get(prefix+".Id")), append(all, p), append(wrong, err)
		total += p.size()
	})
	now := st.begin()
	defer st.end(now)
	t, err := st.topicOfLocked(f, "TopicArn", now)
	if err != nil {
		return nil, err
	}
	if err := checkBatch("PublishBatchRequestEntry", ids); err != nil {
		return nil, snsFailure(err.shape, 400, snsBatchErrors[err.shape])
	}
	if err := t.checkFIFOBatch(all); err != nil {
		return nil, err
	}
	if total > t.maxSize() {
		return nil, snsFailure("BatchRequestTooLong", 400, "The length of all the messages put together is more than the limit.")
	}
	result := &publishBatchResult{}
	for i, p := range all {
		err := c.entryFault(i)
		if err != nil {
			err = err.forSNS()
		} else if err = wrong[i]; err == nil {
			err = t.checkPublication(p)
		}
		if err != nil {
			result.Failed = append(result.Failed, failedPublishMember{ids[i], err.query, err.message, !err.receiver})
			continue
		}
		r := st.deliverLocked(t, p, now)
		result.Successful = append(result.Successful, publishedMember{ids[i], r.MessageID, r.SequenceNumber})
	}
	return result, nil
}

// deliverLocked delivers a message at once to all subscriptions of a topic that it matches,
// unless a FIFO topic has received a message with its deduplication id in the last five
// minutes.
func (st *store) deliverLocked(t *topic, p *publication, now instant) *publishResult {
	p.at = now
	if t.fifo {
		p.deduplicationID = contentDeduplicationID(p.body)
		if p.deduplication != nil {
			p.deduplicationID = *p.deduplication
		}
		key := deduplicationKey(t.attributes["FifoThroughputScope"] == "MessageGroup", *p.group, p.deduplicationID)
		if earlier, ok := t.sent.find(key, now); ok {
			return &publishResult{earlier.id, earlier.sequence}
		}
		t.published++
		p.sequence = topicSequenceNumber(t.published)
		t.sent.add(key, sentMessage{p.id, p.sequence, now})
		st.logPublishLocked(t, p, key, now)
	}
	for _, s := range t.subscriptions {
		if s.since > now || s.filter != nil && !s.matches(p) {
			continue
		}
		if !st.deliverToLocked(t, s, st.queueByARNLocked(s.endpoint), p, now) && s.deadLetter != "" {
			st.deliverToLocked(t, s, st.queueByARNLocked(s.deadLetter), p, now)
		}
	}
	return &publishResult{p.id, p.sequence}
}

// topicSequenceNumber returns the n-th sequence number of a FIFO topic, which has 20 digits.
func topicSequenceNumber(n uint64) string {
	digits := strconv.FormatUint(n*1000, 10)
	const zeros = "10000000000000000000"
	return zeros[:len(zeros)-len(digits)] + digits
}

// deliverToLocked delivers a message to a queue, and reports whether it could. Like the
// service, it does not tell the publisher if the queue is deleted, if its policy does not
// allow the topic, or if the message does not fit: raw messages with more than 10 attributes
// do not (https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html). That page
// also says that attributes are not delivered if the structure of the message is JSON.
func (st *store) deliverToLocked(t *topic, s *subscription, q *queue, p *publication, now instant) bool {
	if q == nil || !q.policy.allowsTopic(q.arn, t.arn, st.account) || s.raw && len(p.attributes) > maxAttributes {
		return false
	}
	c := content{id: newID(), body: p.body, sender: "AIDAISDSWNGQVSEXAMPLE"}
	switch {
	case !s.raw:
		c.body = p.envelope(t, s)
	case !p.isJSON:
		c.attributes = p.attributes
	}
	if c.size() > q.maxSize {
		return false
	}
	c.bodyMD5, c.attributesMD5 = md5Hex(c.body), md5OfAttributes(c.attributes)
	m := &message{content: c, sent: now, enqueued: now, due: now.add(q.delay)}
	if p.group != nil && (q.fifo || !t.fifo) {
		m.group = *p.group
	}
	if q.fifo {
		m.deduplication = p.deduplicationID
	}
	st.putLocked(q, m, now)
	return true
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
		Type: "Notification", ID: p.id, SequenceNumber: p.sequence, TopicArn: t.arn, Subject: p.subject, Message: p.body,
		Timestamp:        p.at.time().UTC().Format("2006-01-02T15:04:05.000Z"),
		SignatureVersion: "1", Signature: "EXAMPLEpH+..", SigningCertURL: "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0000000000000000000000.pem",
		UnsubscribeURL: "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn=" + s.arn,
	}
	if v := t.attributes["SignatureVersion"]; v != "" {
		e.SignatureVersion = v
	}
	for i := range p.attributes {
		a := &p.attributes[i]
		if p.isJSON {
			break
		}
		if e.MessageAttributes == nil {
			e.MessageAttributes = map[string]value{}
		}
		v := a.value()
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

// SubscribeQueue subscribes a queue to a topic, raw, and has the queue's policy allow the
// topic. It reports whether both exist.
func (s *Server) SubscribeQueue(topicName, queueName string) bool {
	st := s.current()
	if !st.subscribeQueue(topicName, queueName) {
		return false
	}
	if err := st.flush(); err != nil {
		s.failed(err)
	}
	return true
}

func (st *store) subscribeQueue(topicName, queueName string) bool {
	st.mu.Lock()
	if st.dead {
		st.mu.Unlock()
		return false
	}
	now := st.clock.now()
	defer st.end(now)
	t, q := st.topics[st.topicARN(topicName)], st.queues[queueName]
	if t == nil || q == nil {
		return false
	}
	sub := &subscription{arn: t.arn + ":" + newID(), endpoint: q.arn, attributes: map[string]string{}, since: now.add(st.subscriptionDelay)}
	sub.set("RawMessageDelivery", "true")
	t.subscriptions = append(t.subscriptions, sub)
	st.logSubscriptionLocked(sub, now)
	p := policy{Version: "2012-10-17"}
	if q.policy != nil {
		p = *q.policy
	}
	p.Statement = append(slices.Clone(p.Statement), statement{
		Effect: "Allow", Principal: json.RawMessage(`{"Service":"sns.amazonaws.com"}`), Action: texts{"sqs:SendMessage"}, Resource: texts{q.arn},
		Condition: map[string]map[string]texts{"ArnEquals": {"aws:SourceArn": {t.arn}}},
	})
	return st.setPolicyLocked(q, p, now) == nil
}
