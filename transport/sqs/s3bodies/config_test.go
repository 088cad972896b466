package s3bodies_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/reprise-go/reprise/transport/sqs/s3bodies"
)

func TestNew_RefusesConfig(t *testing.T) {
	t.Parallel()
	region := &aws.Config{Region: "eu-west-1"}
	for name, tt := range map[string]struct {
		cfg  s3bodies.Config
		want []string // in the error; none: the configuration is correct
	}{
		"correct":         {cfg: s3bodies.Config{AWS: region, Bucket: "b-1.x", KeyPrefix: "a/b_c.d", ReadPrefixes: []string{"", "nsb"}, KMSKey: "alias/x", Timeout: 1}},
		"an access point": {cfg: s3bodies.Config{AWS: region, Bucket: "arn:aws:s3:us-west-2:123456789012:accesspoint/bodies"}},
		"everything wrong": {
			cfg:  s3bodies.Config{AWS: &aws.Config{}, Bucket: "Bodies", KeyPrefix: "/shop/", ReadPrefixes: []string{"x", "a//b", "a/.."}, KMSKey: "two words", Timeout: -time.Second},
			want: []string{`Config.Bucket is "Bodies"`, `Config.KeyPrefix is "/shop/"`, `Config.ReadPrefixes: the prefix is "a//b"`, `Config.ReadPrefixes: the prefix is "a/.."`, `Config.KMSKey is "two words"`, "Config.Timeout is -1s", "no region"},
		},
		"no bucket":                      {cfg: s3bodies.Config{AWS: region}, want: []string{"Config.Bucket is empty"}},
		"a short name of a bucket":       {cfg: s3bodies.Config{AWS: region, Bucket: "ab"}, want: []string{"Config.Bucket"}},
		"a quotation mark in the prefix": {cfg: s3bodies.Config{AWS: region, Bucket: bucket, KeyPrefix: `a"b`}, want: []string{"Config.KeyPrefix"}},
		"dots in the prefix":             {cfg: s3bodies.Config{AWS: region, Bucket: bucket, KeyPrefix: "a/../b"}, want: []string{`remove the part that is "." or ".."`}},
		"a long prefix":                  {cfg: s3bodies.Config{AWS: region, Bucket: bucket, KeyPrefix: strings.Repeat("a", 960)}, want: []string{"has 960 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := s3bodies.New(tt.cfg)
			if (err == nil) != (len(tt.want) == 0) {
				t.Fatalf("the error is %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
		})
	}
}

// Without Config.AWS the SDK's environment counts.
func TestNew_LoadsTheEnvironment(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_REGION", "eu-north-1")
	store, err := s3bodies.New(s3bodies.Config{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(store.String(), "eu-north-1") {
		t.Errorf("the store is %v, want the region eu-north-1", store)
	}
}

// An error of the SDK shows the endpoint of a request, and a wrong region.
func TestNew_RefusesEndpointsAndRegionsWithOtherParts(t *testing.T) {
	t.Parallel()
	for region, bases := range map[string][]string{
		"eu-west-1": {
			"://", "localhost:4566", "http://", "http://user:" + secretKey + "@localhost", "https://localhost/?sig=" + secretKey,
			"https://localhost#" + secretKey, "https://localhost/;key=" + secretKey, "Endpoint=sb://" + secretKey,
		},
		"key=" + secretKey: {"http://localhost"},
	} {
		for _, base := range bases {
			cfg := s3bodies.Config{AWS: &aws.Config{Region: region, Credentials: credentials, BaseEndpoint: &base}, Bucket: bucket}
			_, err := s3bodies.New(cfg)
			if err == nil {
				t.Errorf("region %s, endpoint %s: nil", region, base)
				continue
			}
			hasNoSecret(t, err.Error())
			hasNoSecret(t, cfg.String())
		}
	}
}

func TestConfig_ShowsNoSecrets(t *testing.T) {
	t.Parallel()
	cfg := s3bodies.Config{
		AWS: &aws.Config{
			Region: "eu-west-1", Credentials: credentials,
		},
		Bucket: bucket, KeyPrefix: "shop",
	}
	store, err := s3bodies.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := struct {
		C s3bodies.Config
		S *s3bodies.Store
	}{cfg, store}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("m", "cfg", cfg, "store", store)
	encoded, err := json.Marshal(wrapped)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{logged.String(), string(encoded)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		texts = append(texts, fmt.Sprintf(verb, cfg), fmt.Sprintf(verb, &cfg), fmt.Sprintf(verb, store), fmt.Sprintf(verb, wrapped))
	}
	for _, text := range texts {
		hasNoSecret(t, text)
	}
	for call, got := range map[string]string{
		"%#v of a Config": fmt.Sprintf("%#v", cfg), "the LogValue of a Config": cfg.LogValue().String(),
	} {
		if got != cfg.String() {
			t.Errorf("%s is %q, want %q", call, got, cfg.String())
		}
	}
	if got := fmt.Sprintf("%#v", store); got != store.String() {
		t.Errorf("%%#v of a Store is %q, want %q", got, store.String())
	}
	for _, want := range []string{"eu-west-1", bucket, "shop"} {
		if !strings.Contains(cfg.String(), want) || !strings.Contains(string(encoded), want) {
			t.Errorf("%q is not in %q and %q", want, cfg.String(), encoded)
		}
	}
}

func hasNoSecret(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{secretKey, token, accessKey} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %q", secret, text)
		}
	}
}
