//go:build darwin || linux

package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

type sendRequest struct {
	ID                      string                    `json:"Id"`       // in a batch
	QueueURL                string                    `json:"QueueUrl"` // alone
	Body                    *string                   `json:"MessageBody"`
	DelaySeconds            *int                      `json:"DelaySeconds"`
	MessageAttributes       map[string]attributeValue `json:"MessageAttributes"`
	MessageSystemAttributes map[string]attributeValue `json:"MessageSystemAttributes"`
	GroupID                 *string                   `json:"MessageGroupId"`
	DeduplicationID         *string                   `json:"MessageDeduplicationId"`
}

type sendResponse struct {
	ID                           string `json:"Id,omitempty"`
	MessageID                    string `json:"MessageId"`
	MD5OfMessageBody             string `json:"MD5OfMessageBody"`
	MD5OfMessageAttributes       string `json:"MD5OfMessageAttributes,omitempty"`
	MD5OfMessageSystemAttributes string `json:"MD5OfMessageSystemAttributes,omitempty"`
	SequenceNumber               string `json:"SequenceNumber,omitempty"`
}

// prepare makes all checks that do not depend on the queue, and computes the checksums.
func (r *sendRequest) prepare(sender string) (content, *apiError) {
	c := content{sender: sender}
	var err *apiError
	if c.attributes, err = parseAttributes(r.MessageAttributes, "user"); err != nil {
		return c, err
	}
	system, err := parseAttributes(r.MessageSystemAttributes, "system")
	if err != nil {
		return c, err
	}
	for _, a := range system {
		if a.Name != "AWSTraceHeader" {
			return c, invalidParameter("Message (system) attribute '%s' is not supported.", a.Name)
		}
		if a.Type != "String" {
			return c, invalidParameter("Message (system) attribute 'AWSTraceHeader' must have the type String.")
		}
		c.trace, c.traceMD5 = a.String, md5OfAttributes(system)
	}
	if r.Body == nil || *r.Body == "" {
		return c, missingParameter("MessageBody")
	}
	c.body = *r.Body
	if !validContent(c.body) {
		return c, failure("InvalidMessageContents", "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	c.id, c.bodyMD5, c.attributesMD5 = newID(), md5Hex(c.body), md5OfAttributes(c.attributes)
	return c, nil
}

// sendMessage implements SendMessage.
func (st *store) sendMessage(c *call, r *sendRequest) (*sendResponse, *apiError) {
	prepared, wrong := r.prepare(c.sender)
	now := st.begin()
	defer st.end(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	return st.sendLocked(q, r, &prepared, now)
}

// sendLocked checks a message against the settings of the queue, and adds it unless it is a
// duplicate.
func (st *store) sendLocked(q *queue, r *sendRequest, c *content, now instant) (*sendResponse, *apiError) {
	if c.size() > q.maxSize {
		return nil, invalidParameter("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.maxSize)
	}
	if err := q.checkSend(r); err != nil {
		return nil, err
	}
	delay := q.delay
	if r.DelaySeconds != nil && !q.fifo {
		delay = seconds(*r.DelaySeconds)
	}
	m := &message{content: *c, sent: now, enqueued: now, due: now.add(delay)}
	if r.GroupID != nil {
		m.group = *r.GroupID
	}
	if q.fifo {
		m.deduplication = q.deduplicationID(r)
	}
	response := &sendResponse{
		ID: r.ID, MD5OfMessageBody: c.bodyMD5, MD5OfMessageAttributes: c.attributesMD5, MD5OfMessageSystemAttributes: c.traceMD5,
	}
	response.MessageID, response.SequenceNumber = st.putLocked(q, m, now)
	return response, nil
}

// putLocked adds a new message to a queue, unless a FIFO queue has received a message with
// its deduplication id in the last five minutes. It returns the id and sequence number of the
// added or of the earlier message.
func (st *store) putLocked(q *queue, m *message, now instant) (id, sequence string) {
	key := deduplicationKey(q.deduplicatePerGroup, m.group, m.deduplication)
	if q.fifo {
		if earlier, ok := q.sent.find(key, now); ok {
			return earlier.id, earlier.sequence
		}
	}
	st.serial++
	m.serial, m.order = st.serial, st.serial
	if q.fifo {
		m.sequence = sequenceNumber(m.serial)
		q.sent.add(key, sentMessage{m.id, m.sequence, now})
	}
	q.insert(m, now)
	if !q.fifo {
		key = ""
	}
	st.logSendLocked(q, m, key, now)
	st.touchLocked(q)
	return m.id, m.sequence
}

func (q *queue) deduplicationID(r *sendRequest) string {
	if r.DeduplicationID != nil {
		return *r.DeduplicationID
	}
	return contentDeduplicationID(*r.Body)
}

// contentDeduplicationID returns the deduplication id that content-based deduplication
// derives from a body.
func contentDeduplicationID(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func (q *queue) checkSend(r *sendRequest) *apiError {
	if d := r.DelaySeconds; d != nil {
		if *d < 0 || *d > 900 {
			return invalidParameter("Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.", *d)
		}
		if q.fifo && *d != 0 {
			return invalidParameter("Value %d for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type.", *d)
		}
	}
	if g := r.GroupID; g != nil && !isToken(*g) {
		return invalidToken("MessageGroupId", *g)
	}
	if d := r.DeduplicationID; d != nil {
		if !q.fifo {
			return invalidParameter("Value %s for parameter MessageDeduplicationId is invalid. Reason: The request includes a parameter that is not valid for this queue type.", *d)
		}
		if !isToken(*d) {
			return invalidToken("MessageDeduplicationId", *d)
		}
	}
	if q.fifo {
		if r.GroupID == nil {
			return missingParameter("MessageGroupId")
		}
		if r.DeduplicationID == nil && !q.contentDeduplication {
			return invalidParameter("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
		}
	}
	return nil
}

// isToken reports whether a text can be a group id, a deduplication id or a
// ReceiveRequestAttemptId.
func isToken(s string) bool {
	if len(s) < 1 || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func invalidToken(parameter, value string) *apiError {
	return invalidParameter("Value %s for parameter %s is invalid. Reason: %s can only include alphanumeric and punctuation characters. 1 to 128 in length.", value, parameter, parameter)
}

type sendBatchRequest struct {
	QueueURL string        `json:"QueueUrl"`
	Entries  []sendRequest `json:"Entries"`
}

type batchResponse[T any] struct {
	Successful []T          `json:"Successful"`
	Failed     []batchError `json:"Failed"`
}

// sendMessageBatch implements SendMessageBatch.
func (st *store) sendMessageBatch(c *call, r *sendBatchRequest) (*batchResponse[*sendResponse], *apiError) {
	prepared := make([]content, len(r.Entries))
	wrong := make([]*apiError, len(r.Entries))
	total := 0
	for i := range r.Entries {
		prepared[i], wrong[i] = r.Entries[i].prepare(c.sender)
		total += prepared[i].size()
	}
	now := st.begin()
	defer st.end(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(r.Entries))
	for i := range r.Entries {
		ids[i] = r.Entries[i].ID
	}
	if err := checkBatch("SendMessageBatchRequestEntry", ids); err != nil {
		return nil, err
	}
	// The queue's MaximumMessageSize limits each message, but not the batch:
	// test_send_message_batch_with_oversized_contents_with_updated_maximum_message_size of
	// LocalStack's tests/aws/services/sqs, recorded against AWS.
	if total > maxMessageSize {
		return nil, failure("BatchRequestTooLong", "Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxMessageSize, total)
	}
	if err := q.checkFIFOBatch(r.Entries); err != nil {
		return nil, err
	}
	response := newBatchResponse[*sendResponse](len(ids))
	for i := range r.Entries {
		e := &r.Entries[i]
		if err := c.entryFault(i); err != nil {
			response.fail(e.ID, err)
		} else if wrong[i] != nil {
			response.fail(e.ID, wrong[i])
		} else if sent, err := st.sendLocked(q, e, &prepared[i], now); err != nil {
			response.fail(e.ID, err)
		} else {
			response.Successful = append(response.Successful, sent)
		}
	}
	return response, nil
}

// checkFIFOBatch refuses a whole batch for a FIFO queue if an entry lacks a group id or a
// required deduplication id: test_send_batch_missing_message_group_id_for_fifo_queue and
// test_send_batch_missing_deduplication_id_for_fifo_queue of LocalStack's
// tests/aws/services/sqs, recorded against AWS.
func (q *queue) checkFIFOBatch(entries []sendRequest) *apiError {
	if !q.fifo {
		return nil
	}
	for i := range entries {
		if entries[i].GroupID == nil {
			return invalidParameter("The request must contain the parameter MessageGroupId.")
		}
		if entries[i].DeduplicationID == nil && !q.contentDeduplication {
			return invalidParameter("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
		}
	}
	return nil
}

// trimARN returns the last part of an ARN.
func trimARN(arn string) string { return arn[strings.LastIndexByte(arn, ':')+1:] }
