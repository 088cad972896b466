//go:build darwin || linux

package sqs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/smithy-go"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// storedBodies is a store of bodies in memory, which a test can have fail.
type storedBodies struct {
	mu     sync.Mutex
	bodies map[string][]byte
	loses  bool  // Put stores nothing
	hangs  bool  // Get waits until its context ends
	err    error // of all Get
	failed chan struct{}

	refuses error // of all Put
}

func newStoredBodies() *storedBodies {
	return &storedBodies{bodies: map[string][]byte{}, failed: make(chan struct{}, 100)}
}

func (b *storedBodies) Put(_ context.Context, key string, body []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuses != nil {
		return b.refuses
	}
	if !b.loses {
		b.bodies[key] = bytes.Clone(body)
	}
	return nil
}

func (b *storedBodies) Get(ctx context.Context, key string) ([]byte, error) {
	if b.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		b.failed <- struct{}{}
		return nil, b.err
	}
	body, ok := b.bodies[key]
	if !ok {
		return nil, fmt.Errorf("no body %q: %w", key, fs.ErrNotExist)
	}
	return bytes.Clone(body), nil
}

func (b *storedBodies) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// prefixedBodies chooses keys, of characters that JSON escapes too.
type prefixedBodies struct{ *storedBodies }

const bodyPrefix = `a "prefix"/`

func (prefixedBodies) BodyKey(id string) string { return bodyPrefix + id }

// storing returns a server with a queue, a transport that stores all bodies, and a receiver.
func storing(t *testing.T, cfg sqs.Config) (*server, *sqs.Transport, core.Receiver) {
	t.Helper()
	s := &server{Server: testserver.StartFor(t, testserver.Config{})}
	s.queue(t, "orders")
	cfg.LargeBodies = 1
	transport := openConfigured(t, configured(cfg, s.URL()))
	return s, transport, openReceiver(t, transport, "orders", 1)
}

