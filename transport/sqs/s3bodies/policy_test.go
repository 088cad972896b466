package s3bodies_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/sqs/s3bodies"
)

// allowed returns the resources of each action of a policy.
func allowed(t *testing.T, policy string) map[string]string {
	t.Helper()
	var p struct {
		Version   string
		Statement []struct {
			Sid, Effect      string
			Action, Resource []string
		}
	}
	if err := json.Unmarshal([]byte(policy), &p); err != nil {
		t.Fatal(err)
	}
	if p.Version != "2012-10-17" {
		t.Errorf("the version is %q", p.Version)
	}
	resources := map[string]string{}
	for _, s := range p.Statement {
		if s.Effect != "Allow" {
			t.Errorf("the effect of %s is %s", s.Sid, s.Effect)
		}
		for _, action := range s.Action {
			resources[action] += strings.Join(s.Resource, " ")
		}
	}
	return resources
}

func TestPolicy_LeastActions(t *testing.T) {
	t.Parallel()
	const accessPoint = "arn:aws:s3:eu-central-1:123456789012:accesspoint/bodies"
	const key = "arn:aws:kms:eu-central-1:123456789012:key/1234"
	for name, c := range map[string]struct {
		cfg      s3bodies.Config
		endpoint s3bodies.PolicyFor
		want     map[string]string
	}{
		"whole bucket": {
			s3bodies.Config{Bucket: "example"}, s3bodies.PolicyFor{},
			map[string]string{"s3:PutObject": "arn:aws:s3:::example/*", "s3:GetObject": "arn:aws:s3:::example/*", "s3:ListBucket": "arn:aws:s3:::example"},
		},
		"sends only": {
			s3bodies.Config{Bucket: "example", KeyPrefix: "shop"}, s3bodies.PolicyFor{SendsOnly: true, Partition: "aws-cn"},
			map[string]string{"s3:PutObject": "arn:aws-cn:s3:::example/shop/*"},
		},
		"other senders": {
			s3bodies.Config{Bucket: "example", KeyPrefix: "shop", ReadPrefixes: []string{"billing/eu"}}, s3bodies.PolicyFor{},
			map[string]string{
				"s3:PutObject": "arn:aws:s3:::example/shop/*", "s3:GetObject": "arn:aws:s3:::example/shop/* arn:aws:s3:::example/billing/eu/*",
				"s3:ListBucket": "arn:aws:s3:::example",
			},
		},
		"access point and key": {
			s3bodies.Config{Bucket: accessPoint, KeyPrefix: "shop", KMSKey: key}, s3bodies.PolicyFor{},
			map[string]string{
				"s3:PutObject": accessPoint + "/object/shop/*", "s3:GetObject": accessPoint + "/object/shop/*", "s3:ListBucket": accessPoint,
				"kms:GenerateDataKey": key, "kms:Decrypt": key,
			},
		},
		"key of a sender": {
			s3bodies.Config{Bucket: "example", KMSKey: key}, s3bodies.PolicyFor{SendsOnly: true},
			map[string]string{"s3:PutObject": "arn:aws:s3:::example/*", "kms:GenerateDataKey": key},
		},
		"alias of a key, which no policy can name": {
			s3bodies.Config{Bucket: "example", KMSKey: "alias/messages"}, s3bodies.PolicyFor{SendsOnly: true},
			map[string]string{"s3:PutObject": "arn:aws:s3:::example/*"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy, err := s3bodies.Policy(c.cfg, c.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			if got := allowed(t, policy); !maps.Equal(got, c.want) {
				t.Errorf("the policy allows %q, want %q", got, c.want)
			}
		})
	}
}

func TestPolicy_RefusesWrongConfigurations(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]s3bodies.Config{
		"Config.Bucket is empty": {},
		`"No"`:                   {Bucket: "No"},
		"Config.ReadPrefixes":    {Bucket: "example", ReadPrefixes: []string{"shop/"}},
	} {
		if policy, err := s3bodies.Policy(cfg, s3bodies.PolicyFor{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q and the error %v, want one with %s", policy, err, want)
		}
	}
}

// The policy allows every request of a store, and no action that none needs.
func TestPolicy_CoversRequestsOfStore(t *testing.T) {
	t.Parallel()
	cfg := s3bodies.Config{KeyPrefix: "shop"}
	requests := make(chan *http.Request, 10)
	store := open(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		requests <- r
	})
	key := store.BodyKey("ABC-1")
	if err := store.Put(t.Context(), key, []byte("body")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), key, 1000); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{"s3:ListBucket": true} // which S3 asks for when an object is missing
	close(requests)
	for r := range requests {
		switch r.Method {
		case http.MethodPut:
			used["s3:PutObject"] = true
		case http.MethodGet:
			used["s3:GetObject"] = true
		default:
			t.Errorf("there was a request %s %s", r.Method, r.URL)
		}
		if !strings.Contains(r.URL.Path, "/shop/") {
			t.Errorf("the request %s %s is for another object", r.Method, r.URL)
		}
	}
	cfg.Bucket = bucket
	policy, err := s3bodies.Policy(cfg, s3bodies.PolicyFor{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(allowed(t, policy))), slices.Sorted(maps.Keys(used)); !slices.Equal(got, want) {
		t.Errorf("the policy allows %q, and a store uses %q", got, want)
	}
}
