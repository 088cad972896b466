//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/planted"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// unrepeated returns a configuration with which the SDK repeats no request.
func (s *site) unrepeated(cfg sqs.Config) sqs.Config {
	cfg = configured(cfg, s.URL())
	cfg.AWS.RetryMaxAttempts = 1
	cfg.NoLongDelays = true
	return cfg
}

// outages notes the outages that a receiver tells of.
type outages struct {
	mu      sync.Mutex
	changes []core.ConnectionChange
	times   []time.Time // of changes
}

// ConnectionChanged is that of a core.ReceiverConfig.
func (o *outages) ConnectionChanged(change core.ConnectionChange) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes, o.times = append(o.changes, change), append(o.times, time.Now())
}

// list returns the changes so far.
func (o *outages) list() []core.ConnectionChange {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.changes)
}

// failures returns how many changes have an error with this text.
func (o *outages) failures(text string) (n int) {
	for _, c := range o.list() {
		if c.Err != nil && strings.Contains(c.Err.Error(), text) {
			n++
		}
	}
	return n
}

// isOutage reports whether these are the changes of one outage: failures whose errors have this text, and its end.
func isOutage(changes []core.ConnectionChange, text string) bool {
	end := len(changes) - 1
	return end > 0 && changes[end].Connected && !slices.ContainsFunc(changes[:end], func(c core.ConnectionChange) bool {
		return c.Connected || c.Err == nil || !strings.Contains(c.Err.Error(), text)
	})
}

func TestReceive_OutlastsOutages(t *testing.T) {
	t.Parallel()
	for code, said := range map[testserver.Code]string{
		testserver.Throttling:         "Rate exceeded",
		testserver.RequestThrottled:   "throttling",
		testserver.KmsThrottled:       "KMS.ThrottlingException",
		testserver.InternalFailure:    "internal error",
		testserver.ServiceUnavailable: "temporary failure",
		testserver.OverLimit:          "OverLimit",
		testserver.ExpiredToken:       "expired", // the SDK's chain gets new credentials
		testserver.TimeTooSkewed:      "RequestTimeTooSkewed",
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			s.queue(t, "billing")
			transport := openConfigured(t, s.unrepeated(sqs.Config{}))
			s.Reject(testserver.Match{Operation: "GetQueueAttributes", Name: "billing", Times: 2}, code)
			s.Reject(testserver.Match{Operation: "ReceiveMessage", Name: "billing", Times: 2}, code)
			seen := &outages{}
			receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
				Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, ConnectionChanged: seen.ConnectionChanged,
			})
			if err != nil {
				t.Fatal(err)
			}
			const changes = 3 // of an outage: two failures and its end. The receiver may already be in the second one.
			if told := seen.list(); len(told) < changes || !isOutage(told[:changes], said) {
				t.Fatalf("OpenReceiver told of these outages: %+v", told)
			}
			s.put(t, "billing", "hello", nil)
			if body := string(take(t, receiver, 1)[0].Incoming().Body); body != "hello" {
				t.Errorf("this arrived: %q", body)
			}
			if told := seen.list(); len(told) != 2*changes || !isOutage(told[changes:], said) {
				t.Errorf("the receiver told of these outages: %+v", told)
			}
		})
	}
}

// rotated has the credentials of the time.
type rotated struct {
	current atomic.Pointer[aws.Credentials]
}

// Retrieve implements aws.CredentialsProvider.
func (r *rotated) Retrieve(context.Context) (aws.Credentials, error) { return *r.current.Load(), nil }

// A receiver waits while the service knows only the key after this one, and goes on with that.
func TestReceive_OutlastsARotation(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{AccessKey: accessKey})
	s.queue(t, "billing")
	s.put(t, "billing", "before", nil)
	keys := &rotated{}
	keys.current.Store(&aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey})
	cfg := s.unrepeated(sqs.Config{})
	cfg.AWS.Credentials = keys
	seen := &outages{}
	receiver, err := openConfigured(t, cfg).OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 2, ConnectionChanged: seen.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := take(t, receiver, 1)[0].Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.SetAccessKey("NEXTKEY")
	await(t, "the receiver tells of the refusal", func() bool { return seen.failures("InvalidClientTokenId") > 0 })
	keys.current.Store(&aws.Credentials{AccessKeyID: "NEXTKEY", SecretAccessKey: secretKey})
	await(t, "the receiver tells of its end", func() bool { told := seen.list(); return told[len(told)-1].Err == nil })
	s.SetAccessKey("") // for the test
	s.put(t, "billing", "after", nil)
	if body := string(take(t, receiver, 1)[0].Incoming().Body); body != "after" {
		t.Errorf("this arrived: %q", body)
	}
}

