//go:build darwin || linux

package asb_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/transport/asb"
)

// groups sends a message with its own text as body to each group, in their order.
func groups(t testing.TB, transport core.Transport, keys ...string) {
	t.Helper()
	for i, key := range keys {
		if err := transport.Send(t.Context(), core.Outgoing{ID: fmt.Sprint(key, i), Queue: "q", Body: fmt.Append(nil, key, " ", i), GroupKey: key}); err != nil {
			t.Fatal(err)
		}
	}
}

// ordered provisions the queue "q" with sessions and a lock.
func (s *site) ordered(t testing.TB, lock time.Duration) *asb.Transport {
	t.Helper()
	return s.provisioned(t, asb.Config{SessionQueues: []string{"q"}, LockDuration: lock}, "q")
}

func complete(t testing.TB, d core.Delivery) {
	t.Helper()
	if err := d.Complete(t.Context()); err != nil {
		t.Errorf("%q: %v", d.Incoming().Body, err)
	}
}

func TestPostpone_LeavesThePlaceToOtherGroups(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a")
	r := openReceiver(t, transport, "q", 1)
	if err := take(t, r, 1)[0].Postpone(t.Context(), longestLock, errors.New("failed")); err != nil {
		t.Fatal(err)
	}
	groups(t, transport, "b", "c")
	for _, want := range []string{"b 0", "c 1"} {
		d := take(t, r, 1)[0]
		if body := d.Incoming().Body; string(body) != want {
			t.Errorf("%q came, want %q", body, want)
		}
		complete(t, d)
	}
}

func TestPostpone_TakesAPlaceWhenItIsDue(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a")
	r := openReceiver(t, transport, "q", 1)
	const delay = time.Second
	if err := take(t, r, 1)[0].Postpone(t.Context(), delay, errors.New("failed")); err != nil {
		t.Fatal(err)
	}
	due := time.Now().Add(delay)
	await(t, "it is received, and kept", func() bool { return s.Count(sbserver.OpDeliver, "q") == 2 })
	groups(t, transport, "b")
	b := take(t, r, 1)[0]
	awaitTime(t, due.Add(delay/2)) // there is no place for it
	complete(t, b)
	complete(t, take(t, r, 1)[0])
	if n := s.Count(sbserver.OpAbandon, "q"); n != 1 {
		t.Errorf("%d messages were given back, want the one that was postponed", n)
	}
}

func TestPostpone_IsReleasedUncountedByAReceiverThatCloses(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{AcceptTimeout: longestLock}) // a request for another session takes the only place at the same time
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a")
	r := openReceiver(t, transport, "q", 1)
	if err := take(t, r, 1)[0].Postpone(t.Context(), time.Second, nil); err != nil {
		t.Fatal(err)
	}
	await(t, "it is received, and kept", func() bool { return s.Count(sbserver.OpDeliver, "q") == 2 })
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := take(t, openReceiver(t, transport, "q", 1), 1)[0]
	if n := d.Incoming().DeliveryCount; n != 1 {
		t.Errorf("it is delivery %d", n)
	}
	complete(t, d)
}

func TestSession_LockThatEndsLeavesItsPlace(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	if err := s.Broker().CreateQueue("q", properties.Queue{RequiresSession: true, LockDuration: time.Second, MaxDeliveryCount: 2000}); err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, asb.Config{SessionQueues: []string{"q"}})
	groups(t, transport, "a")
	r := openReceiver(t, transport, "q", 1)
	take(t, r, 1) // and never settles it
	if body := take(t, r, 1)[0].Incoming().Body; string(body) != "a 0" {
		t.Errorf("%q came", body)
	}
}

func TestSession_RenewMovesTheEndOfTheLock(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a")
	d := take(t, openReceiver(t, transport, "q", 1), 1)[0]
	before := d.LockedUntil()
	await(t, "a renewal moves the end of the lock", func() bool {
		if err := d.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		return d.LockedUntil().After(before)
	})
}

