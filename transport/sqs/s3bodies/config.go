package s3bodies

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/reprise-go/reprise/transport/sqs/internal/sdkclient"
)

// Config says where bodies are stored, and how. Bucket is required. The senders and receivers of a message need
// the same Bucket, and should have the same KeyPrefix.
type Config struct {
	// AWS is the SDK's configuration: region, credentials, endpoint, retryer, HTTP client. New copies it. By default
	// New loads it from the environment, the user's files and the machine's metadata (config.LoadDefaultConfig).
	// The region has to be that of the bucket. Without a retryer it is the SDK's standard one, which repeats a
	// request twice.
	AWS *aws.Config

	// Bucket is the name of the bucket, or the ARN of an access point. New does not create it.
	Bucket string

	// KeyPrefix is the part of the keys before the last "/", for lifecycle rules and policies: "shop" gives keys
	// such as "shop/4WB7EN2QXH5YSKD3TJA6RCVGMP". It has letters, digits and !-_.*'() in parts that are separated
	// by "/", and no "/" at its ends. By default keys have no prefix.
	KeyPrefix string

	// ReadPrefixes are the values of KeyPrefix of other senders, such as endpoints of NServiceBus. Get reads only objects
	// below KeyPrefix and ReadPrefixes, because a message could name any object that the role may read; [Policy] allows
	// the same ones. "" stands for all objects of the bucket, also as the KeyPrefix. By default there are none.
	ReadPrefixes []string

	// KMSKey encrypts new objects with a key of AWS KMS (SSE-KMS): its id, its alias or its ARN. The default is
	// the bucket's own encryption. It is not needed to read. A bucket key, which makes fewer requests to AWS KMS, is a
	// property of the bucket.
	KMSKey string

	// PathStyle has requests name the bucket in the path instead of the host name, which many S3-compatible
	// services need. Endpoints that are IP addresses always get it.
	PathStyle bool

	// Timeout limits each Put and each Get, with the SDK's retries and the transfer of the body. It must be
	// positive, or 0 for the default of 1 minute; set more for bodies of several hundred MiB. The adapter also ends a Get
	// when three quarters of sqs.Config.VisibilityTimeout have passed since it received the message.
	Timeout time.Duration
}

const (
	defaultTimeout = time.Minute
	maxKeyBytes    = 1024 // the service's limit
	maxIDBytes     = 64   // of the ids that the adapter makes keys of
	maxPrefixBytes = maxKeyBytes - 1 - maxIDBytes
)

var (
	bucketName   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixFormat = regexp.MustCompile(`^[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*$`)
	kmsKeyFormat = regexp.MustCompile(`^[A-Za-z0-9:/_-]+$`)
)

// complete checks the configuration and sets the defaults. Its error lists all mistakes.
func (c *Config) complete() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Bucket == "":
		wrong("Config.Bucket is empty; set it to the name of the bucket for bodies")
	case !strings.HasPrefix(c.Bucket, "arn:") && !bucketName.MatchString(c.Bucket):
		wrong("Config.Bucket is %q, which cannot be the name of a bucket: use 3 to 63 lower-case letters, digits, dots and hyphens, or the ARN of an access point", c.Bucket)
	}
	if err := checkPrefix(c.KeyPrefix); err != nil {
		wrong("Config.KeyPrefix %w", err)
	}
	for _, prefix := range c.ReadPrefixes {
		if err := checkPrefix(prefix); err != nil {
			wrong("Config.ReadPrefixes: the prefix %w", err)
		}
	}
	if c.KMSKey != "" && !kmsKeyFormat.MatchString(c.KMSKey) {
		wrong("Config.KMSKey is %q, which cannot be the id, the alias or the ARN of a key of AWS KMS", c.KMSKey)
	}
	switch {
	case c.Timeout == 0:
		c.Timeout = defaultTimeout
	case c.Timeout < 0:
		wrong("Config.Timeout is %v, but must be positive, or 0 for the default of %v", c.Timeout, defaultTimeout)
	}
	return errors.Join(errs...)
}

// checkPrefix returns an error for a prefix that keys cannot have. It may be empty.
func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
	case !prefixFormat.MatchString(prefix):
		return fmt.Errorf("is %q; use letters, digits and !-_.*'() in parts that are separated by one \"/\", without a \"/\" at its ends", prefix)
	case hasDotSegment(prefix):
		return fmt.Errorf("is %q; remove the part that is \".\" or \"..\"", prefix)
	case len(prefix) > maxPrefixBytes:
		return fmt.Errorf("has %d bytes, but may have at most %d", len(prefix), maxPrefixBytes)
	}
	return nil
}

// mayRead reports whether an object of this key may be read.
func (c *Config) mayRead(key string) bool {
	return slices.ContainsFunc(c.readPrefixes(), func(prefix string) bool {
		return prefix == "" || strings.HasPrefix(key, prefix+"/")
	})
}

// readPrefixes returns the prefixes of the objects that may be read.
func (c *Config) readPrefixes() []string { return append([]string{c.KeyPrefix}, c.ReadPrefixes...) }

// hasDotSegment reports whether a part of a path is "." or "..", which HTTP clients and proxies resolve.
func hasDotSegment(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// String returns the configuration without credentials. fmt, slog and encoding/json show a Config like this, also
// within other values. fmt cannot do so for an unexported field of another struct: give that struct a String method.
func (c Config) String() string { return fmt.Sprintf("%+v", c.shown()) }

// GoString returns the same as [Config.String].
func (c Config) GoString() string { return c.String() }

// LogValue implements [slog.LogValuer] with the text of [Config.String].
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON writes the configuration as [Config.String] shows it: of AWS only the region.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.shown()) }

// shownConfig has the fields of a Config that are not secret.
type shownConfig struct {
	Region, Bucket, KeyPrefix string
	ReadPrefixes              []string
	KMSKey                    string
	PathStyle                 bool
	Timeout                   time.Duration
}

func (c Config) shown() shownConfig {
	s := shownConfig{
		Bucket: c.Bucket, KeyPrefix: c.KeyPrefix, ReadPrefixes: c.ReadPrefixes, KMSKey: c.KMSKey,
		PathStyle: c.PathStyle, Timeout: c.Timeout,
	}
	if c.AWS != nil {
		s.Region = sdkclient.ShownRegion(c.AWS.Region)
	}
	return s
}