// In an outage one poller asks, with pauses that grow, however many asked before.
func TestReceive_OnePollerAsksInOutage(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	cfg := s.longPolls(sqs.Config{NoLongDelays: true})
	cfg.AWS.RetryMaxAttempts = 1
	transport := openConfigured(t, cfg)
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
		t.Fatal(err)
	}
	seen := &outages{}
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 100, MaxDeliveries: 1000, ConnectionChanged: seen.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(t.Context(), messages(20, core.Outgoing{ID: "1", Queue: "billing"})...); err != nil {
		t.Fatal(err)
	}
	for _, d := range take(t, receiver, 20) {
		if err := d.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const pollers = 3
	s.awaitPolls(t, "billing", pollers)
	s.Reject(testserver.Match{Operation: "ReceiveMessage", Times: -1}, testserver.ServiceUnavailable)
	if err := s.Kill(); err != nil { // all polls fail
		t.Fatal(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	const failures = 5
	await(t, "further requests fail", func() bool { return len(seen.list()) >= pollers+failures })
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for i := pollers; i < pollers+failures-1; i++ {
		if pause := seen.times[i+1].Sub(seen.times[i]); pause < seen.changes[i].RetryIn {
			t.Errorf("request %d failed %v after the one before, whose pause is %v", i+1, pause, seen.changes[i].RetryIn)
		}
	}
}

// queue creates a queue as Provision does, without one of long delays.
func (s *site) queue(t *testing.T, name string) {
	t.Helper()
	s.provisioned(t, sqs.Config{NoLongDelays: true}, name)
}

// An error that no waiting ends is returned, by OpenReceiver and by a receiver that runs.
func TestReceive_ReturnsPermanentErrors(t *testing.T) {
	t.Parallel()
	for code, said := range map[testserver.Code]string{
		testserver.KmsAccessDenied:      "sqs.Policy",
		testserver.KmsDisabled:          "sqs.Policy",
		testserver.KmsNotFound:          "sqs.Policy",
		testserver.KmsInvalidKeyUsage:   "sqs.Policy",
		testserver.AccessDenied:         "sqs.Policy",
		testserver.InvalidClientToken:   "sqs.Policy",
		testserver.InvalidSecurity:      "sqs.Policy",
		testserver.UnsupportedOperation: "UnsupportedOperation",
		testserver.QueueDoesNotExist:    "Provision",
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			s.queue(t, "billing")
			transport := openConfigured(t, s.unrepeated(sqs.Config{}))
			cfg := core.ReceiverConfig{Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 1}
			check := func(t *testing.T, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), said) || !strings.Contains(err.Error(), "billing") {
					t.Errorf("the error is: %v", err)
				}
				if missing := code == testserver.QueueDoesNotExist; errors.Is(err, core.ErrQueueNotFound) != missing {
					t.Errorf("does the error match ErrQueueNotFound? %v", err)
				}
			}
			s.Reject(testserver.Match{Operation: "GetQueueAttributes"}, code)
			_, err := transport.OpenReceiver(t.Context(), cfg)
			check(t, err)
			receiver, err := transport.OpenReceiver(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			s.Reject(testserver.Match{Operation: "ReceiveMessage"}, code)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err = receiver.Receive(ctx, make([]core.Delivery, 1))
			check(t, err)
			if _, err := receiver.Receive(ctx, make([]core.Delivery, 1)); err == nil {
				t.Error("the next Receive has no error")
			}
		})
	}
}

func TestSend_Faults(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.queue(t, "billing")
	transport := openConfigured(t, s.unrepeated(sqs.Config{}))
	match := testserver.Match{Operation: "SendMessageBatch", Name: "billing"}
	reject := func(code testserver.Code) func() { return func() { s.Reject(match, code) } }
	for name, c := range map[string]struct {
		fault  func()
		state  core.SendState
		said   string
		stored int
	}{
		"throttled":         {reject(testserver.Throttling), core.SendRefused, "Rate exceeded", 0},
		"KMS denied":        {reject(testserver.KmsAccessDenied), core.SendRefused, "sqs.Policy", 0},
		"access denied":     {reject(testserver.AccessDenied), core.SendRefused, "sqs.Policy", 0},
		"expired token":     {reject(testserver.ExpiredToken), core.SendRefused, "expired", 0},
		"queue is missing":  {reject(testserver.QueueDoesNotExist), core.SendRefused, "Provision", 0},
		"internal failure":  {reject(testserver.InternalFailure), core.SendUnknown, "internal error", 0},
		"unavailable":       {reject(testserver.ServiceUnavailable), core.SendUnknown, "temporary failure", 0},
		"answer is lost":    {func() { s.LoseAnswer(match) }, core.SendUnknown, "EOF", 1},
		"connection is cut": {func() { s.CutConnection(match) }, core.SendUnknown, "EOF", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.fault()
			r := resultsOf(t, transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing"}), 1)[0]
			if r.State != c.state || !strings.Contains(r.Err.Error(), c.said) {
				t.Errorf("the message is %v: %v; want %v with %q", r.State, r.Err, c.state, c.said)
			}
			if missing := c.said == "Provision"; errors.Is(r.Err, core.ErrQueueNotFound) != missing {
				t.Errorf("does the error match ErrQueueNotFound? %v", r.Err)
			}
			if got := len(s.contents(t, "billing").Ready); got != c.stored {
				t.Errorf("the queue has %d messages", got)
			}
			if err := transport.Send(t.Context(), core.Outgoing{ID: "m-2", Queue: "billing"}); err != nil {
				t.Errorf("the next message: %v", err)
			}
			for range c.stored + 1 {
				s.get(t, "billing")
			}
		})
	}
}

