//go:build darwin || linux

package sqs

import (
	"context"
	"encoding/base64"
	"encoding/json"
)

// A call is a request to one of the services.
type call struct {
	context   context.Context
	operation string
	host      string // as the client names the server; the server uses it in URLs
	account   string
	sender    string // the id of the caller
	fault     *fault // the fault that strikes it; nil: none
}

func (c *call) queueURL(name string) string {
	return "http://" + c.host + "/" + c.account + "/" + name
}

// entryFault returns the error that a fault causes for an entry of a batch, or nil.
func (c *call) entryFault(i int) *apiError {
	if c.fault == nil || c.fault.kind != failEntry || c.fault.entry != i {
		return nil
	}
	return c.fault.err
}

// An sqsRequest is the input of an operation of SQS.
type sqsRequest interface {
	// target returns the name of the queue, or "".
	target() string
}

func (r *sendRequest) target() string        { return nameInURL(r.QueueURL) }
func (r *sendBatchRequest) target() string   { return nameInURL(r.QueueURL) }
func (r *receiveRequest) target() string     { return nameInURL(r.QueueURL) }
func (r *handleRequest) target() string      { return nameInURL(r.QueueURL) }
func (r *handleBatchRequest) target() string { return nameInURL(r.QueueURL) }
func (r *createQueueRequest) target() string { return r.Name }
func (r *getQueueURLRequest) target() string { return r.Name }
func (r *queueRequest) target() string       { return nameInURL(r.QueueURL) }
func (r *listQueuesRequest) target() string  { return nameInURL(r.QueueURL) }
func (r *attributesRequest) target() string  { return nameInURL(r.QueueURL) }
func (r *tagRequest) target() string         { return nameInURL(r.QueueURL) }
func (r *permissionRequest) target() string  { return nameInURL(r.QueueURL) }
func (r *moveTaskRequest) target() string    { return trimARN(r.Source) }

func nameInURL(url string) string {
	_, name, _ := splitQueueURL(url)
	return name
}

// An operation decodes the body of a request, and runs it.
type operation struct {
	decode func(body []byte) (sqsRequest, error)
	run    func(*store, *call, sqsRequest) (any, *apiError)
}

func operationOf[I any, P interface {
	*I
	sqsRequest
}, O any](f func(*store, *call, P) (O, *apiError)) operation {
	return operation{
		func(body []byte) (sqsRequest, error) {
			r := P(new(I))
			return r, json.Unmarshal(body, r)
		},
		func(st *store, c *call, r sqsRequest) (any, *apiError) {
			answer, err := f(st, c, r.(P))
			if err != nil {
				return nil, err
			}
			return answer, nil
		},
	}
}

var operations = map[string]operation{
	"AddPermission":                operationOf((*store).addPermission),
	"CancelMessageMoveTask":        operationOf((*store).cancelMessageMoveTask),
	"ChangeMessageVisibility":      operationOf((*store).changeMessageVisibility),
	"ChangeMessageVisibilityBatch": operationOf((*store).changeMessageVisibilityBatch),
	"CreateQueue":                  operationOf((*store).createQueue),
	"DeleteMessage":                operationOf((*store).deleteMessage),
	"DeleteMessageBatch":           operationOf((*store).deleteMessageBatch),
	"DeleteQueue":                  operationOf((*store).deleteQueue),
	"GetQueueAttributes":           operationOf((*store).getQueueAttributes),
	"GetQueueUrl":                  operationOf((*store).getQueueURL),
	"ListDeadLetterSourceQueues":   operationOf((*store).listDeadLetterSourceQueues),
	"ListMessageMoveTasks":         operationOf((*store).listMessageMoveTasks),
	"ListQueueTags":                operationOf((*store).listQueueTags),
	"ListQueues":                   operationOf((*store).listQueues),
	"PurgeQueue":                   operationOf((*store).purgeQueue),
	"ReceiveMessage":               operationOf((*store).receiveMessage),
	"RemovePermission":             operationOf((*store).removePermission),
	"SendMessage":                  operationOf((*store).sendMessage),
	"SendMessageBatch":             operationOf((*store).sendMessageBatch),
	"SetQueueAttributes":           operationOf((*store).setQueueAttributes),
	"StartMessageMoveTask":         operationOf((*store).startMessageMoveTask),
	"TagQueue":                     operationOf((*store).tagQueue),
	"UntagQueue":                   operationOf((*store).untagQueue),
}

// encodeToken makes a token of the last item on a page.
func encodeToken(last string) string { return base64.StdEncoding.EncodeToString([]byte(last)) }

func decodeToken(token string) (last string, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(token)
	return string(raw), err == nil && len(raw) > 0
}
