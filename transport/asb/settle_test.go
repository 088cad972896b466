//go:build darwin || linux

package asb_test

import (
	"errors"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/transport/asb"
)

// The service still has a message locked whose settlement failed.
func TestSession_MessageAfterFailedSettlementDoesNotOvertake(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	if err := s.Broker().CreateQueue("q", properties.Queue{RequiresSession: true, MaxDeliveryCount: 2000}); err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, asb.Config{SessionQueues: []string{"q"}})
	for _, id := range []string{"first", "second"} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: id, Queue: "q", GroupKey: "group"}); err != nil {
			t.Fatal(err)
		}
	}
	r := openReceiver(t, transport, "q", 1)
	first := take(t, r, 1)[0]
	remove := s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpComplete}, Times: -1, Action: sbserver.Refuse})
	if err := first.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("the settlement returned %v, want %v", err, core.ErrLockLost)
	}
	remove()
	for _, want := range []string{"first", "second"} {
		d := take(t, r, 1)[0]
		if got := d.Incoming().ID; got != want {
			t.Errorf("the message %q was received, want %q", got, want)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// The SDK repeats such a settlement in vain, and reports a success.
func TestDelivery_CompleteRefusedOnceIsRepeated(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	if err := s.Broker().CreateQueue("q", properties.Queue{MaxDeliveryCount: 2000}); err != nil {
		t.Fatal(err)
	}
	transport := s.open(t, asb.Config{})
	send(t, transport, "q", "message")
	d := take(t, openReceiver(t, transport, "q", 1), 1)[0]
	s.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpComplete}, Action: sbserver.Refuse})
	if err := d.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := s.Broker().Queue("q"); err != nil || info.Runtime.Active != 0 {
		t.Errorf("the queue has %d messages, %v; want none after a Complete that succeeded", info.Runtime.Active, err)
	}
}
