package api

import "slices"

const MaxBatch = 10

// CheckBatch checks the ids of a batch's entries, which the parameter names.
func CheckBatch(parameter string, ids []string) *Error {
	if len(ids) == 0 {
		return Failure("EmptyBatchRequest", "There should be at least one %s in the request.", parameter)
	}
	if len(ids) > MaxBatch {
		return Failure("TooManyEntriesInBatchRequest", "Maximum number of entries per request are %d. You have sent %d.", MaxBatch, len(ids))
	}
	for i, id := range ids {
		if !IsBatchID(id) {
			return Failure("InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		}
		if slices.Contains(ids[:i], id) {
			return Failure("BatchEntryIdsNotDistinct", "Id %s repeated.", id)
		}
	}
	return nil
}
