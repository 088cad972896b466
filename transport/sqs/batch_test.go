//go:build darwin || linux

package sqs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// messages returns n messages with the ids m-0, m-1 and so on.
func messages(n int, out core.Outgoing) []core.Outgoing {
	list := make([]core.Outgoing, n)
	for i := range list {
		list[i] = out
		list[i].ID = fmt.Sprintf("m-%d", i)
		list[i].Headers.Set(headers.MessageID, list[i].ID)
	}
	return list
}

// resultsOf returns the outcome of each message from an error of Send.
func resultsOf(t *testing.T, err error, n int) []core.SendResult {
	t.Helper()
	var failed *core.SendError
	if !errors.As(err, &failed) || len(failed.Results) != n {
		t.Fatalf("the error %v says nothing of %d messages", err, n)
	}
	return failed.Results
}

func TestSend_OneEntryOfBatchFails(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "billing")
	if err := transport.Subscribe(t.Context(), "billing", "Order"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		out       core.Outgoing
		operation string
		code      testserver.Code
		said      string
	}{
		"message that is throttled": {core.Outgoing{ID: "1", Queue: "billing"}, "SendMessageBatch", testserver.KmsThrottled, "ThrottlingException"},
		"internal failure":          {core.Outgoing{ID: "1", Queue: "billing"}, "SendMessageBatch", testserver.InternalFailure, "InternalFailure"},
		"access denied":             {core.Outgoing{ID: "1", Queue: "billing"}, "SendMessageBatch", testserver.AccessDenied, "sqs.Policy"},
		"event":                     {core.Outgoing{ID: "1", Topic: "Order"}, "PublishBatch", testserver.InternalFailure, "InternalError"},
	} {
		t.Run(name, func(t *testing.T) {
			const n, bad = 10, 3
			s.FailEntry(testserver.Match{Operation: c.operation}, bad, c.code)
			err := transport.Send(t.Context(), messages(n, c.out)...)
			for i, r := range resultsOf(t, err, n) {
				switch {
				case i == bad && (r.State != core.SendRefused || r.Err == nil || !strings.Contains(r.Err.Error(), c.said)):
					t.Errorf("the failed message is %v: %v", r.State, r.Err)
				case i != bad && (r.State != core.SendAccepted || r.Err != nil):
					t.Errorf("message %d is %v: %v", i, r.State, r.Err)
				}
			}
			arrived := map[string]bool{}
			for range n - 1 {
				m := s.get(t, "billing")
				arrived[stringsOf(t, &m)["NServiceBus.MessageId"]] = true
			}
			if len(arrived) != n-1 || arrived["m-3"] {
				t.Errorf("these arrived: %v", arrived)
			}
			if c := s.contents(t, "billing"); len(c.Ready)+len(c.InFlight) > 0 {
				t.Errorf("there is more in the queue: %v", c)
			}
		})
	}
}

// answers changes the answers to an operation.
type answers struct {
	operation string
	change    func(map[string]any)
}

