//go:build darwin || linux

package s3bodies_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
	"github.com/reprise-go/reprise/transport/sqs/s3bodies"
)

const patience = time.Minute

// openTransport opens a transport that stores large bodies in the bucket until the test ends.
func openTransport(t *testing.T, queues *testserver.Server, s *bucketServer, format sqs.Format) *sqs.Transport {
	t.Helper()
	transport, err := sqs.New(sqs.Config{
		AWS: &aws.Config{
			Region: "us-east-1", BaseEndpoint: aws.String(queues.URL()),
			Credentials: credentials.NewStaticCredentialsProvider(accessKey, secretKey, token),
		},
		Bodies: s.open(t, s3bodies.Config{KeyPrefix: "shop"}),
		Format: format, WaitTime: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := transport.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// newEndpoint returns an endpoint that makes two attempts, and two more a second later.
func newEndpoint(t *testing.T, transport core.Transport) *core.Endpoint {
	t.Helper()
	endpoint, err := core.New("orders", transport, core.Config{
		Logger: slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1},
			Delayed:   core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return endpoint
}

// run runs an endpoint until the test ends.
func run(t *testing.T, endpoint *core.Endpoint) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- endpoint.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-endpoint.Ready():
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("the endpoint does not start")
	}
}

// next returns the next value of a channel.
func next[T any](t *testing.T, event string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: it did not arrive", event)
	}
	return v
}

// provision creates the queues of the tests.
func provision(t *testing.T, transport *sqs.Transport) {
	t.Helper()
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "error"}}); err != nil {
		t.Fatal(err)
	}
}

// takeFailed receives a message from the error queue.
func takeFailed(t *testing.T, transport core.Transport) *core.Incoming {
	t.Helper()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "error", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dst := make([]core.Delivery, 1)
	if _, err := r.Receive(ctx, dst); err != nil {
		t.Fatal(err)
	}
	if err := dst[0].Complete(t.Context()); err != nil {
		t.Error(err)
	}
	return dst[0].Incoming()
}

func send(t *testing.T, transport core.Transport, body []byte) {
	t.Helper()
	m := core.Outgoing{ID: "order-1", Queue: "orders", Body: body}
	m.Headers.Set(headers.MessageTypes, "orders.place")
	m.Headers.Set(headers.ContentType, "application/octet-stream")
	if err := transport.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestEndToEnd_LargeBody(t *testing.T) {
	t.Parallel()
	body := random(5 << 20)
	for _, format := range []sqs.Format{sqs.Wrapped, sqs.Raw} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			queues, s := testserver.StartFor(t, testserver.Config{}), startBucket(t)
			transport := openTransport(t, queues, s, format)
			provision(t, transport)
			endpoint := newEndpoint(t, transport)
			attempts := make(chan []byte, 100)
			core.HandleDefault(endpoint, func(_ context.Context, m *core.Message) error {
				attempts <- m.RawBody()
				return errors.New("no stock")
			})
			send(t, transport, body)
			run(t, endpoint)
			for i := range 4 {
				if got := next(t, "an attempt", attempts); !bytes.Equal(got, body) {
					t.Errorf("attempt %d has another body, of %d bytes", i+1, len(got))
				}
			}
			in := takeFailed(t, transport)
			if in.Malformed != nil || in.ID != "order-1" || !bytes.Equal(in.Body, body) {
				t.Errorf("the error queue has the message %q with a body of %d bytes, malformed: %v", in.ID, len(in.Body), in.Malformed)
			}
			if got := in.Headers.Get(headers.ExceptionMessage); got != "no stock" {
				t.Errorf("it failed with %q, want the handler's error", got)
			}
			keys := s.keys(t)
			if len(keys) == 0 {
				t.Error("the bucket is empty: the body was not stored")
			}
			for _, key := range keys {
				o, err := s.backend.GetObject(bucket, key, nil)
				if err != nil {
					t.Fatal(err)
				}
				stored, err := io.ReadAll(o.Contents)
				if err != nil || !bytes.Equal(stored, body) || !strings.HasPrefix(key, "shop/") {
					t.Errorf("the object %q has another body, of %d bytes, or cannot be read: %v", key, len(stored), err)
				}
			}
		})
	}
}

