package queues

import (
	"encoding/json"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
)

// A Request is the input of an operation of SQS.
type Request interface {
	// Target returns the name of the queue, or "".
	Target() string
}

func (r *sendRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *sendBatchRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *receiveRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *handleRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *handleBatchRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *createQueueRequest) Target() string { return r.Name }

func (r *getQueueURLRequest) Target() string { return r.Name }

func (r *queueRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *listQueuesRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *attributesRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *tagRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *permissionRequest) Target() string { return nameInURL(r.QueueURL) }

func (r *moveTaskRequest) Target() string { return api.TrimARN(r.Source) }

func nameInURL(url string) string {
	_, name, _ := splitQueueURL(url)
	return name
}

// An Operation decodes the body of a request, and runs it.
type Operation struct {
	Decode func(body []byte) (Request, error)
	Run    func(*Store, *api.Call, Request) (any, *api.Error)
}

func operationOf[I any, P interface {
	*I
	Request
}, O any](f func(*Store, *api.Call, P) (O, *api.Error)) Operation {
	return Operation{
		func(body []byte) (Request, error) {
			r := P(new(I))
			return r, json.Unmarshal(body, r)
		},
		func(st *Store, c *api.Call, r Request) (any, *api.Error) {
			answer, err := f(st, c, r.(P))
			if err != nil {
				return nil, err
			}
			return answer, nil
		},
	}
}

// Operations are the operations of SQS by name.
var Operations = map[string]Operation{
	"AddPermission":                operationOf((*Store).addPermission),
	"CancelMessageMoveTask":        operationOf((*Store).cancelMessageMoveTask),
	"ChangeMessageVisibility":      operationOf((*Store).changeMessageVisibility),
	"ChangeMessageVisibilityBatch": operationOf((*Store).changeMessageVisibilityBatch),
	"CreateQueue":                  operationOf((*Store).createQueue),
	"DeleteMessage":                operationOf((*Store).deleteMessage),
	"DeleteMessageBatch":           operationOf((*Store).deleteMessageBatch),
	"DeleteQueue":                  operationOf((*Store).deleteQueue),
	"GetQueueAttributes":           operationOf((*Store).getQueueAttributes),
	"GetQueueUrl":                  operationOf((*Store).getQueueURL),
	"ListDeadLetterSourceQueues":   operationOf((*Store).listDeadLetterSourceQueues),
	"ListMessageMoveTasks":         operationOf((*Store).listMessageMoveTasks),
	"ListQueueTags":                operationOf((*Store).listQueueTags),
	"ListQueues":                   operationOf((*Store).listQueues),
	"PurgeQueue":                   operationOf((*Store).purgeQueue),
	"ReceiveMessage":               operationOf((*Store).receiveMessage),
	"RemovePermission":             operationOf((*Store).removePermission),
	"SendMessage":                  operationOf((*Store).sendMessage),
	"SendMessageBatch":             operationOf((*Store).sendMessageBatch),
	"SetQueueAttributes":           operationOf((*Store).setQueueAttributes),
	"StartMessageMoveTask":         operationOf((*Store).startMessageMoveTask),
	"TagQueue":                     operationOf((*Store).tagQueue),
	"UntagQueue":                   operationOf((*Store).untagQueue),
}
