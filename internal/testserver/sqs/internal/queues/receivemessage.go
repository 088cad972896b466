package queues

import (
	"slices"
	"strconv"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
)

type receiveRequest struct {
	QueueURL             string   `json:"QueueUrl"`
	AttributeNames       []string `json:"AttributeNames"` // the former MessageSystemAttributeNames
	SystemAttributeNames []string `json:"MessageSystemAttributeNames"`
	MessageAttributes    []string `json:"MessageAttributeNames"`
	MaxNumberOfMessages  *int     `json:"MaxNumberOfMessages"`
	VisibilityTimeout    *int     `json:"VisibilityTimeout"`
	WaitTimeSeconds      *int     `json:"WaitTimeSeconds"`
	AttemptID            *string  `json:"ReceiveRequestAttemptId"`
}

type receiveResponse struct {
	Messages []receivedMessage `json:"Messages,omitempty"`
}

type receivedMessage struct {
	MessageID              string                        `json:"MessageId"`
	ReceiptHandle          string                        `json:"ReceiptHandle"`
	MD5OfBody              string                        `json:"MD5OfBody"`
	Body                   string                        `json:"Body"`
	Attributes             map[string]string             `json:"Attributes,omitempty"`
	MD5OfMessageAttributes string                        `json:"MD5OfMessageAttributes,omitempty"`
	MessageAttributes      map[string]api.AttributeValue `json:"MessageAttributes,omitempty"`
}

// systemAttributes are the names that a receive may ask for. SqsManagedSseEnabled is accepted
// without effect.
var systemAttributes = []string{
	"All", "SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp", "SequenceNumber",
	"MessageDeduplicationId", "MessageGroupId", "AWSTraceHeader", "DeadLetterQueueSourceArn", "SqsManagedSseEnabled",
}

func (r *receiveRequest) check() *api.Error {
	if n := r.MaxNumberOfMessages; n != nil && (*n < 1 || *n > api.MaxBatch) {
		return api.InvalidParameter("Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.", *n)
	}
	if n := r.WaitTimeSeconds; n != nil && (*n < 0 || *n > 20) {
		return api.InvalidParameter("Value %d for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.", *n)
	}
	if n := r.VisibilityTimeout; n != nil && (*n < 0 || *n > 43200) {
		return api.InvalidParameter("Value %d for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.", *n)
	}
	for _, name := range slices.Concat(r.AttributeNames, r.SystemAttributeNames) {
		if !slices.Contains(systemAttributes, name) {
			return unknownAttribute(name)
		}
	}
	if id := r.AttemptID; id != nil && !api.IsToken(*id) {
		return api.InvalidToken("ReceiveRequestAttemptId", *id)
	}
	return nil
}

// receiveMessage implements ReceiveMessage.
func (st *Store) receiveMessage(c *api.Call, r *receiveRequest) (*receiveResponse, *api.Error) {
	got, p, q, err := st.receiveNow(r)
	if err != nil {
		return nil, err
	}
	if p != nil {
		got = st.wait(c.Context, q, p)
	}
	return r.response(got), nil
}

// receiveNow receives messages that are ready, or begins a poll if there are none.
func (st *Store) receiveNow(r *receiveRequest) ([]delivery, *poll, *queue, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return nil, nil, nil, err
	}
	w, wait := wanted{max: 1, visibility: q.visibility}, q.wait
	if r.MaxNumberOfMessages != nil {
		w.max = *r.MaxNumberOfMessages
	}
	if r.VisibilityTimeout != nil {
		w.visibility = clock.Seconds(*r.VisibilityTimeout)
	}
	if r.WaitTimeSeconds != nil {
		wait = clock.Seconds(*r.WaitTimeSeconds)
	}
	if st.maxWait > 0 {
		wait = min(wait, st.maxWait)
	}
	if r.AttemptID != nil && q.fifo { // a standard queue ignores it
		w.attempt = *r.AttemptID
	}
	q.settle(now)
	if got, ok := st.repeatLocked(q, w, now); ok {
		return got, nil, q, nil
	}
	if q.count[inFlight] >= st.maxInFlight && !q.fifo && wait == 0 {
		// A long poll and a FIFO queue return no error, but no messages either:
		// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
		return nil, nil, nil, api.Failure("OverLimit", "The maximum number of in flight messages is reached.")
	}
	if len(q.polls) == 0 { // otherwise earlier polls are served first
		if got := st.takeLocked(q, w, now); len(got) > 0 || wait == 0 {
			return got, nil, q, nil
		}
	}
	p := &poll{w, now.Add(wait), make(chan []delivery, 1)}
	q.polls = append(q.polls, p)
	q.tellPollsChanged()
	st.touched = append(st.touched, q) // which sets the alarm
	return nil, p, q, nil
}

func (r *receiveRequest) response(got []delivery) *receiveResponse {
	response := &receiveResponse{Messages: make([]receivedMessage, 0, len(got))}
	names := r.SystemAttributeNames
	if len(names) == 0 {
		names = r.AttributeNames
	}
	for _, d := range got {
		m := d.message
		out := receivedMessage{MessageID: m.ID, ReceiptHandle: d.handle, MD5OfBody: m.BodyMD5, Body: m.Body, Attributes: d.systemAttributes(names)}
		if chosen := content.Choose(m.Attributes, r.MessageAttributes); chosen != nil {
			// The checksum covers the returned attributes.
			out.MD5OfMessageAttributes = m.AttributesMD5
			if len(chosen) < len(m.Attributes) {
				out.MD5OfMessageAttributes = content.MD5OfAttributes(chosen)
			}
			out.MessageAttributes = make(map[string]api.AttributeValue, len(chosen))
			for i := range chosen {
				out.MessageAttributes[chosen[i].Name] = chosen[i].Value()
			}
		}
		response.Messages = append(response.Messages, out)
	}
	return response
}

func (d *delivery) systemAttributes(names []string) map[string]string {
	if len(names) == 0 {
		return nil
	}
	m, all := d.message, slices.Contains(names, "All")
	chosen := make(map[string]string, len(names))
	add := func(name, value string) {
		if value != "" && (all || slices.Contains(names, name)) {
			chosen[name] = value
		}
	}
	add("SenderId", m.Sender)
	add("SentTimestamp", strconv.FormatInt(m.sent.Milliseconds(), 10))
	add("ApproximateReceiveCount", strconv.Itoa(d.count))
	add("ApproximateFirstReceiveTimestamp", strconv.FormatInt(d.first.Milliseconds(), 10))
	add("SequenceNumber", m.sequence)
	add("MessageDeduplicationId", m.deduplication)
	add("MessageGroupId", m.group)
	add("AWSTraceHeader", m.Trace)
	add("DeadLetterQueueSourceArn", m.source)
	return chosen
}

const maxVisibility = 43200 * time.Second
