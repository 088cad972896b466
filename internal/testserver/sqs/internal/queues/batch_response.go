package queues

import "github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"

type batchResponse[T any] struct {
	Successful []T          `json:"Successful"`
	Failed     []batchError `json:"Failed"`
}

// A batchError is the failure of one entry of a batch.
type batchError struct {
	ID          string `json:"Id"`
	Code        string `json:"Code"`
	Message     string `json:"Message,omitempty"`
	SenderFault bool   `json:"SenderFault"`
}

func newBatchResponse[T any](entries int) *batchResponse[T] {
	return &batchResponse[T]{make([]T, 0, entries), []batchError{}}
}

func (b *batchResponse[T]) fail(id string, err *api.Error) {
	b.Failed = append(b.Failed, batchError{id, err.Query, err.Message, !err.Receiver})
}
