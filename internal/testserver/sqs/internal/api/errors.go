// Package api has the parts of the protocols of SQS and SNS that both services share: calls, errors, forms, batches, pages and the
// syntax of names.
package api

import (
	"fmt"
	"net/http"
)

// An Error is an error in the service's format.
type Error struct {
	Status int
	// Shape is the name of the error in the JSON protocol, Query its code in the query
	// protocol, which the JSON protocol sends in the header x-amzn-query-error and the
	// SDK returns as the code.
	Shape, Query string
	// modelled reports whether the shape is in the SDK's model, so that the SDK returns its
	// own type for it.
	modelled bool
	// Receiver reports whether the service is at fault, not the request.
	Receiver bool
	Message  string
}

func (e *Error) Error() string { return e.Query + ": " + e.Message }

// TypeName returns the field __type of the JSON answer. Errors outside the model have another
// namespace, as in https://github.com/http4k/http4k/pull/1336.
func (e *Error) TypeName() string {
	if e.modelled {
		return "com.amazonaws.sqs#" + e.Shape
	}
	return "com.amazon.coral.service#" + e.Shape
}

// Fault returns whose fault the error is, Sender or Receiver.
func (e *Error) Fault() string {
	if e.Receiver {
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

// Failure returns the error of a shape. For a shape in neither table the request is at fault.
func Failure(shape, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	if m, ok := modelled[shape]; ok {
		return &Error{Status: m.status, Shape: shape, Query: m.query, modelled: true, Message: message}
	}
	if m, ok := unmodelled[shape]; ok {
		return &Error{Status: m.status, Shape: shape, Query: m.query, Receiver: m.receiver, Message: message}
	}
	return &Error{Status: http.StatusBadRequest, Shape: shape, Query: shape, Message: message}
}

// InvalidParameter returns the error of a parameter with an invalid value.
func InvalidParameter(format string, args ...any) *Error {
	return Failure("InvalidParameterValueException", format, args...)
}

// MissingParameter returns the error of a parameter that is missing.
func MissingParameter(name string) *Error {
	return Failure("MissingRequiredParameterException", "The request must contain the parameter %s.", name)
}