func sendBody(t *testing.T, transport core.Transport, body string) {
	t.Helper()
	m := core.Outgoing{ID: "1", Queue: "orders", Body: []byte(body)}
	if err := transport.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// awaitFailure waits until a body could not be fetched.
func (b *storedBodies) awaitFailure(t *testing.T) {
	t.Helper()
	select {
	case <-b.failed:
	case <-time.After(patience):
		t.Fatal("no body is fetched")
	}
}

func TestBodies_OutageUsesUpNoAttempts(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.fail(errors.New("the store is down"))
	s, transport, r := storing(t, sqs.Config{Bodies: bodies, VisibilityTimeout: 30 * time.Second})
	sendBody(t, transport, "a large body")
	for range 5 {
		bodies.awaitFailure(t)
		s.Advance(10 * time.Minute) // the message is available again
	}
	bodies.fail(nil)
	in := take(t, r, 1)[0].Incoming()
	if in.Malformed != nil || string(in.Body) != "a large body" {
		t.Errorf("got the body %q, malformed: %v", in.Body, in.Malformed)
	}
	if in.DeliveryCount != 1 {
		t.Errorf("the delivery count is %d after an outage of the store, want 1", in.DeliveryCount)
	}
}

// Redeliveries during an outage of the store count as attempts for other instances, so there are few of them: each message is
// locked for longer each time, up to 5 minutes, with any visibility timeout.
func TestBodies_LocksGrowDuringOutage(t *testing.T) {
	t.Parallel()
	for _, visibility := range []time.Duration{10 * time.Second, 10 * time.Minute} {
		t.Run(visibility.String(), func(t *testing.T) {
			t.Parallel()
			bodies := newStoredBodies()
			bodies.fail(errors.New("the store is down"))
			s := startStopped(t)
			s.queue(t, "orders")
			transport := openConfigured(t, configured(sqs.Config{Bodies: bodies, LargeBodies: 1, NoLongDelays: true, VisibilityTimeout: visibility}, s.URL()))
			sendBody(t, transport, "a large body")
			receiver := openReceiver(t, transport, "orders", 10)
			for i, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300} {
				bodies.awaitFailure(t)
				wait := time.Duration(seconds) * time.Second
				due := s.Now().Add(wait)
				until(t, fmt.Sprintf("after failure %d the message is locked for %v", i+1, wait), func() bool {
					c := s.contents(t, "orders")
					return len(c.InFlight) == 1 && c.InFlight[0].Due.Equal(due)
				})
				s.Advance(wait)
			}
			bodies.fail(nil)
			if err := receiver.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A queue full of messages whose bodies cannot be fetched is not received in vain: a pause follows each request.
func TestBodies_PausesDuringOutage(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.fail(errors.New("the store is down"))
	s := startSite(t, testserver.Config{})
	s.queue(t, "orders")
	transport := openConfigured(t, configured(sqs.Config{Bodies: bodies, LargeBodies: 10, NoLongDelays: true}, s.URL()))
	const n = 200
	if err := transport.Send(t.Context(), messages(n, core.Outgoing{Queue: "orders", Body: []byte("a large body")})...); err != nil {
		t.Fatal(err)
	}
	seen := &outages{}
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 10, MaxDeliveries: 1000, Observer: seen,
	})
	if err != nil {
		t.Fatal(err)
	}
	// One request follows each failure, after a pause that grows.
	until(t, "the bodies of 6 requests could not be fetched", func() bool { return seen.failures("the store is down") >= 6 })
	if requests, failures := s.Requests("orders")["ReceiveMessage"], seen.failures("the store is down"); requests > failures+1 {
		t.Errorf("%d requests for messages began during %d failures of the store", requests, failures)
	}
	longest := time.Duration(0)
	for _, c := range seen.all() {
		longest = max(longest, c.RetryIn)
	}
	if longest < 400*time.Millisecond { // half of 50 ms, doubled five times
		t.Errorf("the longest pause is %v", longest)
	}
	bodies.fail(nil)
	for _, d := range take(t, receiver, 10) {
		if in := d.Incoming(); string(in.Body) != "a large body" || in.DeliveryCount != 1 {
			t.Fatalf("after the outage this arrived: delivery %d with the body %q", in.DeliveryCount, in.Body)
		}
	}
}

// An outage of the store goes on although requests to SQS succeed. It ends with the first body that is fetched.
func TestBodies_OutageIsReportedUntilStoreAnswers(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.fail(errors.New("the store is down"))
	s := startSite(t, testserver.Config{})
	s.queue(t, "orders")
	cfg := s.once(sqs.Config{Bodies: bodies, LargeBodies: 10})
	transport := openConfigured(t, cfg)
	seen := &outages{}
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 10, MaxDeliveries: 1000, Observer: seen,
	})
	if err != nil {
		t.Fatal(err)
	}
	sendBody(t, transport, "a large body")
	until(t, "the outage of the store is reported", func() bool { return seen.failures("the store is down") > 0 })
	first := seen.all()[0].Since
	// An outage of SQS begins and ends.
	s.Reject(testserver.Match{Operation: "ReceiveMessage", Name: "orders", Times: 2}, testserver.InternalFailure)
	until(t, "the outage of SQS is reported", func() bool { return seen.failures("internal error") == 2 })
	sendBody(t, transport, "small")
	if body := string(take(t, receiver, 1)[0].Incoming().Body); body != "small" {
		t.Fatalf("this arrived: %q", body)
	}
	for _, c := range seen.all() {
		if c.Connected || !c.Since.Equal(first) {
			t.Errorf("during the outage of the store this was reported: %+v", c)
		}
	}
	bodies.fail(nil)
	s.Advance(10 * time.Minute) // the locks end
	for range 2 {
		if in := take(t, receiver, 1)[0].Incoming(); string(in.Body) == "a large body" {
			break
		}
	}
	changes := seen.all()
	if last := changes[len(changes)-1]; !last.Connected || !last.Since.Equal(first) {
		t.Errorf("after the outage this was reported last: %+v", last)
	}
}

