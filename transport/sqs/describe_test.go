package sqs_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqs"
)

func TestDescribe_EndpointOfTheRegion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		region, base string
		want         core.TransportInfo
	}{
		{"eu-west-1", "", core.TransportInfo{System: "aws_sqs", ServerAddress: "sqs.eu-west-1.amazonaws.com", ServerPort: 443}},
		{"cn-north-1", "", core.TransportInfo{System: "aws_sqs", ServerAddress: "sqs.cn-north-1.amazonaws.com.cn", ServerPort: 443}},
		{"eu-west-1", "http://user:hunter2@localhost:9324/x?y=z", core.TransportInfo{System: "aws_sqs", ServerAddress: "localhost", ServerPort: 9324}},
		{"eu-west-1", "http://localhost", core.TransportInfo{System: "aws_sqs", ServerAddress: "localhost", ServerPort: 80}},
		{"eu-west-1", "://", core.TransportInfo{System: "aws_sqs"}},
	} {
		config := aws.Config{Region: c.region}
		if c.base != "" {
			config.BaseEndpoint = &c.base
		}
		transport, err := sqs.New(sqs.Config{AWS: &config})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { transport.Close(context.Background()) })
		if got := transport.Describe(); got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.region, c.base, got, c.want)
		}
	}
}
