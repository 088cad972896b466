//go:build darwin || linux

package sqs

import "slices"

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

func (b *batchResponse[T]) fail(id string, err *apiError) {
	b.Failed = append(b.Failed, batchError{id, err.query, err.message, !err.receiver})
}

const maxBatch = 10

// checkBatch checks the ids of a batch's entries, which the parameter names.
func checkBatch(parameter string, ids []string) *apiError {
	if len(ids) == 0 {
		return failure("EmptyBatchRequest", "There should be at least one %s in the request.", parameter)
	}
	if len(ids) > maxBatch {
		return failure("TooManyEntriesInBatchRequest", "Maximum number of entries per request are %d. You have sent %d.", maxBatch, len(ids))
	}
	for i, id := range ids {
		if !isBatchID(id) {
			return failure("InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		}
		if slices.Contains(ids[:i], id) {
			return failure("BatchEntryIdsNotDistinct", "Id %s repeated.", id)
		}
	}
	return nil
}

func isBatchID(id string) bool {
	if len(id) < 1 || len(id) > 80 {
		return false
	}
	for i := range len(id) {
		if c := id[i]; !isAlphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
