package s3bodies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/reprise-go/reprise/transport/sqs"
	"github.com/reprise-go/reprise/transport/sqs/internal/sdkclient"
)

// Store stores bodies in a bucket. It implements [sqs.Bodies], and is safe for concurrent use. It needs no Close: idle
// connections end after 90 seconds, or as the HTTP client of Config.AWS says.
type Store struct {
	cfg *Config // a pointer, which fmt does not follow: it has credentials
	s3  *s3.Client
}

var _ sqs.Bodies = (*Store)(nil)

// idleConnections is how many connections to the bucket stay open: the SDK's own client keeps ten.
const idleConnections = 100

// New returns a store. It sends no request to S3. Its error lists all mistakes in cfg. If
// Config.AWS is nil, it loads the SDK's configuration from files and the environment.
func New(cfg Config) (*Store, error) {
	errs := []error{cfg.complete()}
	var shared aws.Config
	if cfg.AWS != nil {
		shared = cfg.AWS.Copy()
	} else {
		var err error
		if shared, err = config.LoadDefaultConfig(context.Background()); err != nil {
			errs = append(errs, fmt.Errorf("load the SDK's configuration: %w", err))
		}
	}
	if shared.Region == "" && errors.Join(errs[1:]...) == nil {
		errs = append(errs, errors.New("there is no region; set the bucket's region in Config.AWS, in AWS_REGION in the environment, or in the SDK's configuration file"))
	}
	if shared.Region != "" && !sdkclient.IsRegion(shared.Region) {
		errs = append(errs, errors.New("the region must be a name such as eu-west-1; correct it in Config.AWS, in AWS_REGION or in the SDK's configuration file"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("s3bodies: new: %w", err)
	}
	if shared.HTTPClient == nil {
		shared.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
			tr.MaxIdleConnsPerHost, tr.MaxIdleConns = idleConnections, 2*idleConnections
		})
	}
	// These are the defaults of config.LoadDefaultConfig, which an aws.Config that a program fills in does not have.
	if shared.RequestChecksumCalculation == aws.RequestChecksumCalculationUnset {
		shared.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
	}
	if shared.ResponseChecksumValidation == aws.ResponseChecksumValidationUnset {
		shared.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenSupported
	}
	cfg.AWS = &shared
	client := s3.NewFromConfig(shared, func(o *s3.Options) {
		o.UsePathStyle = cfg.PathStyle
		o.DisableLogOutputChecksumValidationSkipped = true // objects of other senders may have none
	})
	if base := client.Options().BaseEndpoint; base != nil && sdkclient.EndpointURL(*base) == nil {
		return nil, errors.New("s3bodies: new: the endpoint must be a URL such as https://s3.example.com, with a path or without, but without user, query and fragment, which would be in errors; " +
			"correct BaseEndpoint in Config.AWS, AWS_ENDPOINT_URL, or endpoint_url in the SDK's configuration file")
	}
	return &Store{cfg: &cfg, s3: client}, nil
}

// String returns the bucket, the key prefix and the region.
func (s *Store) String() string {
	return fmt.Sprintf("s3bodies (bucket %s, prefix %q, %s)", s.cfg.Bucket, s.cfg.KeyPrefix, s.cfg.AWS.Region)
}

// GoString returns the same as [Store.String].
func (s *Store) GoString() string { return s.String() }

// BodyKey implements [sqs.Bodies]: messages carry the whole key of the object, as those of NServiceBus do.
func (s *Store) BodyKey(id string) string {
	if s.cfg.KeyPrefix == "" {
		return id
	}
	return s.cfg.KeyPrefix + "/" + id
}

// Put implements [sqs.Bodies]: it stores a body as one object, which exists when Put returns nil. It only reads body, and
// does not keep it. After an error the object may exist.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeout, errTimeout)
	defer cancel()
	in := &s3.PutObjectInput{
		Bucket: &s.cfg.Bucket, Key: &key, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentType: aws.String("application/octet-stream"),
	}
	if s.cfg.KMSKey != "" {
		in.ServerSideEncryption, in.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, &s.cfg.KMSKey
	}
	if _, err := s.s3.PutObject(ctx, in); err != nil {
		return fmt.Errorf("s3bodies: put %q into the bucket %q: %w", key, s.cfg.Bucket, s.explained(ctx, err, put))
	}
	return nil
}

// Get implements [sqs.Bodies]: it returns a body of at most limit bytes, which the caller may keep and change.
// The error matches [fs.ErrNotExist] if S3 says that the object does not exist, if it is larger than limit, and if its key
// is outside Config.KeyPrefix and Config.ReadPrefixes or cannot be one; then there is no request. All other
// errors, including those of a missing bucket and of denied access, do not match it.
func (s *Store) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Timeout, errTimeout)
	defer cancel()
	body, err := s.get(ctx, key, int64(limit))
	if err != nil {
		return nil, fmt.Errorf("s3bodies: get %.200q from the bucket %q: %w", key, s.cfg.Bucket, err)
	}
	return body, nil
}

func (s *Store) get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if !s.cfg.mayRead(key) {
		return nil, fmt.Errorf("the key is not below Config.KeyPrefix, which is %q, or Config.ReadPrefixes, which are %q; add the prefix of the sender if it may store bodies: %w", s.cfg.KeyPrefix, s.cfg.ReadPrefixes, fs.ErrNotExist)
	}
	out, err := s.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.cfg.Bucket, Key: &key})
	if err != nil {
		return nil, s.explained(ctx, err, get)
	}
	defer func() { _ = out.Body.Close() }() // it was read to its end, or has failed
	size := int64(-1)
	if out.ContentLength != nil {
		size = *out.ContentLength
	}
	if size > limit {
		return nil, fmt.Errorf("the object has %d bytes, more than the %d of the largest message; raise sqs.Config.MaxMessageBytes if senders have larger ones: %w", size, limit, fs.ErrNotExist)
	}
	body, err := read(out.Body, size, limit)
	if err != nil {
		return nil, s.explained(ctx, fmt.Errorf("read the object: %w", err), get)
	}
	return body, nil
}

// checkKey returns an error for a key that no object can have.
func checkKey(key string) error {
	var wrong string
	switch {
	case key == "":
		wrong = "the key is empty"
	case len(key) > maxKeyBytes:
		wrong = fmt.Sprintf("the key has %d bytes, and S3 allows %d", len(key), maxKeyBytes)
	case !utf8.ValidString(key):
		wrong = "the key is not UTF-8"
	case strings.ContainsRune(key, 0):
		wrong = "the key contains a zero byte"
	case hasDotSegment(key):
		wrong = `the key has a part "." or ".."`
	default:
		return nil
	}
	return fmt.Errorf("%s, so no object has it: %w", wrong, fs.ErrNotExist)
}

// read reads an object of at most limit bytes. size is its size, or -1 if that is unknown.
// It reads to the end, where net/http compares the size and the SDK the checksum.
func read(r io.Reader, size, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if size >= 0 && size <= math.MaxInt-bytes.MinRead {
		b.Grow(int(size) + bytes.MinRead) // room for the read that finds the end
	}
	n, err := b.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, err
	case n > limit:
		return nil, fmt.Errorf("the object has more than the %d bytes of the largest message; raise sqs.Config.MaxMessageBytes if senders have larger ones: %w", limit, fs.ErrNotExist)
	}
	return b.Bytes(), nil
}
