package api

// SNSFailure returns an error of SNS.
func SNSFailure(code string, status int, message string) *Error {
	return &Error{Status: status, Shape: code, Query: code, Message: message}
}

// InvalidSNSParameter returns the error of a parameter of SNS with an invalid value.
func InvalidSNSParameter(message string) *Error {
	return SNSFailure("InvalidParameter", 400, "Invalid parameter: "+message)
}

// snsCodes are SNS's names for errors that faults return, by their shapes.
var snsCodes = map[string]struct {
	code   string
	status int
}{
	"ThrottlingException":   {"Throttling", 400},
	"RequestThrottled":      {"Throttled", 429},
	"KmsThrottled":          {"KMSThrottling", 400},
	"KmsAccessDenied":       {"KMSAccessDenied", 400},
	"KmsDisabled":           {"KMSDisabled", 400},
	"KmsInvalidState":       {"KMSInvalidState", 400},
	"KmsNotFound":           {"KMSNotFound", 400},
	"KmsOptInRequired":      {"KMSOptInRequired", 403},
	"AccessDeniedException": {"AuthorizationError", 403},
	"InternalFailure":       {"InternalError", 500},
	"QueueDoesNotExist":     {"NotFound", 404},
}

// ForSNS returns SNS's equivalent of the error.
func (e *Error) ForSNS() *Error {
	if s, ok := snsCodes[e.Shape]; ok {
		other := *e
		other.Query, other.Status = s.code, s.status
		return &other
	}
	return e
}
