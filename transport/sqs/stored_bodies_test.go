//go:build darwin || linux

package sqs_test

import (
	"bytes"
	"cmp"
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
	"github.com/reprise-go/reprise/core/headers"
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

	refuses    error            // of all Put
	unreadable map[string]error // of Get of these keys
	limits     []int            // of the Gets
}

func newStoredBodies() *storedBodies {
	return &storedBodies{bodies: map[string][]byte{}, failed: make(chan struct{}, 100)}
}

func (b *storedBodies) BodyKey(id string) string { return id }

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

func (b *storedBodies) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	if b.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = append(b.limits, limit)
	if err := cmp.Or(b.err, b.unreadable[key]); err != nil {
		select {
		case b.failed <- struct{}{}:
		default:
		}
		return nil, err
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
func storing(t *testing.T, cfg sqs.Config) (*site, *sqs.Transport, core.Receiver) {
	t.Helper()
	s := startSite(t, testserver.Config{})
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
	s := startSite(t, testserver.Config{})
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

// A body that is stored elsewhere is named as NServiceBus does.
func TestBodies_KeyOnTheWire(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	for _, format := range []sqs.Format{sqs.Wrapped, sqs.Raw} {
		t.Run(format.String(), func(t *testing.T) {
			store := newStoredBodies()
			transport := s.provisioned(t, sqs.Config{Format: format, Bodies: store, LargeBodies: 10}, "billing-"+format.String())
			queue := "billing-" + format.String()
			send := func(body string) {
				t.Helper()
				if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: queue, Body: []byte(body), Headers: headersOf(headers.MessageID, "m-1")}); err != nil {
					t.Fatal(err)
				}
			}
			send("123456789") // is short
			if m := s.get(t, queue); strings.Contains(*m.Body, "S3BodyKey") || m.MessageAttributes["S3BodyKey"].StringValue != nil || len(store.bodies) > 0 {
				t.Errorf("a short body was stored: %q", *m.Body)
			}
			send("1234567890")
			m := s.get(t, queue)
			var key string
			switch format {
			case sqs.Raw:
				key = stringsOf(t, &m)["S3BodyKey"]
				if *m.Body != "empty message" {
					t.Errorf("the body is %q", *m.Body)
				}
			default:
				var wrapper struct{ Body, S3BodyKey string }
				if err := json.Unmarshal([]byte(*m.Body), &wrapper); err != nil {
					t.Fatal(err)
				}
				key = wrapper.S3BodyKey
				if wrapper.Body != "" {
					t.Errorf("the body is %q", wrapper.Body)
				}
			}
			if string(store.bodies[key]) != "1234567890" || len(store.bodies) != 1 {
				t.Errorf("under the key %q of %q there is: %q", key, *m.Body, store.bodies)
			}
		})
	}
}
