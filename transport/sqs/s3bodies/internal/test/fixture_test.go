package s3bodies_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/reprise-go/reprise/transport/sqs/s3bodies"
)

const (
	accessKey = "AKIAREPRISETEST"
	secretKey = "the-secret-of-the-tests"
	token     = "the-token-of-the-tests"
	bucket    = "example-bodies"
)

// A bucketServer is a server of S3 with a bucket.
type bucketServer struct {
	url     string
	backend *s3mem.Backend

	mu       sync.Mutex
	requests []*http.Request
	replace  http.HandlerFunc // answers in place of S3
}

func startBucket(t *testing.T) *bucketServer {
	t.Helper()
	s := &bucketServer{backend: s3mem.New()}
	if err := s.backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	handler := gofakes3.New(s.backend, gofakes3.WithLogger(gofakes3.StdLog(log.New(io.Discard, "", 0)))).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r)
		replace := s.replace
		s.mu.Unlock()
		if replace != nil {
			replace(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// answer has all requests answered by h, or by S3 again if h is nil.
func (s *bucketServer) answer(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace = h
}

// fail has all requests answered with an error of S3.
func (s *bucketServer) fail(status int, code, message string) {
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message><RequestId>1</RequestId></Error>", code, message)
	})
}

// received returns the requests so far.
func (s *bucketServer) received() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// keys returns the keys of all objects, sorted.
func (s *bucketServer) keys(t *testing.T) []string {
	t.Helper()
	list, err := s.backend.ListBucket(bucket, nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{}
	for _, o := range list.Contents {
		keys = append(keys, o.Key)
	}
	slices.Sort(keys)
	return keys
}

// put stores an object as another program would.
func (s *bucketServer) put(t *testing.T, key, body string) {
	t.Helper()
	_, err := s.backend.PutObject(bucket, key, map[string]string{}, strings.NewReader(body), int64(len(body)), nil)
	if err != nil {
		t.Fatal(err)
	}
}

// configured returns a configuration that reaches the server, whose SDK repeats nothing.
func (s *bucketServer) configured(cfg s3bodies.Config) s3bodies.Config {
	cfg.AWS = &aws.Config{
		Region: "us-east-1", BaseEndpoint: &s.url,
		Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, token),
		Retryer:     func() aws.Retryer { return retry.AddWithMaxAttempts(retry.NewStandard(), 1) },
	}
	if cfg.Bucket == "" {
		cfg.Bucket = bucket
	}
	return cfg
}

func (s *bucketServer) open(t *testing.T, cfg s3bodies.Config) *s3bodies.Store {
	t.Helper()
	store, err := s3bodies.New(s.configured(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func hasNoSecret(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{secretKey, token, accessKey} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %q", secret, text)
		}
	}
}
