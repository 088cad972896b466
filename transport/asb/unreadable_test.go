//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// sendUnreadable sends a message at which the SDK panics.
func sendUnreadable(t *testing.T, s *site, queue, session string) {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(t.Context())) }()
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &azservicebus.AMQPAnnotatedMessage{
		ApplicationProperties: map[string]any{"DeadLetterReason": int64(5)},
		Properties:            &azservicebus.AMQPAnnotatedMessageProperties{MessageID: "unreadable"},
	}
	if session != "" {
		m.Properties.GroupID = &session
	}
	if err := sender.SendAMQPAnnotatedMessage(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
}

func TestReceiver_MessageThatTheSDKCannotReadBlocksNoOther(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"plain", "sessions"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{LockDuration: 5 * time.Second, SessionQueues: []string{"sessions"}}, queue)
			session := ""
			if queue == "sessions" {
				session = "group"
			}
			sendUnreadable(t, s, queue, session)
			send(t, transport, queue, "a", "b", "c") // which may come together with it
			r := openReceiver(t, transport, queue, 10)
			for i := range 20 {
				if i >= 3 {
					send(t, transport, queue, fmt.Sprint(i))
				}
				for err := core.ErrLockLost; err != nil; { // on a slow machine
					if err = take(t, r, 1)[0].Complete(t.Context()); err != nil && !errors.Is(err, core.ErrLockLost) {
						t.Fatal(err)
					}
				}
			}
			if info, err := s.Broker().Queue(queue); err != nil || info.Runtime.Active != 1 {
				t.Errorf("the queue has %d messages, %v; want the one that cannot be read", info.Runtime.Active, err)
			}
		})
	}
}

func TestSession_WhoseMessageCannotBeReadLeavesItsPlace(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	sendUnreadable(t, s, "q", "unreadable")
	var told changes
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 10, ConnectionChanged: told.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the observer is told", func() bool { return len(told.outages()) > 0 })
	groups(t, transport, "a", "b")
	for range 2 {
		complete(t, take(t, r, 1)[0])
	}
	if n := s.Count(sbserver.OpDeliver, "q"); n != 3 {
		t.Errorf("there were %d deliveries: the session of the message that cannot be read was taken again at once", n)
	}
}

func TestPurge_ReportsAMessageThatTheSDKCannotRead(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	sendUnreadable(t, s, "q", "")
	if err := transport.Check(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}); err != nil {
		t.Errorf("Check: %v", err)
	}
	if _, err := transport.Purge(t.Context(), "q"); err == nil {
		t.Error("Purge returned no error")
	}
}