// Do implements aws.HTTPClient.
func (a *answers) Do(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultClient.Do(r)
	if err != nil || r.Header.Get("X-Amz-Target") != "AmazonSQS."+a.operation {
		return response, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer map[string]any
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	a.change(answer)
	text, err := json.Marshal(answer)
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	response.Header.Del("Content-Length")
	return response, err
}

// An answer that leaves an entry out says neither that it was accepted nor that it was refused.
func TestSend_AnswerWithoutAnEntry(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.provisioned(t, sqs.Config{}, "billing")
	cfg := configured(sqs.Config{}, s.URL())
	cfg.AWS.HTTPClient = &answers{"SendMessageBatch", func(answer map[string]any) {
		answer["Successful"] = answer["Successful"].([]any)[1:]
	}}
	transport := openConfigured(t, cfg)
	err := transport.Send(t.Context(), messages(3, core.Outgoing{ID: "1", Queue: "billing"})...)
	for i, r := range resultsOf(t, err, 3) {
		if r.State != core.SendUnknown || r.Err == nil {
			t.Errorf("message %d is %v: %v", i, r.State, r.Err)
		}
	}
	if n := len(s.contents(t, "billing").Ready); n != 3 {
		t.Errorf("%d messages are in the queue", n)
	}
}

func TestSend_SplitsBatches(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	raw := s.provisioned(t, sqs.Config{Format: sqs.Raw}, "billing")
	if err := raw.Subscribe(t.Context(), "billing", "Order"); err != nil {
		t.Fatal(err)
	}
	const mebibyte = 1 << 20
	// The bytes of a message that the service counts besides the body.
	if err := raw.Send(t.Context(), messages(1, core.Outgoing{ID: "1", Queue: "billing", Body: []byte("x")})...); err != nil {
		t.Fatal(err)
	}
	m := s.get(t, "billing")
	besides := 0
	for name, value := range stringsOf(t, &m) {
		besides += len(name) + len(value) + len("String")
	}
	body := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	for name, c := range map[string]struct {
		out       core.Outgoing
		n         int
		operation string
		requests  int
	}{
		"10 messages":                     {core.Outgoing{ID: "1", Queue: "billing"}, 10, "SendMessageBatch", 1},
		"11 messages":                     {core.Outgoing{ID: "1", Queue: "billing"}, 11, "SendMessageBatch", 2},
		"25 messages":                     {core.Outgoing{ID: "1", Queue: "billing"}, 25, "SendMessageBatch", 3},
		"2 messages of 1 MiB":             {core.Outgoing{ID: "1", Queue: "billing", Body: body(mebibyte/2 - besides)}, 2, "SendMessageBatch", 1},
		"2 messages of 1 MiB and 2 bytes": {core.Outgoing{ID: "1", Queue: "billing", Body: body(mebibyte/2 - besides + 1)}, 2, "SendMessageBatch", 2},
		"5 messages of 300 KiB":           {core.Outgoing{ID: "1", Queue: "billing", Body: body(300 << 10)}, 5, "SendMessageBatch", 2},
		"11 events":                       {core.Outgoing{ID: "1", Topic: "Order"}, 11, "PublishBatch", 2},
		"7 events of 60 KiB":              {core.Outgoing{ID: "1", Topic: "Order", Body: body(60 << 10)}, 7, "PublishBatch", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s.ResetRequests()
			if err := raw.Send(t.Context(), messages(c.n, c.out)...); err != nil {
				t.Fatal(err)
			}
			if got := s.Requests("")[c.operation]; got != c.requests {
				t.Errorf("there were %d requests, want %d", got, c.requests)
			}
			for range c.n {
				s.get(t, "billing")
			}
		})
	}
}

// A message that has not left yet is withdrawn when its caller gives up. Of one that has, the outcome is unknown.
func TestSend_CallerGivesUp(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "billing.fifo") // one request at a time
	s.DelayAnswer(testserver.Match{Operation: "SendMessageBatch"}, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- transport.Send(ctx, messages(1, core.Outgoing{ID: "1", Queue: "billing.fifo"})...) }()
	await(t, "the first message leaves", func() bool { return s.Requests("billing.fifo")["SendMessageBatch"] == 1 })
	short, cancelShort := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancelShort()
	err := transport.Send(short, core.Outgoing{ID: "withdrawn", Queue: "billing.fifo"})
	if r := resultsOf(t, err, 1)[0]; r.State != core.SendRefused || !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Errorf("the message that waited is %v: %v", r.State, r.Err)
	}
	cancel()
	if r := resultsOf(t, <-first, 1)[0]; r.State != core.SendUnknown || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("the message that left is %v: %v", r.State, r.Err)
	}
	if c := s.contents(t, "billing.fifo"); len(c.Ready) != 1 || c.Ready[0].Attributes["NServiceBus.MessageId"] != "m-0" {
		t.Errorf("in the queue there is %v", c)
	}
}

// settleAll settles deliveries at the same time, and returns those of which it failed, with their errors.
func settleAll(deliveries []core.Delivery, settle func(core.Delivery) error) map[core.Delivery]error {
	var mu sync.Mutex
	failed := map[core.Delivery]error{}
	var settling sync.WaitGroup
	for _, d := range deliveries {
		settling.Go(func() {
			if err := settle(d); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[d] = err
			}
		})
	}
	settling.Wait()
	return failed
}

