package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
)

// fault is the kind of an error, which decides whether to retry.
type fault int

const (
	faultOutage   fault = iota // transient
	faultNoQueue               // a queue, or a topic, does not exist
	faultRefused               // credentials or rights do not suffice
	faultTooLarge              // of a message
	faultLockLost              // of a receipt handle
	faultOther                 // any other permanent error
)

// code returns the service's name of an error, or "".
func code(err error) string {
	if said, ok := errors.AsType[smithy.APIError](err); ok {
		return bareCode(said.ErrorCode())
	}
	return ""
}

// bareCode returns a code without its namespace: in the query protocol, and in
// batches, codes are such as "AWS.SimpleQueueService.NonExistentQueue", in JSON "QueueDoesNotExist".
func bareCode(code string) string {
	if i := strings.LastIndexAny(code, ".#"); i >= 0 && !strings.HasPrefix(code, "KMS.") {
		return code[i+1:]
	}
	return code
}

// faultOf classifies an error of a request.
func faultOf(err error) fault {
	if transport.IsPermanent(err) || errors.Is(err, core.ErrClosed) {
		return faultOther
	}
	if _, ok := errors.AsType[*message.StoreError](err); ok {
		return faultOutage
	}
	said, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return faultOfClient(err)
	}
	return faultOfCode(said.ErrorCode(), said.ErrorMessage())
}

// faultOfClient classifies an error that is not an answer of the service.
func faultOfClient(err error) fault {
	// The SDK has no types for missing credentials.
	switch text := err.Error(); {
	case strings.Contains(text, "failed to refresh cached credentials") && !isNetwork(err),
		strings.Contains(text, "failed to retrieve credentials") && !isNetwork(err),
		strings.Contains(text, "Invalid Configuration: Missing Region"),
		strings.Contains(text, "failed to sign request"):
		return faultRefused
	}
	return faultOutage
}

func isNetwork(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok || errors.Is(err, context.DeadlineExceeded)
}

func faultOfCode(code, message string) fault {
	switch code := bareCode(code); code {
	case "QueueDoesNotExist", "NonExistentQueue", "NotFound", "NotFoundException", "TopicNotFound", "ResourceNotFoundException":
		return faultNoQueue
	case "AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthorizationErrorException", "InvalidClientTokenId", "UnrecognizedClientException",
		"SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken", "MissingAuthenticationTokenException", "OptInRequired",
		"InvalidSecurity", "InvalidSecurityException", "KMS.AccessDeniedException", "KmsAccessDenied", "KMSAccessDenied", "KmsDisabled", "KMSDisabled",
		"KMS.DisabledException", "KmsNotFound", "KMSNotFound", "KMS.NotFoundException", "KmsInvalidKeyUsage", "KMS.InvalidKeyUsageException",
		"KmsOptInRequired", "KMSOptInRequired", "KMS.OptInRequired", "InvalidAddress":
		return faultRefused
	case "ExpiredToken", "ExpiredTokenException", "RequestExpired":
		return faultOutage // the SDK's chain gets new ones
	case "ReceiptHandleIsInvalid", "MessageNotInflight":
		return faultLockLost
	case "BatchRequestTooLong", "MessageTooLong":
		return faultTooLarge
	case "InvalidParameterValue", "InvalidParameterValueException", "InvalidParameter", "InvalidParameterException", "InvalidMessageContents":
		switch {
		case strings.Contains(message, "eceipt handle") || strings.Contains(message, "eceiptHandle") || strings.Contains(message, "Total VisibilityTimeout"):
			return faultLockLost
		case strings.Contains(message, "shorter than") || strings.Contains(message, "too long") || strings.Contains(message, "Message too large") || strings.Contains(message, "message size"):
			return faultTooLarge
		}
		return faultOther
	case "UnsupportedOperation", "QueueNameExists", "InvalidAttributeName", "InvalidAttributeValue", "QueueDeletedRecently",
		"MissingParameter", "ValidationError", "ValidationException", "InvalidAction", "TooManyEntriesInBatchRequest", "EmptyBatchRequest":
		if code == "QueueDeletedRecently" {
			return faultOutage // for a minute
		}
		return faultOther
	}
	return faultOutage // throttling, clocks, 5xx, and unknown codes
}

// transient reports whether a retry may help against an error.
func transient(err error) bool { return faultOf(err) == faultOutage }

// notSent reports whether an error shows that the service did not carry out the request.
func notSent(err error) bool {
	if said, ok := errors.AsType[smithy.APIError](err); ok {
		return said.ErrorFault() != smithy.FaultServer
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	return faultOfClient(err) == faultRefused
}

// explained adds to an error its meaning to a caller of the transport, and how to fix it.
func (t *Transport) explained(err error) error {
	switch faultOf(err) {
	case faultNoQueue:
		if errors.Is(err, core.ErrQueueNotFound) {
			return err
		}
		return fmt.Errorf("%w: %w; create it with Provision (Config.Provision of the endpoint), or check region and account", core.ErrQueueNotFound, err)
	case faultTooLarge:
		return fmt.Errorf("%w: %w; to fix: raise the MaximumMessageSize of the queue or topic", core.ErrTooLarge, err)
	case faultRefused:
		return fmt.Errorf("%w; sqs.Policy prints the policy that an endpoint needs, see docs/transports/sqs.md", err)
	}
	return err
}

// entryError is the service's refusal of one entry of a batch.
type entryError struct {
	code, message string
	sender        bool // the entry itself is wrong
}

func (e *entryError) Error() string {
	if e.message == "" {
		return "the service refused it: " + e.code
	}
	return "the service refused it: " + e.code + ": " + e.message
}

// ErrorCode, ErrorMessage and ErrorFault make it a smithy.APIError.
func (e *entryError) ErrorCode() string    { return e.code }
func (e *entryError) ErrorMessage() string { return e.message }
func (e *entryError) ErrorFault() smithy.ErrorFault {
	if e.sender {
		return smithy.FaultClient
	}
	return smithy.FaultServer
}

// outcome records the failed entries of a request.
func outcome[E any](entries []*batch.Entry[E], failed []types.BatchResultErrorEntry, succeeded int) {
	for _, f := range failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i >= 0 && i < len(entries) {
			entries[i].Err = &entryError{code: aws.ToString(f.Code), message: aws.ToString(f.Message), sender: f.SenderFault}
		}
	}
	if succeeded+len(failed) == len(entries) {
		return
	}
	for _, e := range entries {
		if e.Err == nil { // any of them may be a missing one
			e.Err = fmt.Errorf("the answer of the service names %d of %d entries", succeeded+len(failed), len(entries))
		}
	}
}