// A body that an expiry has removed sends its message to the error queue, with the reason.
func TestEndToEnd_MissingBody(t *testing.T) {
	t.Parallel()
	queues, s := testserver.StartFor(t, testserver.Config{}), startBucket(t)
	transport := openTransport(t, queues, s, sqs.Wrapped)
	provision(t, transport)
	endpoint := newEndpoint(t, transport)
	core.HandleDefault(endpoint, func(context.Context, *core.Message) error {
		t.Error("the message without its body is handled")
		return nil
	})
	send(t, transport, random(2<<20))
	keys := s.keys(t)
	if len(keys) != 1 {
		t.Fatalf("the bucket has %q, want one object", keys)
	}
	if _, err := s.backend.DeleteObject(bucket, keys[0]); err != nil {
		t.Fatal(err)
	}
	run(t, endpoint)
	in := takeFailed(t, transport)
	text := in.Headers.Get(headers.ExceptionMessage)
	for _, want := range []string{keys[0], bucket, "lifecycle rule"} {
		if !strings.Contains(text, want) {
			t.Errorf("the reason does not say %q: %q", want, text)
		}
	}
}

// While S3 does not answer, a message stays in its queue, and loses no attempts.
func TestEndToEnd_Outage(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for retries of the SDK: not in short runs")
	}
	t.Parallel()
	for name, failure := range map[string]struct {
		status int
		code   string
	}{
		"down":      {http.StatusServiceUnavailable, "ServiceUnavailable"},
		"throttled": {http.StatusServiceUnavailable, "SlowDown"},
		"denied":    {http.StatusForbidden, "AccessDenied"},
		"no bucket": {http.StatusNotFound, "NoSuchBucket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues, s := testserver.StartFor(t, testserver.Config{}), startBucket(t)
			transport := openTransport(t, queues, s, sqs.Wrapped)
			provision(t, transport)
			endpoint := newEndpoint(t, transport)
			type attempt struct {
				number int
				body   []byte
			}
			attempts := make(chan attempt, 100)
			core.HandleDefault(endpoint, func(_ context.Context, m *core.Message) error {
				attempts <- attempt{m.Attempt, m.RawBody()}
				return nil
			})
			body := random(2 << 20)
			send(t, transport, body)
			gets := make(chan struct{}, 100)
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(failure.status)
				_, _ = io.WriteString(w, "<Error><Code>"+failure.code+"</Code></Error>")
				gets <- struct{}{}
			})
			run(t, endpoint)
			for range 6 { // more than there are attempts
				next(t, "a request for the body", gets)
				queues.Advance(time.Minute) // the visibility timeout ends
			}
			s.answer(nil)
			// A request that was made before, and failed after the last advance, leaves the message invisible.
			stop := make(chan struct{})
			var advancing sync.WaitGroup
			advancing.Go(func() {
				for tick := time.Tick(5 * time.Second); ; {
					select {
					case <-tick:
						queues.Advance(time.Minute)
					case <-stop:
						return
					}
				}
			})
			defer advancing.Wait()
			defer close(stop)
			if got := next(t, "the message after the outage", attempts); got.number != 1 || !bytes.Equal(got.body, body) {
				t.Errorf("attempt %d has a body of %d bytes, want attempt 1 with the body of %d", got.number, len(got.body), len(body))
			}
			if c, _ := queues.Contents("error"); len(c.Ready)+len(c.InFlight)+len(c.Delayed) != 0 {
				t.Errorf("the error queue has %d messages", len(c.Ready))
			}
		})
	}
}