func TestSettle_OneEntryOfBatchFails(t *testing.T) {
	t.Parallel()
	complete := func(ctx context.Context, d core.Delivery) error { return d.Complete(ctx) }
	abandon := func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("it failed")) }
	release := func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) }
	renew := func(ctx context.Context, d core.Delivery) error { return d.Renew(ctx) }
	const n = 10
	for name, c := range map[string]struct {
		operation       string
		code            testserver.Code
		settle          func(context.Context, core.Delivery) error
		lockLost        bool
		ready, inFlight int // when all is done
		count           int // of the next delivery; 0: there is none
	}{
		"Complete":                      {operation: "DeleteMessageBatch", code: testserver.InternalFailure, settle: complete},
		"Complete of an expired handle": {operation: "DeleteMessageBatch", code: "ReceiptHandleIsInvalid", settle: complete, lockLost: true, inFlight: 1},
		"Abandon":                       {operation: "ChangeMessageVisibilityBatch", code: testserver.InternalFailure, settle: abandon, ready: n, count: 2},
		"Release":                       {operation: "ChangeMessageVisibilityBatch", code: testserver.Throttling, settle: release, ready: n, count: 1},
		"Renew":                         {operation: "ChangeMessageVisibilityBatch", code: testserver.InternalFailure, settle: renew, inFlight: n},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			transport := s.provisioned(t, sqs.Config{VisibilityTimeout: 10 * time.Minute}, "billing")
			if err := transport.Send(t.Context(), messages(n, core.Outgoing{ID: "1", Queue: "billing"})...); err != nil {
				t.Fatal(err)
			}
			receiver := openReceiver(t, transport, "billing", n)
			deliveries := take(t, receiver, n)
			receiver.SetMaxInFlight(0) // no message is received again
			s.FailEntry(testserver.Match{Operation: c.operation}, 0, c.code)
			failed := settleAll(deliveries, func(d core.Delivery) error { return c.settle(t.Context(), d) })
			if len(failed) != 1 {
				t.Fatalf("the settlement of %d deliveries failed: %v", len(failed), failed)
			}
			for d, err := range failed {
				if errors.Is(err, core.ErrLockLost) != c.lockLost || !strings.Contains(err.Error(), "billing") {
					t.Errorf("the error is: %v", err)
				}
				if c.lockLost {
					continue
				}
				if err := c.settle(t.Context(), d); err != nil { // the first one left it unsettled
					t.Errorf("another try: %v", err)
				}
			}
			if left := s.contents(t, "billing"); len(left.Ready) != c.ready || len(left.InFlight) != c.inFlight {
				t.Errorf("%d messages are ready and %d in flight, want %d and %d", len(left.Ready), len(left.InFlight), c.ready, c.inFlight)
			}
			if c.count == 0 {
				return
			}
			receiver.SetMaxInFlight(n)
			for _, d := range take(t, receiver, n) {
				if got := d.Incoming().DeliveryCount; got != c.count {
					t.Errorf("message %s is in delivery %d, want %d", d.Incoming().ID, got, c.count)
				}
			}
		})
	}
}

// In TransactionNone a message is handed out when the service has said that it is deleted. Another one is redelivered.
func TestReceive_OneDeletionFailsWithoutTransaction(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "billing")
	const n, bad = 10, 3
	if err := transport.Send(t.Context(), messages(n, core.Outgoing{ID: "1", Queue: "billing"})...); err != nil {
		t.Fatal(err)
	}
	s.FailEntry(testserver.Match{Operation: "DeleteMessageBatch"}, bad, testserver.InternalFailure)
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "billing", Mode: core.TransactionNone, MaxInFlight: n})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for _, d := range take(t, receiver, n-1) {
		ids[d.Incoming().ID]++
	}
	if c := s.contents(t, "billing"); len(c.InFlight) != 1 || ids[c.InFlight[0].Attributes["NServiceBus.MessageId"]] != 0 {
		t.Errorf("after the delivery of %v the queue has %v", ids, c)
	}
	s.Advance(time.Minute) // the visibility timeout ends
	d := take(t, receiver, 1)[0].Incoming()
	if ids[d.ID]++; len(ids) != n || d.DeliveryCount != 2 {
		t.Errorf("message %s is in delivery %d, after %v", d.ID, d.DeliveryCount, ids)
	}
}

// Deliveries that are settled together share requests.
func TestSettle_SplitsBatches(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{VisibilityTimeout: 10 * time.Minute}, "billing")
	const n = 25
	if err := transport.Send(t.Context(), messages(n, core.Outgoing{ID: "1", Queue: "billing"})...); err != nil {
		t.Fatal(err)
	}
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: n})
	if err != nil {
		t.Fatal(err)
	}
	take(t, receiver, n)
	s.ResetRequests()
	if err := receiver.Close(t.Context()); err != nil { // gives them all back
		t.Fatal(err)
	}
	if got := s.Requests("billing")["ChangeMessageVisibilityBatch"]; got != 3 {
		t.Errorf("%d messages were given back in %d requests", n, got)
	}
	if c := s.contents(t, "billing"); len(c.Ready) != n {
		t.Errorf("the queue has %v", c)
	}
}
