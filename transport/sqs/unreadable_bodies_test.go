//go:build darwin || linux

package sqs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// The key of a stored body is in the message, so any sender can name bodies that the store
// refuses, that are too large or that do not exist.

// errDenied is how a store answers that the role may not read a body.
var errDenied = errors.New("access denied")

// putKey sends a message whose body has a key.
func (s *site) putKey(t *testing.T, queue, id, key string) {
	t.Helper()
	named := attributes{"S3BodyKey": text(key), headersAttribute: text(fmt.Sprintf(`{"NServiceBus.MessageId":%q}`, id))}
	if strings.HasSuffix(queue, ".fifo") {
		s.putInGroup(t, queue, "customer-7", "-", named)
		return
	}
	s.put(t, queue, "-", named)
}

// denied returns a store that has no right to read n keys.
func denied(n int) *storedBodies {
	bodies := newStoredBodies()
	bodies.unreadable = map[string]error{}
	for i := range n {
		bodies.unreadable[fmt.Sprint("other/", i)] = errDenied
	}
	return bodies
}

// Bodies that cannot be read hold up no others. Their messages go to the error queue after some tries.
func TestBodies_UnreadableKeysAreNoOutage(t *testing.T) {
	t.Parallel()
	for name, large := range map[string]int{"beside stored bodies": 1, "beside bodies in the messages": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const bad, good = 50, 40
			s := startSite(t, testserver.Config{})
			// Only messages whose bodies fail are available again when the clock is advanced.
			transport := s.provisioned(t, sqs.Config{Bodies: denied(bad), LargeBodies: large, NoLongDelays: true, VisibilityTimeout: 10 * time.Hour}, "orders", "error")
			for i := range bad {
				s.putKey(t, "orders", fmt.Sprint("bad-", i), fmt.Sprint("other/", i))
			}
			if err := transport.Send(t.Context(), messages(good, core.Outgoing{Queue: "orders", Body: []byte("good")})...); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			handled := 0
			seen := &outages{}
			runEndpoint(t, transport, "orders", core.Config{Observers: []core.Observer{{ConnectionChanged: seen.ConnectionChanged}}}, func(body string) error {
				mu.Lock()
				defer mu.Unlock()
				if handled++; body != "good" {
					t.Errorf("%q is handled", body)
				}
				return nil
			})
			await(t, "all good messages are handled", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return handled == good
			})
			await(t, "all others are in the error queue", func() bool {
				s.Advance(5 * time.Minute)
				return len(s.contents(t, "error").Ready) == bad
			})
			failed := map[string]bool{}
			for _, d := range take(t, openReceiver(t, transport, "error", bad), bad) {
				in := d.Incoming()
				failed[in.ID] = true
				if reason := in.Headers.Get("NServiceBus.ExceptionInfo.Message"); !strings.Contains(reason, "in 8 tries") || !strings.Contains(reason, errDenied.Error()) {
					t.Errorf("message %s failed because of: %s", in.ID, reason)
				}
			}
			if len(failed) != bad {
				t.Errorf("the error queue has %d different messages, want %d", len(failed), bad)
			}
			for _, c := range seen.list() {
				if !c.Connected {
					t.Errorf("an outage is reported: %v", c.Err)
				}
			}
		})
	}
}

