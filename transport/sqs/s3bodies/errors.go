package s3bodies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// operation is the kind of a request.
type operation int

const (
	put operation = iota
	get
)

// right returns the right that a request needs.
func (o operation) right() string {
	if o == put {
		return "s3:PutObject"
	}
	return "s3:GetObject"
}

// errTimeout is the cause of a context that ended because of Config.Timeout.
var errTimeout = errors.New("Config.Timeout has passed")

// explained adds to an error of the SDK its meaning, and how to fix it.
func (s *Store) explained(ctx context.Context, err error, op operation) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	code := ""
	if said, ok := errors.AsType[smithy.APIError](err); ok {
		code = said.ErrorCode()
	}
	if op == get && (code == "NoSuchKey" || code == "NoSuchVersion" || code == "KeyTooLongError" || code == "InvalidURI") {
		return fmt.Errorf("%w: the object does not exist; check that the sender uses the same bucket, and that the bucket's lifecycle rule keeps objects longer than the queues keep messages: %w", fs.ErrNotExist, err)
	}
	if meaning := s.meaning(code, err, op); meaning != "" {
		return fmt.Errorf("%s: %w", meaning, err)
	}
	if errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("it took longer than Config.Timeout, %v; S3 or the network is slow or down, or Config.Timeout is too short for a body of this size: %w", s.cfg.Timeout, err)
	}
	return err
}

// meaning returns the meaning of an error code and how to fix it; "" if the text of the error says enough.
func (s *Store) meaning(code string, err error, op operation) string {
	switch code {
	case "NoSuchBucket":
		return fmt.Sprintf("the bucket does not exist; create it in %s, or correct Config.Bucket", s.cfg.AWS.Region)
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden":
		text := fmt.Sprintf("access is denied; allow %s on the objects of the bucket", op.right())
		if op == get {
			text += ", and s3:ListBucket on the bucket, without which S3 gives this answer for a missing object too"
		}
		return text + "; for a bucket that is encrypted with a key of AWS KMS, also allow kms:GenerateDataKey and kms:Decrypt on the key"
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity", "NotSignedUp":
		return "S3 refused the credentials; correct those in Config.AWS, or those that the SDK finds in the environment"
	case "ExpiredToken", "RequestExpired", "RequestTimeTooSkewed":
		return "the credentials have expired, or the machine's clock is wrong"
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "IncorrectEndpoint":
		return fmt.Sprintf("the bucket is not in %s; set the region of Config.AWS to that of the bucket", s.cfg.AWS.Region)
	case "InvalidObjectState":
		return "the object is in an archive class; restore it, and let the bucket's lifecycle rule expire bodies instead of archiving them"
	}
	switch {
	case strings.HasPrefix(code, "KMS."), strings.HasPrefix(code, "Kms"):
		return "AWS KMS refused the key; check Config.KMSKey, that the key is enabled and in the bucket's region, and that the role may use kms:GenerateDataKey and kms:Decrypt"
	case isThrottling(code, err):
		return "S3 limits the rate of requests; it takes about 3,500 Put and 5,500 Get per second and prefix, and less while it scales up: use Config.KeyPrefix to separate applications, or send fewer large messages at a time"
	}
	return ""
}

func isThrottling(code string, err error) bool {
	switch code {
	case "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException", "BandwidthLimitExceeded":
		return true
	}
	answer, ok := errors.AsType[*awshttp.ResponseError](err)
	return ok && answer.HTTPStatusCode() == http.StatusTooManyRequests
}