// Without a connection it is certain that no message was accepted.
func TestSend_ServerIsGone(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.queue(t, "billing")
	transport := openConfigured(t, s.unrepeated(sqs.Config{}))
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "the last connection is closed", func() bool {
		r := resultsOf(t, transport.Send(t.Context(), core.Outgoing{ID: "m-2", Queue: "billing"}), 1)[0]
		return r.State == core.SendRefused
	})
}

// The SDK repeats a request that failed once.
func TestSend_OutlastsAFault(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
	for _, code := range []testserver.Code{testserver.Throttling, testserver.RequestThrottled, testserver.InternalFailure, testserver.ServiceUnavailable} {
		s.Reject(testserver.Match{Operation: "SendMessageBatch"}, code)
		if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing"}); err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		s.get(t, "billing")
	}
}

// A queue that was deleted and created again has the same name, and is found.
func TestSend_QueueIsRecreated(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
	out := core.Outgoing{ID: "m-1", Queue: "billing"}
	if err := transport.Send(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	if _, err := s.sqs.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: aws.String(s.QueueURL("billing"))}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the URL is remembered, and then looked up
		if err := transport.Send(t.Context(), out); !errors.Is(err, core.ErrQueueNotFound) && !errors.Is(resultsOf(t, err, 1)[0].Err, core.ErrQueueNotFound) {
			t.Errorf("the error of a deleted queue is: %v", err)
		}
	}
	s.Advance(time.Minute + time.Second) // the name cannot be used for a minute
	s.queue(t, "billing")
	if err := transport.Send(t.Context(), out); err != nil {
		t.Error(err)
	}
}

// SQS would move messages to its dead-letter queue before they reach the error queue.
func TestOpenReceiver_RedrivePolicy(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.queue(t, "dead")
	s.queue(t, "billing")
	transport := openConfigured(t, s.unrepeated(sqs.Config{QueuePrefix: ""}))
	for _, c := range []struct {
		name                string
		maxReceiveCount     string // "": there is no policy
		maxDeliveries       int
		openReceiver, check bool   // are refused
		said                string // besides the command
	}{
		{"none", "", 10, false, false, ""},
		{"lower than MaxDeliveries", "3", 10, true, false, "maxReceiveCount 3, and the endpoint may deliver a message 10 times"},
		{"the same as MaxDeliveries", "10", 10, true, false, "maxReceiveCount 10"},
		{"higher than MaxDeliveries", "11", 10, false, false, ""},
		{"MaxDeliveries without limit", "1000", 0, true, false, "without limit"},
		{"one delivery", "1", 10, true, true, "maxReceiveCount 1,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := ""
			if c.maxReceiveCount != "" {
				policy = `{"deadLetterTargetArn":"` + s.QueueARN("dead") + `","maxReceiveCount":` + c.maxReceiveCount + `}`
			}
			s.setAttribute(t, "billing", "RedrivePolicy", policy)
			verify := func(call string, err error, refused bool, said string) {
				t.Helper()
				if !refused {
					if err != nil {
						t.Errorf("%s: %v", call, err)
					}
					return
				}
				if err == nil {
					t.Fatalf("%s succeeded", call)
				}
				for _, text := range []string{`"billing"`, said, "Recoverability.MaxDeliveries", "aws sqs set-queue-attributes", "RedrivePolicy"} {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%s: the error does not say %q: %v", call, text, err)
					}
				}
			}
			receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
				Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: c.maxDeliveries,
			})
			if err == nil {
				defer receiver.Close(t.Context())
			}
			verify("OpenReceiver", err, c.openReceiver, c.said)
			verify("Check", transport.Check(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}), c.check, c.said)
		})
	}
}

func TestErrors_ShowNoSecret(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{AccessKey: "another"})
	for _, odd := range []string{"", "@", "/", "%zz", "\n", `"`, "&a="} {
		secret := planted.Secret(odd)
		for name, url := range map[string]string{"unreachable": "http://127.0.0.1:1", "refused": s.URL()} {
			cfg := configured(sqs.Config{}, url)
			cfg.AWS.RetryMaxAttempts = 1
			cfg.AWS.Credentials = newCredentials(accessKey, secret, planted.Secret("token"))
			planted.Check(t, name+": Config", cfg)
			planted.Check(t, name+": *Config", &cfg)
			planted.CheckTransport(t, name, openConfigured(t, cfg))
		}
	}
}