// In a FIFO queue the messages of a group wait for one whose body cannot be read, and not for long.
func TestBodies_UnreadableKeyInGroup(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	bodies := denied(1)
	bodies.bodies["a"], bodies.bodies["b"] = []byte("body of a"), []byte("body of b")
	transport := s.provisioned(t, sqs.Config{Bodies: bodies, NoLongDelays: true, VisibilityTimeout: 10 * time.Hour}, "orders.fifo")
	for _, key := range []string{"other/0", "a", "b"} {
		s.putKey(t, "orders.fifo", key, key)
	}
	receiver := openReceiver(t, transport, "orders.fifo", 10)
	for try := range 5 {
		bodies.awaitFailure(t)
		if wait := 5 * time.Second << try; try < 4 {
			await(t, fmt.Sprintf("the message is locked for %v", wait), func() bool {
				c := s.contents(t, "orders.fifo")
				return len(c.InFlight) == 1 && c.InFlight[0].Due.Sub(s.Now()) <= wait
			})
			s.Advance(wait)
		}
	}
	for _, want := range []string{"", "body of a", "body of b"} {
		d := take(t, receiver, 1)[0]
		if in := d.Incoming(); string(in.Body) != want || (want == "") != errors.Is(in.Malformed, errDenied) {
			t.Errorf("message %s has the body %q, malformed: %v", in.ID, in.Body, in.Malformed)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The body by which the adapter tests the store may expire. It stores another one.
func TestBodies_UnreadableKeyAfterExpiry(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	bodies := denied(1)
	transport := s.provisioned(t, sqs.Config{Bodies: bodies, NoLongDelays: true, VisibilityTimeout: 10 * time.Hour}, "orders")
	s.putKey(t, "orders", "m-1", "other/0")
	receiver := openReceiver(t, transport, "orders", 10)
	arrived := make(chan error, 1)
	go func() {
		dst := make([]core.Delivery, 1)
		_, err := receiver.Receive(t.Context(), dst)
		if err == nil {
			err = dst[0].Incoming().Malformed
		}
		arrived <- err
	}()
	expire := sync.OnceFunc(func() {
		bodies.mu.Lock()
		defer bodies.mu.Unlock()
		clear(bodies.bodies)
	})
	tries := 0
	await(t, "the message is malformed", func() bool {
		s.Advance(5 * time.Minute)
		select {
		case <-bodies.failed:
			if tries++; tries == 3 {
				expire()
			}
		case err := <-arrived:
			if !errors.Is(err, errDenied) {
				t.Errorf("malformed: %v", err)
			}
			return true
		default:
		}
		return false
	})
	bodies.mu.Lock()
	defer bodies.mu.Unlock()
	if len(bodies.bodies) != 1 {
		t.Errorf("the store has %d bodies, want the one of the adapter", len(bodies.bodies))
	}
}

// A key that no body can have says nothing about the store.
func TestBodies_KeysOfNoBodyEndNoOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the pauses of an outage: not in short runs")
	}
	t.Parallel()
	bodies := newStoredBodies()
	bodies.fail(errors.New("the store is down"))
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{Bodies: bodies, LargeBodies: 1, NoLongDelays: true, VisibilityTimeout: 10 * time.Hour}, "orders")
	sendBody(t, transport, "a large body")
	seen := &outages{}
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 10, MaxDeliveries: 1000, ConnectionChanged: seen.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		await(t, "the outage goes on", func() bool { return seen.failures("the store is down") > n })
		s.putKey(t, "orders", "m-1", "a\tkey")
		s.Advance(5 * time.Minute)
		d := take(t, receiver, 1)[0]
		if in := d.Incoming(); in.Malformed == nil {
			t.Fatalf("in the outage this arrived: %q, malformed: %v", in.Body, in.Malformed)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, c := range seen.list() {
		if c.Connected {
			t.Error("an end of the outage is reported")
		}
	}
	bodies.fail(nil)
	s.Advance(5 * time.Minute)
	if in := take(t, receiver, 1)[0].Incoming(); string(in.Body) != "a large body" || in.Malformed != nil {
		t.Errorf("after the outage this arrived: %q, malformed: %v", in.Body, in.Malformed)
	}
}

func TestBodies_LargerThanMaxMessageBytes(t *testing.T) {
	t.Parallel()
	const limit = 1000
	s := startSite(t, testserver.Config{})
	bodies := newStoredBodies() // which obeys no limit
	transport := s.provisioned(t, sqs.Config{Bodies: bodies, MaxMessageBytes: limit, NoLongDelays: true}, "orders")
	receiver := openReceiver(t, transport, "orders", 1)
	for size, want := range map[int]bool{limit: true, limit + 1: false, 100 * limit: false} {
		bodies.bodies["key"] = make([]byte, size)
		s.putKey(t, "orders", "m-1", "key")
		d := take(t, receiver, 1)[0]
		in := d.Incoming()
		switch {
		case want && (in.Malformed != nil || len(in.Body) != size):
			t.Errorf("of %d bytes there are %d, malformed: %v", size, len(in.Body), in.Malformed)
		case !want && (in.Malformed == nil || !strings.Contains(in.Malformed.Error(), "Config.MaxMessageBytes is 1000") || len(in.Body) > 0):
			t.Errorf("a body of %d bytes is malformed: %v", size, in.Malformed)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	bodies.mu.Lock()
	defer bodies.mu.Unlock()
	for _, got := range bodies.limits {
		if got != limit {
			t.Errorf("the store is asked for %d bytes at most, want %d", got, limit)
		}
	}
}

// The key is as long as the sender likes, and is in no error as a whole.
func TestBodies_LongKeyIsMalformed(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	bodies := newStoredBodies()
	transport := s.provisioned(t, sqs.Config{Bodies: bodies, NoLongDelays: true}, "orders")
	receiver := openReceiver(t, transport, "orders", 1)
	for _, size := range []int{1024, 1025, 500_000} {
		s.putKey(t, "orders", "m-1", strings.Repeat("k", size))
		d := take(t, receiver, 1)[0]
		in := d.Incoming()
		if asked := errors.Is(in.Malformed, fs.ErrNotExist); in.Malformed == nil || asked != (size == 1024) {
			t.Errorf("with a key of %d bytes: malformed: %.300v", size, in.Malformed)
		} else if n := len(in.Malformed.Error()); n > 2000 {
			t.Errorf("with a key of %d bytes the error has %d", size, n)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	bodies.mu.Lock()
	defer bodies.mu.Unlock()
	if n := len(bodies.limits); n != 1 {
		t.Errorf("the store is asked %d times, want once", n)
	}
}
