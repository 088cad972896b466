package queues

import (
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/deduplication"
)

type sendRequest struct {
	ID                      string                        `json:"Id"`       // in a batch
	QueueURL                string                        `json:"QueueUrl"` // alone
	Body                    *string                       `json:"MessageBody"`
	DelaySeconds            *int                          `json:"DelaySeconds"`
	MessageAttributes       map[string]api.AttributeValue `json:"MessageAttributes"`
	MessageSystemAttributes map[string]api.AttributeValue `json:"MessageSystemAttributes"`
	GroupID                 *string                       `json:"MessageGroupId"`
	DeduplicationID         *string                       `json:"MessageDeduplicationId"`
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
func (r *sendRequest) prepare(sender string) (content.Content, *api.Error) {
	c := content.Content{Sender: sender}
	var err *api.Error
	if c.Attributes, err = content.ParseAttributes(r.MessageAttributes, "user"); err != nil {
		return c, err
	}
	system, err := content.ParseAttributes(r.MessageSystemAttributes, "system")
	if err != nil {
		return c, err
	}
	for _, a := range system {
		if a.Name != "AWSTraceHeader" {
			return c, api.InvalidParameter("Message (system) attribute '%s' is not supported.", a.Name)
		}
		if a.Type != "String" {
			return c, api.InvalidParameter("Message (system) attribute 'AWSTraceHeader' must have the type String.")
		}
		c.Trace, c.TraceMD5 = a.String, content.MD5OfAttributes(system)
	}
	if r.Body == nil || *r.Body == "" {
		return c, api.MissingParameter("MessageBody")
	}
	c.Body = *r.Body
	if !content.Valid(c.Body) {
		return c, api.Failure("InvalidMessageContents", "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	}
	c.ID, c.BodyMD5, c.AttributesMD5 = content.NewID(), content.MD5(c.Body), content.MD5OfAttributes(c.Attributes)
	return c, nil
}

// sendMessage implements SendMessage.
func (st *Store) sendMessage(c *api.Call, r *sendRequest) (*sendResponse, *api.Error) {
	prepared, wrong := r.prepare(c.Sender)
	now := st.Begin()
	defer st.End(now)
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
func (st *Store) sendLocked(q *queue, r *sendRequest, c *content.Content, now clock.Instant) (*sendResponse, *api.Error) {
	if c.Size() > q.maxSize {
		return nil, api.InvalidParameter("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.maxSize)
	}
	if err := q.checkSend(r); err != nil {
		return nil, err
	}
	delay := q.delay
	if r.DelaySeconds != nil && !q.fifo {
		delay = clock.Seconds(*r.DelaySeconds)
	}
	m := &message{Content: *c, sent: now, enqueued: now, due: now.Add(delay)}
	if r.GroupID != nil {
		m.group = *r.GroupID
	}
	if q.fifo {
		m.deduplication = q.deduplicationID(r)
	}
	response := &sendResponse{
		ID: r.ID, MD5OfMessageBody: c.BodyMD5, MD5OfMessageAttributes: c.AttributesMD5, MD5OfMessageSystemAttributes: c.TraceMD5,
	}
	response.MessageID, response.SequenceNumber = st.putLocked(q, m, now)
	return response, nil
}

// putLocked adds a new message to a queue, unless a FIFO queue has received a message with
// its deduplication id in the last five minutes. It returns the id and sequence number of the
// added or of the earlier message.
func (st *Store) putLocked(q *queue, m *message, now clock.Instant) (id, sequence string) {
	key := deduplication.Key(q.deduplicatePerGroup, m.group, m.deduplication)
	if q.fifo {
		if earlier, ok := q.sent.Find(key, now); ok {
			return earlier.ID, earlier.Sequence
		}
	}
	st.serial++
	m.serial, m.order = st.serial, st.serial
	if q.fifo {
		m.sequence = sequenceNumber(m.serial)
		q.sent.Add(key, deduplication.Sent{ID: m.ID, Sequence: m.sequence, At: now})
	}
	q.insert(m, now)
	if !q.fifo {
		key = ""
	}
	st.logSendLocked(q, m, key, now)
	st.touchLocked(q)
	return m.ID, m.sequence
}

func (q *queue) deduplicationID(r *sendRequest) string {
	if r.DeduplicationID != nil {
		return *r.DeduplicationID
	}
	return deduplication.IDOfBody(*r.Body)
}

func (q *queue) checkSend(r *sendRequest) *api.Error {
	if d := r.DelaySeconds; d != nil {
		if *d < 0 || *d > 900 {
			return api.InvalidParameter("Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.", *d)
		}
		if q.fifo && *d != 0 {
			return api.InvalidParameter("Value %d for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type.", *d)
		}
	}
	if g := r.GroupID; g != nil && !api.IsToken(*g) {
		return api.InvalidToken("MessageGroupId", *g)
	}
	if d := r.DeduplicationID; d != nil {
		if !q.fifo {
			return api.InvalidParameter("Value %s for parameter MessageDeduplicationId is invalid. Reason: The request includes a parameter that is not valid for this queue type.", *d)
		}
		if !api.IsToken(*d) {
			return api.InvalidToken("MessageDeduplicationId", *d)
		}
	}
	if q.fifo {
		if r.GroupID == nil {
			return api.MissingParameter("MessageGroupId")
		}
		if r.DeduplicationID == nil && !q.contentDeduplication {
			return api.InvalidParameter("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
		}
	}
	return nil
}

type sendBatchRequest struct {
	QueueURL string        `json:"QueueUrl"`
	Entries  []sendRequest `json:"Entries"`
}

// sendMessageBatch implements SendMessageBatch.
func (st *Store) sendMessageBatch(c *api.Call, r *sendBatchRequest) (*batchResponse[*sendResponse], *api.Error) {
	prepared := make([]content.Content, len(r.Entries))
	wrong := make([]*api.Error, len(r.Entries))
	total := 0
	for i := range r.Entries {
		prepared[i], wrong[i] = r.Entries[i].prepare(c.Sender)
		total += prepared[i].Size()
	}
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(r.Entries))
	for i := range r.Entries {
		ids[i] = r.Entries[i].ID
	}
	if err := api.CheckBatch("SendMessageBatchRequestEntry", ids); err != nil {
		return nil, err
	}
	// The queue's MaximumMessageSize limits each message, but not the batch:
	// test_send_message_batch_with_oversized_contents_with_updated_maximum_message_size of
	// LocalStack's tests/aws/services/sqs, recorded against AWS.
	if total > api.MaxMessageSize {
		return nil, api.Failure("BatchRequestTooLong", "Batch requests cannot be longer than %d bytes. You have sent %d bytes.", api.MaxMessageSize, total)
	}
	if err := q.checkFIFOBatch(r.Entries); err != nil {
		return nil, err
	}
	response := newBatchResponse[*sendResponse](len(ids))
	for i := range r.Entries {
		e := &r.Entries[i]
		if err := c.EntryFailure(i); err != nil {
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
func (q *queue) checkFIFOBatch(entries []sendRequest) *api.Error {
	if !q.fifo {
		return nil
	}
	for i := range entries {
		if entries[i].GroupID == nil {
			return api.InvalidParameter("The request must contain the parameter MessageGroupId.")
		}
		if entries[i].DeduplicationID == nil && !q.contentDeduplication {
			return api.InvalidParameter("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
		}
	}
	return nil
}