// A message that is given back because there is no place for it any more must not hold its session.
func TestSession_ReleasedAtAPauseIsReceivedAfterIt(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a")
	r := openReceiver(t, transport, "q", 1)
	await(t, "it arrives without a Receive", func() bool { return s.Count(sbserver.OpDeliver, "q") == 1 })
	r.SetMaxInFlight(0)
	await(t, "it is given back", func() bool { return s.Count(sbserver.OpAbandon, "q") == 1 })
	r.SetMaxInFlight(1)
	d := take(t, r, 1)[0]
	if n := d.Incoming().DeliveryCount; n != 1 {
		t.Errorf("it is delivery %d", n)
	}
	complete(t, d)
}

func TestSession_KeepsItsPlacesWhereThereAreNoSessions(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{AcceptTimeout: 50 * time.Millisecond})
	transport := s.ordered(t, longestLock)
	r := openReceiver(t, transport, "q", 2)
	await(t, "it has asked for sessions in vain", func() bool { return s.Count(sbserver.OpAttachReceiver, "q") >= 5 })
	groups(t, transport, "a", "b")
	take(t, r, 2)
}

// The server's clock stands still: the session's lock lasts, but the receiver cannot know that.
func TestSession_IsRenewedBetweenMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for half of a lock, which is long since a slow machine must not wait for all of it: not in short runs")
	}
	t.Parallel()
	const lock = 16 * time.Second
	for name, fails := range map[string]bool{"renewed": false, "the renewal fails": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, stoppedClock())
			transport := s.ordered(t, lock)
			groups(t, transport, "a", "a", "a")
			r := openReceiver(t, transport, "q", 1)
			d := take(t, r, 1)[0]
			awaitTime(t, d.LockedUntil().Add(-lock/2))
			if fails {
				s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpRenewSession}, Action: sbserver.Refuse})
			}
			complete(t, d)
			d = take(t, r, 1)[0]
			if n := s.Count(sbserver.OpRenewSession, "q"); n != 1 { // before the next one, which follows d
				t.Errorf("the session's lock was renewed %d times", n)
			}
			complete(t, d)
			complete(t, take(t, r, 1)[0])
		})
	}
}

func TestPostpone_KeepsTheSessionForLongerThanItsLock(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a lock would have ended: not in short runs")
	}
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	const lock = 16 * time.Second // half of which is left when it is renewed, while a request for another session takes a minute, and the only place
	transport := s.ordered(t, lock)
	groups(t, transport, "a", "a")
	r := openReceiver(t, transport, "q", 1)
	if err := take(t, r, 1)[0].Postpone(t.Context(), lock+time.Second, errors.New("failed")); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a 0", "a 1"} {
		d := take(t, r, 1)[0]
		if in := d.Incoming(); string(in.Body) != want || in.DeliveryCount != 2-i {
			t.Errorf("%q came, delivery %d; want %q, %d", in.Body, in.DeliveryCount, want, 2-i)
		}
		complete(t, d)
	}
	if s.Count(sbserver.OpRenewSession, "q") == 0 {
		t.Error("the session's lock was not renewed")
	}
}

// The service tells no end of the lock of a session's message, but the largest date that .NET has.
func TestSession_MessagesDoNotTellTheTime(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a")
	r := openReceiver(t, transport, "q", 1)
	complete(t, take(t, r, 1)[0])
	if err := transport.Send(t.Context(), core.Outgoing{ID: "lives", Queue: "q", GroupKey: "b", TimeToBeReceived: time.Hour}); err != nil {
		t.Fatal(err)
	}
	d := take(t, r, 1)[0]
	if left := time.Until(d.LockedUntil()); left <= 0 || left > longestLock {
		t.Errorf("%q is locked for %v", d.Incoming().ID, left)
	}
	complete(t, d)
	if err := transport.Send(t.Context(), core.Outgoing{ID: "delayed", Queue: "q", GroupKey: "c", Delay: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	complete(t, take(t, r, 1)[0])
}

// Over a network the first message of a session takes longer than the receiver waits for the next one.
func TestSession_FirstMessageMayTakeLong(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{Latency: 150 * time.Millisecond})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a", "b")
	r := openReceiver(t, transport, "q", 1)
	for range 2 {
		complete(t, take(t, r, 1)[0])
	}
}
