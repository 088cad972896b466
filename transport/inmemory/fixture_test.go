package inmemory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Every test runs in a synctest bubble. There a call that blocks for ever is
// reported as a deadlock, a goroutine left behind fails the test, and time
// passes only while everybody waits.

// inBubble runs body as a subtest in a separate bubble.
func inBubble(t *testing.T, name string, body func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, body) })
}

// open returns a transport with the given queues, closed at the test's end.
func open(t *testing.T, cfg inmemory.Config, queues ...string) *inmemory.Transport {
	t.Helper()
	transport, err := inmemory.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close(context.Background()) })
	if err := transport.Provision(t.Context(), core.Topology{Queues: queues}); err != nil {
		t.Fatal(err)
	}
	return transport
}

// able is everything, changed.
func able(change func(*core.Capabilities)) *core.Capabilities {
	caps := inmemory.Everything()
	change(&caps)
	return &caps
}

func receiver(t *testing.T, transport core.Transport, queue string, mode core.TransactionMode, maxInFlight int) core.Receiver {
	t.Helper()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: queue, Mode: mode, MaxInFlight: maxInFlight})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// peekLock is the usual receiver: ReceiveOnly, room for 100.
func peekLock(t *testing.T, transport core.Transport, queue string) core.Receiver {
	t.Helper()
	return receiver(t, transport, queue, core.TransactionReceiveOnly, 100)
}

func message(queue, body string) core.Outgoing {
	return core.Outgoing{ID: "id-" + body, Queue: queue, Body: []byte(body)}
}

func send(t *testing.T, transport core.Transport, msgs ...core.Outgoing) {
	t.Helper()
	if err := transport.Send(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
}

// receive waits for one delivery and checks its body.
func receive(t *testing.T, r core.Receiver, body string) core.Delivery {
	t.Helper()
	dst := make([]core.Delivery, 1)
	n, err := r.Receive(t.Context(), dst)
	if n != 1 || err != nil {
		t.Fatalf("Receive = %d, %v", n, err)
	}
	if got := string(dst[0].Incoming().Body); got != body {
		t.Fatalf("received %q, want %q", got, body)
	}
	return dst[0]
}

// receiveNothing checks that nothing is available now.
func receiveNothing(t *testing.T, r core.Receiver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	dst := make([]core.Delivery, 8)
	n, err := r.Receive(ctx, dst)
	if n != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Receive = %d, %v; want nothing", n, err)
	}
}

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// failWith checks that err matches target and says where it comes from.
func failWith(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, want one matching %v", err, target)
	}
	if !strings.HasPrefix(err.Error(), "inmemory: ") {
		t.Fatalf("error %q does not begin with the package", err)
	}
}

func counts(t *testing.T, d core.Delivery, count int, lastError string) {
	t.Helper()
	if in := d.Incoming(); in.DeliveryCount != count || in.LastError != lastError {
		t.Fatalf("DeliveryCount %d, LastError %q; want %d, %q", in.DeliveryCount, in.LastError, count, lastError)
	}
}

// depth checks the numbers of messages in a queue.
func depth(t *testing.T, transport *inmemory.Transport, queue string, want queues.Depth) {
	t.Helper()
	got, err := transport.Depth(t.Context(), queue)
	if err != nil || got.Ready != want.Ready || got.Locked != want.Locked || got.Delayed != want.Delayed || !got.Exact {
		t.Fatalf("depth of %q is %+v, %v; want %+v", queue, got, err, want)
	}
}

// browse returns all messages of a queue.
func browse(t *testing.T, transport *inmemory.Transport, queue string) []queues.Message {
	t.Helper()
	page, err := transport.Browse(t.Context(), queues.Request{Queue: queue, Limit: 10000})
	succeed(t, err)
	return page.Messages
}

// names returns the names of all queues.
func names(t *testing.T, transport *inmemory.Transport) []string {
	t.Helper()
	names, err := transport.ListQueues(t.Context())
	succeed(t, err)
	return names
}
