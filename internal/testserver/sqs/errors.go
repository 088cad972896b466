//go:build darwin || linux

package sqs

import (
	"fmt"
	"net/http"
)

// An apiError is an error in the service's format.
type apiError struct {
	status int
	// shape is the name of the error in the JSON protocol, query its code in the query
	// protocol, which the JSON protocol sends in the header x-amzn-query-error and the
	// SDK returns as the code.
	shape, query string
	// modelled reports whether the shape is in the SDK's model, so that the SDK returns its
	// own type for it.
	modelled bool
	// receiver reports whether the service is at fault, not the request.
	receiver bool
	message  string
}

func (e *apiError) Error() string { return e.query + ": " + e.message }

// typeName returns the field __type of the JSON answer. Errors outside the model have another
// namespace, as in https://github.com/http4k/http4k/pull/1336.
func (e *apiError) typeName() string {
	if e.modelled {
		return "com.amazonaws.sqs#" + e.shape
	}
	return "com.amazon.coral.service#" + e.shape
}

func (e *apiError) fault() string {
	if e.receiver {
		return "Receiver"
	}
	return "Sender"
}

// modelled maps the errors of the SDK's model to their codes in the query protocol and to
// their status: the traits awsQueryError and httpError of the service's model.
var modelled = map[string]struct {
	query  string
	status int
}{
	"BatchEntryIdsNotDistinct":     {"AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400},
	"BatchRequestTooLong":          {"AWS.SimpleQueueService.BatchRequestTooLong", 400},
	"EmptyBatchRequest":            {"AWS.SimpleQueueService.EmptyBatchRequest", 400},
	"InvalidAddress":               {"InvalidAddress", 404},
	"InvalidAttributeName":         {"InvalidAttributeName", 400},
	"InvalidAttributeValue":        {"InvalidAttributeValue", 400},
	"InvalidBatchEntryId":          {"AWS.SimpleQueueService.InvalidBatchEntryId", 400},
	"InvalidIdFormat":              {"InvalidIdFormat", 400},
	"InvalidMessageContents":       {"InvalidMessageContents", 400},
	"InvalidSecurity":              {"InvalidSecurity", 403},
	"KmsAccessDenied":              {"KMS.AccessDeniedException", 400},
	"KmsDisabled":                  {"KMS.DisabledException", 400},
	"KmsInvalidKeyUsage":           {"KMS.InvalidKeyUsageException", 400},
	"KmsInvalidState":              {"KMS.InvalidStateException", 400},
	"KmsNotFound":                  {"KMS.NotFoundException", 400},
	"KmsOptInRequired":             {"KMS.OptInRequired", 403},
	"KmsThrottled":                 {"KMS.ThrottlingException", 400},
	"MessageNotInflight":           {"AWS.SimpleQueueService.MessageNotInflight", 400},
	"OverLimit":                    {"OverLimit", 403},
	"PurgeQueueInProgress":         {"AWS.SimpleQueueService.PurgeQueueInProgress", 403},
	"QueueDeletedRecently":         {"AWS.SimpleQueueService.QueueDeletedRecently", 400},
	"QueueDoesNotExist":            {"AWS.SimpleQueueService.NonExistentQueue", 400},
	"QueueNameExists":              {"QueueAlreadyExists", 400},
	"ReceiptHandleIsInvalid":       {"ReceiptHandleIsInvalid", 404},
	"RequestThrottled":             {"RequestThrottled", 403},
	"ResourceNotFoundException":    {"ResourceNotFoundException", 404},
	"TooManyEntriesInBatchRequest": {"AWS.SimpleQueueService.TooManyEntriesInBatchRequest", 400},
	"UnsupportedOperation":         {"AWS.SimpleQueueService.UnsupportedOperation", 400},
}

// unmodelled does the same for errors that every service may return.
var unmodelled = map[string]struct {
	query    string
	status   int
	receiver bool
}{
	"AccessDeniedException":               {"AccessDenied", 403, false},
	"ExpiredTokenException":               {"ExpiredToken", 403, false},
	"InternalFailure":                     {"InternalFailure", 500, true},
	"InvalidAction":                       {"InvalidAction", 400, false},
	"InvalidParameterValueException":      {"InvalidParameterValue", 400, false},
	"MissingAuthenticationTokenException": {"MissingAuthenticationToken", 403, false},
	"MissingRequiredParameterException":   {"MissingParameter", 400, false},
	"RequestTimeTooSkewed":                {"RequestTimeTooSkewed", 403, false},
	"SerializationException":              {"MalformedInput", 400, false},
	"ServiceUnavailable":                  {"ServiceUnavailable", 503, true},
	"ThrottlingException":                 {"ThrottlingException", 400, false},
	"UnrecognizedClientException":         {"InvalidClientTokenId", 403, false},
}

// failure returns the error of a shape. For a shape in neither table the request is at fault.
func failure(shape, format string, args ...any) *apiError {
	message := fmt.Sprintf(format, args...)
	if m, ok := modelled[shape]; ok {
		return &apiError{status: m.status, shape: shape, query: m.query, modelled: true, message: message}
	}
	if m, ok := unmodelled[shape]; ok {
		return &apiError{status: m.status, shape: shape, query: m.query, receiver: m.receiver, message: message}
	}
	return &apiError{status: http.StatusBadRequest, shape: shape, query: shape, message: message}
}

func invalidParameter(format string, args ...any) *apiError {
	return failure("InvalidParameterValueException", format, args...)
}

func missingParameter(name string) *apiError {
	return failure("MissingRequiredParameterException", "The request must contain the parameter %s.", name)
}

func queueDoesNotExist() *apiError {
	return failure("QueueDoesNotExist", "The specified queue does not exist.")
}
