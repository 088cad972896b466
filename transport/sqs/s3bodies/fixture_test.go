package s3bodies_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/reprise-go/reprise/transport/sqs/s3bodies"
)

// The tests that need S3 itself are in internal/test. Those here need its answers at most.

const (
	accessKey = "AKIAREPRISETEST"
	secretKey = "the-secret-of-the-tests"
	token     = "the-token-of-the-tests"
	bucket    = "example-bodies"
)

// static has credentials that never change, which a careless format shows.
type static struct{ Value aws.Credentials }

// Retrieve implements aws.CredentialsProvider.
func (s static) Retrieve(context.Context) (aws.Credentials, error) { return s.Value, nil }

var credentials = static{aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey, SessionToken: token}}

// open returns a store whose requests are answered by h.
func open(t *testing.T, cfg s3bodies.Config, h http.HandlerFunc) *s3bodies.Store {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	cfg.Bucket = bucket
	cfg.AWS = &aws.Config{
		Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials,
		Retryer: func() aws.Retryer { return aws.NopRetryer{} },
	}
	store, err := s3bodies.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return store
}
