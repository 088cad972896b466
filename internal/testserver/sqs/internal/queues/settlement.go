package queues

import (
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

type handleRequest struct {
	ID                string `json:"Id"`       // in a batch
	QueueURL          string `json:"QueueUrl"` // alone
	ReceiptHandle     string `json:"ReceiptHandle"`
	VisibilityTimeout *int   `json:"VisibilityTimeout"`
}

type handleBatchRequest struct {
	QueueURL string          `json:"QueueUrl"`
	Entries  []handleRequest `json:"Entries"`
}

type handleResponse struct {
	ID string `json:"Id"`
}

type empty struct{}

// handleIsInvalid is the error for a handle that the queue has never issued.
func handleIsInvalid(handle string) *api.Error {
	return api.Failure("ReceiptHandleIsInvalid", "The input receipt handle \"%s\" is not a valid receipt handle.", handle)
}

// deleteMessage implements DeleteMessage.
func (st *Store) deleteMessage(_ *api.Call, r *handleRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	expired, err := st.deleteLocked(q, r.ReceiptHandle, now)
	if expired {
		err = api.InvalidParameter("Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", r.ReceiptHandle)
	}
	if err != nil {
		return nil, err
	}
	return &empty{}, nil
}

// deleteLocked deletes the message of a handle. It succeeds if the message is deleted
// already.
//
// A handle of an earlier receive succeeds, too, and deletes nothing: "If you use an old
// ReceiptHandle, the request will succeed, but the message might not be deleted"
// (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html).
// A handle whose visibility timeout has ended deletes the message of a standard queue unless
// it was received again, and no message of a FIFO queue
// (https://github.com/aws/aws-sdk-js/issues/1750,
// https://github.com/localstack/localstack/pull/12442).
func (st *Store) deleteLocked(q *queue, handle string, now clock.Instant) (expired bool, _ *api.Error) {
	r, ok := parseHandle(handle, q.id)
	if !ok {
		return false, handleIsInvalid(handle)
	}
	q.settle(now)
	m := q.messages[r.serial]
	switch {
	case m == nil:
		return false, nil
	case q.fifo && (m.state != inFlight || m.receive != r.receive):
		return true, nil
	case m.receive != r.receive:
		return false, nil
	}
	q.remove(m)
	st.logRemoveLocked(q, m, now)
	st.touchLocked(q) // the group of a FIFO queue may be unlocked
	return false, nil
}

// deleteMessageBatch implements DeleteMessageBatch.
func (st *Store) deleteMessageBatch(c *api.Call, r *handleBatchRequest) (*batchResponse[handleResponse], *api.Error) {
	return st.eachHandle(c, r, "DeleteMessageBatchRequestEntry", func(q *queue, e *handleRequest, now clock.Instant) *api.Error {
		expired, err := st.deleteLocked(q, e.ReceiptHandle, now)
		if expired {
			// An entry of a batch has another code than a single request:
			// https://github.com/smaskalik/sqsmover/issues/54
			return api.Failure("ReceiptHandleIsInvalid", "The receipt handle has expired")
		}
		return err
	})
}

// changeMessageVisibility implements ChangeMessageVisibility.
func (st *Store) changeMessageVisibility(_ *api.Call, r *handleRequest) (*empty, *api.Error) {
	now := st.Begin()
	defer st.End(now)
	q, err := st.queueByURLLocked(r.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := st.changeVisibilityLocked(q, r, now); err != nil {
		return nil, err
	}
	return &empty{}, nil
}

// changeMessageVisibilityBatch implements ChangeMessageVisibilityBatch.
func (st *Store) changeMessageVisibilityBatch(c *api.Call, r *handleBatchRequest) (*batchResponse[handleResponse], *api.Error) {
	return st.eachHandle(c, r, "ChangeMessageVisibilityBatchRequestEntry", st.changeVisibilityLocked)
}

// changeVisibilityLocked gives a message in flight a new visibility timeout, from now on.
//
// It returns an error for a message that is deleted or was received again. For a message
// whose visibility timeout has ended it does nothing and returns no error, at least in a
// standard queue: https://github.com/localstack/localstack/pull/9632, which was tried against
// AWS. The error MessageNotInflight is documented, but was not seen
// (https://github.com/aws/aws-sdk-net/issues/1927).
func (st *Store) changeVisibilityLocked(q *queue, r *handleRequest, now clock.Instant) *api.Error {
	if r.VisibilityTimeout == nil {
		return api.MissingParameter("VisibilityTimeout")
	}
	if v := *r.VisibilityTimeout; v < 0 || v > 43200 {
		return api.InvalidParameter("Value %d for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.", v)
	}
	receipt, ok := parseHandle(r.ReceiptHandle, q.id)
	if !ok {
		return handleIsInvalid(r.ReceiptHandle)
	}
	q.settle(now)
	m := q.messages[receipt.serial]
	switch {
	case m == nil || m.receive != receipt.receive:
		return api.InvalidParameter("Value %s for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change.", r.ReceiptHandle)
	case m.state != inFlight && q.fifo:
		return api.InvalidParameter("Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", r.ReceiptHandle)
	case m.state != inFlight:
		return nil
	}
	due := now.Add(clock.Seconds(*r.VisibilityTimeout))
	// 43200 seconds are also too many as soon as any time has passed since the receive:
	// https://github.com/aws/aws-sdk-net/issues/794
	if due > m.received.Add(maxVisibility) {
		return api.InvalidParameter("Value %d for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]", *r.VisibilityTimeout)
	}
	q.setVisibility(m, due, now)
	st.logVisibilityLocked(q, m, now)
	st.touchLocked(q)
	return nil
}

// eachHandle executes a batch of receipt handles.
func (st *Store) eachHandle(
	c *api.Call, r *handleBatchRequest, parameter string, do func(*queue, *handleRequest, clock.Instant) *api.Error,
) (*batchResponse[handleResponse], *api.Error) {
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
	if err := api.CheckBatch(parameter, ids); err != nil {
		return nil, err
	}
	response := newBatchResponse[handleResponse](len(ids))
	for i := range r.Entries {
		e := &r.Entries[i]
		err := c.EntryFailure(i)
		if err == nil {
			err = do(q, e, now)
		}
		if err != nil {
			response.fail(e.ID, err)
		} else {
			response.Successful = append(response.Successful, handleResponse{e.ID})
		}
	}
	return response, nil
}
