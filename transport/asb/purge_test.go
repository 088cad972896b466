//go:build darwin || linux

package asb_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestPurge_SkipsSessionsOfLaterMessages(t *testing.T) {
	t.Parallel()
	clock := clock.NewFake(time.Now().Add(-time.Hour))
	s := startSite(t, sbserver.Config{Broker: broker.Config{Clock: clock}})
	cfg := asb.Config{SessionQueues: []string{"q"}}
	transport := s.provisioned(t, cfg, "q")
	group := func(key string) {
		if err := transport.Send(t.Context(), core.Outgoing{ID: key, Queue: "q", GroupKey: key}); err != nil {
			t.Fatal(err)
		}
	}
	group("old")
	clock.Advance(2 * time.Hour)
	r := openReceiver(t, transport, "q", 1)
	take(t, r, 1)
	group("later")                               // by the clock of the purging process, which does not know the service's
	if err := r.Close(t.Context()); err != nil { // so that the older session is offered after it
		t.Fatal(err)
	}
	removed, err := s.open(t, cfg).Purge(t.Context(), "q")
	if err != nil || removed != 1 {
		t.Errorf("Purge removed %d messages, %v; want 1", removed, err)
	}
	if info, err := s.Broker().Queue("q"); err != nil || info.Runtime.Active != 1 {
		t.Errorf("the queue has %d messages, %v; want the later one", info.Runtime.Active, err)
	}
}

// To take a session costs some ten requests, which take longer here than Purge waits for a message.
func TestPurge_OfSessionsOverASlowNetwork(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{Latency: 250 * time.Millisecond})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a")
	await(t, "the message is removed", func() bool { // on a slow machine not by the first one
		removed, err := transport.Purge(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		return removed == 1
	})
}

func TestPurge_LeavesLaterMessages(t *testing.T) {
	t.Parallel()
	clock := clock.NewFake(time.Now().Add(-time.Hour))
	s := startSite(t, sbserver.Config{Broker: broker.Config{Clock: clock}})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	old := make([]string, 300) // more than one request brings
	for i := range old {
		old[i] = fmt.Sprint(i)
	}
	send(t, transport, "q", old...)
	clock.Advance(2 * time.Hour)
	send(t, transport, "q", "later") // by the clock of the purging process, which does not know the service's
	removed, err := s.open(t, asb.Config{}).Purge(t.Context(), "q")
	if err != nil || removed != len(old) {
		t.Errorf("Purge removed %d messages, %v; want %d", removed, err, len(old))
	}
	if in := take(t, openReceiver(t, transport, "q", 1), 1)[0].Incoming(); string(in.Body) != "later" || in.DeliveryCount != 1 {
		t.Errorf("%q came, delivery %d", in.Body, in.DeliveryCount)
	}
}

// The SDK releases a message that arrives between two calls, and the service sends it again after later ones.
func TestPurge_RemovesMessagesThatTheSDKReleased(t *testing.T) {
	t.Parallel()
	clock := clock.NewFake(time.Now().Add(-longestLock / 3))
	s := startSite(t, sbserver.Config{Broker: broker.Config{Clock: clock}})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	send(t, transport, "q", "a")
	// The second message arrives while the first one is completed, and its release takes longer than that.
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpComplete}, Delay: 3 * time.Second})
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpRelease}, Delay: 4 * time.Second})
	type result struct {
		removed int
		err     error
	}
	purged := make(chan result, 1)
	go func() {
		removed, err := s.open(t, asb.Config{}).Purge(t.Context(), "q")
		purged <- result{removed, err}
	}()
	await(t, "the first message is received", func() bool { return s.Count(sbserver.OpDeliver, "q") == 1 })
	send(t, transport, "q", "b")
	await(t, "the second message is received", func() bool { return s.Count(sbserver.OpDeliver, "q") == 2 })
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpDeliver}, Skip: 1, Delay: 20 * time.Millisecond})
	clock.Advance(2 * longestLock / 3) // no lock ends
	send(t, transport, "q", "later")
	if got := <-purged; got.err != nil || got.removed != 2 {
		t.Errorf("Purge removed %d messages, %v; want 2", got.removed, got.err)
	}
	if in := take(t, openReceiver(t, transport, "q", 1), 1)[0].Incoming(); string(in.Body) != "later" || in.DeliveryCount != 1 {
		t.Errorf("%q came, delivery %d", in.Body, in.DeliveryCount)
	}
}

// Messages that were asked for and are on their way when it ends would stay locked.
func TestPurge_LeavesNoMessageLocked(t *testing.T) {
	t.Parallel()
	clock := clock.NewFake(time.Now().Add(time.Hour)) // by which all messages came later
	s := startSite(t, sbserver.Config{Latency: 50 * time.Millisecond, Broker: broker.Config{Clock: clock}})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	send(t, transport, "q", many...)
	removed, err := s.open(t, asb.Config{}).Purge(t.Context(), "q")
	if err != nil || removed != 0 {
		t.Errorf("Purge removed %d messages, %v; want none", removed, err)
	}
	// The SDK cannot withdraw a request: where the machine stalls, some are on their way when the link closes.
	if n, err := s.ExpireLocks("q"); err != nil || n > len(many)/2 {
		t.Errorf("%d of %d messages are locked, %v", n, len(many), err)
	}
}

func TestPurge_EndsEarlyWithoutLocks(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	send(t, transport, "q", "a", "b", "c")
	ctx, cancel := context.WithCancel(t.Context())
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpComplete}, Times: -1, Action: sbserver.Refuse})
	ended := make(chan error, 1)
	go func() {
		_, err := transport.Purge(ctx, "q")
		ended <- err
	}()
	await(t, "it completes a message", func() bool { return s.Count(sbserver.OpComplete, "q") > 0 })
	cancel()
	if err := <-ended; err == nil {
		t.Error("Purge succeeded although no message was completed")
	}
	if n, err := s.ExpireLocks("q"); err != nil || n != 0 {
		t.Errorf("%d messages are locked, %v", n, err)
	}
}

func TestPurge_IsByTheClockOfTheService(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{Broker: broker.Config{Clock: skewed{offset: time.Hour}}})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "tells the time")
	r := openReceiver(t, transport, "q", 1)
	complete(t, take(t, r, 1)[0])
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, transport, "q", "message")
	await(t, "it is removed", func() bool { // the estimate may be behind by as long as an answer takes
		removed, err := transport.Purge(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		return removed == 1
	})
}