// A receiver that closes does not wait for bodies. Their messages go back, and have not been attempted.
func TestBodies_CloseDuringFetch(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.hangs = true
	s := startSite(t, testserver.Config{})
	s.queue(t, "orders")
	cfg := configured(sqs.Config{Bodies: bodies, LargeBodies: 10, NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, s.URL())
	transport := openConfigured(t, cfg)
	sendBody(t, transport, "a large body")
	receiver := openReceiver(t, transport, "orders", 10)
	until(t, "the message is received", func() bool { return len(s.contents(t, "orders").InFlight) == 1 })
	if err := receiver.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := s.contents(t, "orders"); len(c.Ready) != 1 {
		t.Fatalf("the queue has %+v", c)
	}
	bodies.hangs = false // no receiver reads it
	if in := take(t, openReceiver(t, transport, "orders", 10), 1)[0].Incoming(); in.DeliveryCount != 1 || string(in.Body) != "a large body" {
		t.Errorf("this arrived: delivery %d with the body %q", in.DeliveryCount, in.Body)
	}
}

func TestBodies_MissingBodyIsMalformed(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.loses = true
	_, transport, r := storing(t, sqs.Config{Bodies: bodies})
	sendBody(t, transport, "a large body")
	in := take(t, r, 1)[0].Incoming()
	if !errors.Is(in.Malformed, fs.ErrNotExist) || !strings.Contains(in.Malformed.Error(), "stored under the key") {
		t.Errorf("malformed: %v, want an error that names the key and matches fs.ErrNotExist", in.Malformed)
	}
}

// A body that is fetched slowly does not keep the messages that arrived with it beyond their locks.
func TestBodies_SlowStoreKeepsNoOtherMessages(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.hangs = true
	s := &server{Server: testserver.StartFor(t, testserver.Config{})}
	s.queue(t, "orders")
	transport := openConfigured(t, configured(sqs.Config{Bodies: bodies, LargeBodies: 10, VisibilityTimeout: 4 * time.Second}, s.URL()))
	sendBody(t, transport, "a large body")
	sendBody(t, transport, "small")
	if in := take(t, openReceiver(t, transport, "orders", 10), 1)[0].Incoming(); string(in.Body) != "small" || in.DeliveryCount != 1 {
		t.Errorf("got %q with the delivery count %d, want the first delivery of the small body", in.Body, in.DeliveryCount)
	}
}

func TestBodies_KeyInTheMessage(t *testing.T) {
	t.Parallel()
	for _, format := range []sqs.Format{sqs.Wrapped, sqs.Raw} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			bodies := newStoredBodies()
			s, transport, r := storing(t, sqs.Config{Bodies: prefixedBodies{bodies}, Format: format})
			sendBody(t, transport, "a large body")
			d := take(t, r, 1)[0]
			if in := d.Incoming(); in.Malformed != nil || string(in.Body) != "a large body" {
				t.Errorf("got the body %q, malformed: %v", in.Body, in.Malformed)
			}
			keys := slices.Collect(maps.Keys(bodies.bodies))
			if len(keys) != 1 || !strings.HasPrefix(keys[0], bodyPrefix) {
				t.Fatalf("the keys in the store are %q, want one that begins with %q", keys, bodyPrefix)
			}
			contents, _ := s.Contents("orders")
			if len(contents.InFlight) != 1 {
				t.Fatalf("the queue has %+v, want one message in flight", contents)
			}
			m := contents.InFlight[0]
			got := m.Attributes["S3BodyKey"]
			if format == sqs.Wrapped {
				var w struct{ S3BodyKey string }
				if err := json.Unmarshal([]byte(m.Body), &w); err != nil {
					t.Fatal(err)
				}
				got = w.S3BodyKey
			}
			if got != keys[0] {
				t.Errorf("the message has the key %q, the store %q", got, keys[0])
			}
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The store may be of Amazon too, and have errors with the codes of SQS, which say nothing about the queue.
func TestBodies_ErrorOfTheStore(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"AccessDenied", "NotFound", "BatchRequestTooLong"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			bodies := newStoredBodies()
			refused := &smithy.GenericAPIError{Code: code, Message: "of the store"}
			bodies.refuses = refused
			s, transport, _ := storing(t, sqs.Config{Bodies: bodies})
			err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "orders", Body: []byte("a large body")})
			if !errors.Is(err, refused) {
				t.Errorf("the error of Send does not match that of the store: %v", err)
			} else if errors.Is(err, core.ErrQueueNotFound) || strings.Contains(err.Error(), "sqs.Policy") || !strings.Contains(err.Error(), "store the body of 12 bytes") {
				t.Errorf("the error of Send is about the queue: %v", err)
			}
			if contents, _ := s.Contents("orders"); len(contents.Ready)+len(contents.InFlight) != 0 {
				t.Errorf("the queue has %+v, want nothing", contents)
			}
		})
	}
}
