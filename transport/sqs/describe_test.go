package sqs_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
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
		{"eu-west-1", "http://localhost:9324/x", core.TransportInfo{System: "aws_sqs", ServerAddress: "localhost", ServerPort: 9324}},
		{"eu-west-1", "http://localhost", core.TransportInfo{System: "aws_sqs", ServerAddress: "localhost", ServerPort: 80}},
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

// An error of the SDK shows the endpoint of a request, and an unknown region.
func TestNew_RefusesEndpointsAndRegionsWithOtherParts(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for region, bases := range map[string][]string{
		"eu-west-1": {
			"://", "localhost:4566", "ftp://localhost", "http://", "http://user:" + secret + "@localhost", "https://localhost/?sig=" + secret,
			"https://localhost#" + secret, "https://localhost/;key=" + secret, "https://localhost;key=" + secret, "Endpoint=sb://" + secret, secret,
		},
		"key=" + secret: {""},
	} {
		for _, base := range bases {
			config := aws.Config{Region: region}
			if base != "" {
				config.BaseEndpoint = &base
			}
			cfg := sqs.Config{AWS: &config}
			_, err := sqs.New(cfg)
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("region %s, endpoint %s: %v", region, base, err)
			}
			if text := cfg.String(); strings.Contains(text, secret) {
				t.Errorf("region %s, endpoint %s: the configuration is shown as %s", region, base, text)
			}
		}
	}
}

func TestWarnings_PlainEndpoint(t *testing.T) {
	for base, want := range map[string]string{
		"": "", "https://queues.example.com": "", "http://localhost:4566": "", "http://127.0.0.1": "", "http://[::1]:4566": "",
		"http://queues.example.com:4566": `"queues.example.com:4566"`,
		"HTTP://10.0.0.7:9324":           `"10.0.0.7:9324"`,
	} {
		config := aws.Config{Region: "eu-west-1"}
		if base != "" {
			config.BaseEndpoint = &base
		}
		transport, err := sqs.New(sqs.Config{AWS: &config})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { transport.Close(context.Background()) })
		wantWarning(t, base, transport, want)
	}
}

// The SDK's configuration file can name an endpoint for one service.
func TestWarnings_PlainEndpointOfOneService(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("[default]\nregion = eu-west-1\nservices = own\n[services own]\nsns =\n  endpoint_url = http://topics.example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CONFIG_FILE", file)
	t.Setenv("AWS_ENDPOINT_URL_SQS", "http://queues.example.com")
	transport, err := sqs.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close(context.Background()) })
	wantWarning(t, "AWS_ENDPOINT_URL_SQS and a configuration file", transport, `"queues.example.com"`, `"topics.example.com"`)
}

// wantWarning verifies that a transport has a warning for each host, or none, and returns each once.
func wantWarning(t *testing.T, base string, transport core.Describer, hosts ...string) {
	t.Helper()
	texts := transport.Warnings()
	if hosts[0] == "" {
		hosts = nil
	}
	if len(texts) != len(hosts) {
		t.Fatalf("%s: the warnings are %q", base, texts)
	}
	for i, host := range hosts {
		if !strings.Contains(texts[i], host) || !strings.Contains(texts[i], "https://") || strings.Contains(texts[i], "hunter2") {
			t.Errorf("%s: the warning is %q", base, texts[i])
		}
	}
	if repeated := transport.Warnings(); len(repeated) > 0 {
		t.Errorf("%s: the warnings are repeated: %q", base, repeated)
	}
}
