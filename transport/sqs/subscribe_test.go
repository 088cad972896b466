package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/reprise-go/reprise/transport"
)

// policyQueue is a service with one queue, whose policy takes effect some time after it was set.
type policyQueue struct {
	policy     string // in effect
	set        []string
	takes      time.Duration
	due        time.Time
	reads      int
	beforeRead func(read int)
}

// Do implements aws.HTTPClient.
func (q *policyQueue) Do(r *http.Request) (*http.Response, error) {
	answer := "{}"
	switch _, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); operation {
	case "GetQueueAttributes":
		if len(q.set) > 0 && !time.Now().Before(q.due) {
			q.policy = q.set[len(q.set)-1]
		}
		if q.reads++; q.beforeRead != nil {
			q.beforeRead(q.reads)
		}
		text, err := json.Marshal(map[string]map[string]string{"Attributes": {"Policy": q.policy}})
		if err != nil {
			return nil, err
		}
		answer = string(text)
	case "SetQueueAttributes":
		var in struct{ Attributes map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return nil, err
		}
		q.set, q.due = append(q.set, in.Attributes["Policy"]), time.Now().Add(q.takes)
	default:
		return nil, errors.New("unexpected " + operation)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(strings.NewReader(answer)), Request: r,
	}, nil
}

var anyone = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
})

func (q *policyQueue) allow(t *testing.T) error {
	t.Helper()
	service, err := New(Config{AWS: &aws.Config{Region: "us-east-1", HTTPClient: q, Credentials: anyone}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = service.Close(t.Context()) }()
	return service.allow(t.Context(), "https://sqs.example.com/1/billing", "arn:aws:sqs:us-east-1:1:billing", []string{"arn:aws:sns:us-east-1:1:Order"}, "arn:aws:sns:us-east-1:1:*")
}

// The service takes up to a minute to apply a policy. It is written once.
func TestSubscribe_PolicyTakesEffectLate(t *testing.T) {
	for _, takes := range []time.Duration{0, 2 * time.Second, 9 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			q := &policyQueue{takes: takes}
			if err := q.allow(t); err != nil || len(q.set) != 1 {
				t.Errorf("a policy that takes effect after %v was set %d times: %v", takes, len(q.set), err)
			}
		})
	}
}

// An endpoint calls Subscribe again until the policy is in effect.
func TestSubscribe_PolicyTakesEffectAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &policyQueue{takes: time.Minute}
		err := q.allow(t)
		if err == nil || !strings.Contains(err.Error(), "up to 60 s") || !transient(err) || transport.IsPermanent(err) {
			t.Errorf("the error is: %v", err)
		}
		time.Sleep(time.Minute)
		if err := q.allow(t); err != nil || len(q.set) != 1 {
			t.Errorf("a minute later the policy was set %d times: %v", len(q.set), err)
		}
	})
}

// Another program has read the policy before it was changed, and writes it afterwards.
func TestSubscribe_AnotherProgramReplacesThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &policyQueue{}
		other := `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"sqs:*","Resource":"*"}]}`
		q.beforeRead = func(read int) {
			if read == 2 {
				q.set, q.policy = append(q.set, other), other
			}
		}
		if err := q.allow(t); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(q.policy, "Deny") || !strings.Contains(q.policy, "sns.amazonaws.com") || len(q.set) != 3 {
			t.Errorf("the policy was set to %q", q.set)
		}
	})
}
