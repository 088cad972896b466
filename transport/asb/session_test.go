//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestSessions_AreHandledSideBySide(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"q"}}, "q")
	const groups = 30
	for range 2 { // the second time there are many sessions whose receivers have been closed
		for i := range groups {
			if err := transport.Send(t.Context(), core.Outgoing{ID: fmt.Sprint(i), Queue: "q", GroupKey: fmt.Sprint("group ", i)}); err != nil {
				t.Fatal(err)
			}
		}
		r := openReceiver(t, transport, "q", groups)
		for _, d := range take(t, r, groups) { // none of them is settled before all have come
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestPostpone_IsObeyedByTheInstanceThatTakesTheSessionOver(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"q"}}, "q")
	for _, id := range []string{"first", "second"} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: id, Queue: "q", GroupKey: "group"}); err != nil {
			t.Fatal(err)
		}
	}
	const delay = 3 * time.Second
	r := openReceiver(t, transport, "q", 5)
	first := take(t, r, 1)[0]
	due := time.Now().Add(delay)
	if err := first.Postpone(t.Context(), delay, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := openReceiver(t, s.open(t, asb.Config{SessionQueues: []string{"q"}}), "q", 5)
	for _, want := range []string{"first", "second"} {
		d := take(t, other, 1)[0]
		if in := d.Incoming(); in.ID != want || in.DeliveryCount != 1 || time.Now().Before(due) {
			t.Errorf("%q came %v after it was due, delivery %d; want %q", in.ID, time.Since(due), in.DeliveryCount, want)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestSessions_PauseWhereTheyAreLostRepeatedly(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"q"}}, "q")
	r := openReceiver(t, transport, "q", 1)
	remove := s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpDeliver}, Times: -1, Action: sbserver.Detach})
	if err := transport.Send(t.Context(), core.Outgoing{ID: "message", Queue: "q", GroupKey: "group"}); err != nil {
		t.Fatal(err)
	}
	opened := func() int { return s.Count(sbserver.OpAttachReceiver, "q") }
	await(t, "it takes the session again", func() bool { return opened() >= 3 })
	before, began := opened(), time.Now()
	await(t, "it has taken it eight times more", func() bool { return opened() >= before+8 })
	if took := time.Since(began); took < 100*time.Millisecond { // pauses of 25 ms at least
		t.Errorf("it took the session eight times in %v", took)
	}
	remove()
	take(t, r, 1)
}

func TestSessions_OpenOneConnectionAfterTheirConnectionWasLost(t *testing.T) {
	t.Parallel()
	const sessions = 8
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	for i := range sessions {
		if err := transport.Send(t.Context(), core.Outgoing{ID: strconv.Itoa(i), Queue: "q", GroupKey: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	r := openReceiver(t, transport, "q", sessions)
	taken := take(t, r, sessions)
	before := s.Count(sbserver.OpConnect, "")
	s.CutConnections()
	for _, d := range taken { // with its link, each session has lost its lock
		if err := d.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) || !strings.Contains(err.Error(), "the connection was lost") {
			t.Errorf("Complete returned %v", err)
		}
	}
	for _, d := range take(t, r, sessions) {
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if opened := s.Count(sbserver.OpConnect, "") - before; opened != 1 {
		t.Errorf("%d connections were opened; want 1", opened)
	}
}

// The service takes longer for a message than a receiver waits for the next one of a
// session, and would give the session to another request.
func TestSession_KeepsTheOrderInNoneWhereAMessageArrivesLate(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "group", "group", "group", "group", "group")
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpDeliver}, Skip: 2, Delay: 300 * time.Millisecond})
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionNone, MaxInFlight: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.WithoutCancel(t.Context())) })
	for i, d := range take(t, r, 5) {
		if got, want := string(d.Incoming().Body), fmt.Sprint("group ", i); got != want {
			t.Errorf("delivery %d is %q, want %q", i, got, want)
		}
	}
}

// Without a session the service refuses the link after a minute. The SDK then waits for another minute for the service to confirm
// the end of the link's session.
func TestSessions_AreAcceptedWhereTheEndOfALinkIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for more than a minute for a session: not in short runs")
	}
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	r := openReceiver(t, s.ordered(t, longestLock), "q", 1)
	asked := func() int { return s.Count(sbserver.OpAttachReceiver, "q") }
	await(t, "the receiver waits for a session", func() bool { return asked() == 1 })
	s.LoseEnds()
	bounded(t, "the next request for a session", func() bool {
		await(t, "it is made", func() bool { return asked() > 1 })
		return true
	})
	if err := s.ordered(t, longestLock).Send(t.Context(), core.Outgoing{ID: "message", Queue: "q", GroupKey: "group"}); err != nil {
		t.Fatal(err)
	}
	complete(t, take(t, r, 1)[0])
}
