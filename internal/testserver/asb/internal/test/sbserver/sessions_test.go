//go:build darwin || linux

package sbserver_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// openSessions is open with a queue q that has sessions.
func openSessions(t *testing.T, cfg sbserver.Config) *namespace {
	t.Helper()
	n := open(t, cfg)
	n.ok(n.Broker().CreateQueue("q", properties.Queue{RequiresSession: true}))
	return n
}

func (n *namespace) sendSession(id string, bodies ...string) {
	n.t.Helper()
	s := n.sender("q")
	defer s.Close(n.ctx)
	for _, body := range bodies {
		n.ok(s.SendMessage(n.ctx, &azservicebus.Message{Body: []byte(body), SessionID: &id}, nil))
	}
}

func (n *namespace) accept(id string) *azservicebus.SessionReceiver {
	n.t.Helper()
	r, err := n.client.AcceptSessionForQueue(n.ctx, "q", id, nil)
	n.ok(err)
	return r
}

func TestSession_OneReceiverAtATime(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{})
	first := n.accept("x")
	_, err := n.client.AcceptSessionForQueue(n.ctx, "q", "x", nil)
	n.condition(err, "com.microsoft:session-cannot-be-locked")
	n.ok(first.Close(n.ctx))
	n.await("the end of the lock", func() bool {
		r, err := n.client.AcceptSessionForQueue(n.ctx, "q", "x", nil)
		if err != nil {
			n.condition(err, "com.microsoft:session-cannot-be-locked")
			return false
		}
		n.ok(r.Close(n.ctx))
		return true
	})
}

func TestSession_NextWaitsForAMessage(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{})
	accepted := make(chan *azservicebus.SessionReceiver, 1)
	go func() {
		r, err := n.client.AcceptNextSessionForQueue(n.ctx, "q", nil)
		if err != nil {
			t.Error(err)
		}
		accepted <- r
	}()
	n.await("the attach", func() bool { return n.Count(sbserver.OpAttachReceiver, "q") == 1 })
	n.sendSession("z", "a")
	r := <-accepted
	if r.SessionID() != "z" {
		t.Errorf("session %q", r.SessionID())
	}
	n.ok(r.CompleteMessage(n.ctx, n.receive(r, "a"), nil))
}

func TestSession_NextTimesOut(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{AcceptTimeout: time.Millisecond})
	conn, err := amqp.Dial(n.ctx, "amqp://"+n.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	n.ok(err)
	defer conn.Close()
	putToken(n, conn, "amqp://host/q")
	session, err := conn.NewSession(n.ctx, nil)
	n.ok(err)
	for _, properties := range []map[string]any{nil, {"com.microsoft:timeout": uint32(1)}} {
		_, err = session.NewReceiver(n.ctx, "q", &amqp.ReceiverOptions{
			Properties: properties, Filters: []amqp.LinkFilter{amqp.NewLinkFilter("com.microsoft:session-filter", 0x137000000C, nil)},
		})
		n.condition(err, "com.microsoft:timeout")
	}
}

// putToken authorizes a raw connection as the SDK does.
func putToken(n *namespace, conn *amqp.Conn, audience string) {
	n.t.Helper()
	status := request(n, conn, "$cbs", &amqp.Message{
		ApplicationProperties: map[string]any{"operation": "put-token", "type": "jwt", "name": audience},
		Value:                 "token",
	}).ApplicationProperties["status-code"]
	if status != int32(202) {
		n.t.Fatalf("status %v of put-token", status)
	}
}

// request sends a request to a node and returns the reply.
func request(n *namespace, conn *amqp.Conn, node string, m *amqp.Message) *amqp.Message {
	n.t.Helper()
	session, err := conn.NewSession(n.ctx, nil)
	n.ok(err)
	defer session.Close(n.ctx)
	sender, err := session.NewSender(n.ctx, node, nil)
	n.ok(err)
	receiver, err := session.NewReceiver(n.ctx, node, &amqp.ReceiverOptions{
		TargetAddress: "reply", SettlementMode: amqp.ReceiverSettleModeFirst.Ptr(), RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	n.ok(err)
	m.Properties = &amqp.MessageProperties{MessageID: "id", ReplyTo: new("reply")}
	n.ok(sender.Send(n.ctx, m, nil))
	reply, err := receiver.Receive(n.ctx, nil)
	n.ok(err)
	if reply.Properties.CorrelationID != "id" {
		n.t.Errorf("correlation id %v", reply.Properties.CorrelationID)
	}
	return reply
}

func TestSession_LostLockEndsTheReceiver(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{})
	n.sendSession("x", "a", "b")
	r := n.accept("x")
	n.receive(r, "a")
	n.clock.Advance(time.Minute)
	second := n.accept("x")
	if err := r.RenewSessionLock(n.ctx, nil); err == nil {
		t.Error("the lock was renewed that another receiver has")
	}
	if m := n.receive(second, "a"); m.DeliveryCount != 2 {
		t.Errorf("delivery count %d", m.DeliveryCount)
	}
}

func TestSession_ClosedReceiverReleasesItsMessages(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{})
	n.sendSession("x", "a")
	r := n.accept("x")
	n.receive(r, "a")
	n.ok(r.Close(n.ctx))
	second, err := n.client.AcceptNextSessionForQueue(n.ctx, "q", nil)
	n.ok(err)
	if m := n.receive(second, "a"); m.DeliveryCount != 1 {
		t.Errorf("delivery count %d", m.DeliveryCount)
	}
}

func TestSession_DeferredMessageIsReceivedInItsSession(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{})
	n.sendSession("x", "a")
	r := n.accept("x")
	m := n.receive(r, "a")
	n.ok(r.DeferMessage(n.ctx, m, nil))
	other := n.accept("y")
	_, err := other.ReceiveDeferredMessages(n.ctx, []int64{*m.SequenceNumber}, nil)
	n.code(err, azservicebus.CodeNotFound)
	got, err := r.ReceiveDeferredMessages(n.ctx, []int64{*m.SequenceNumber}, nil)
	n.ok(err)
	n.ok(r.CompleteMessage(n.ctx, got[0], nil))
	n.empty("q")
}

func TestSession_AutomaticQueueGetsThemFromItsFirstReceiver(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.sendSession("x", "a")
	r := n.accept("x")
	n.ok(r.CompleteMessage(n.ctx, n.receive(r, "a"), nil))
}

func TestSession_Listed(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{})
	n.sendSession("x", "a")
	n.sendSession("y", "a")
	conn, err := amqp.Dial(n.ctx, "amqp://"+n.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	n.ok(err)
	defer conn.Close()
	putToken(n, conn, "amqp://host/q")
	list := func(skip int32) *amqp.Message {
		return request(n, conn, "q/$management", &amqp.Message{
			ApplicationProperties: map[string]any{"operation": "com.microsoft:get-message-sessions"},
			Value: map[string]any{
				"last-updated-time": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), "skip": skip, "top": int32(10),
			},
		})
	}
	body, _ := list(0).Value.(map[string]any)
	if ids, _ := body["sessions-ids"].([]string); !slices.Equal(ids, []string{"x", "y"}) {
		t.Errorf("sessions %v", body)
	}
	if status := list(2).ApplicationProperties["status-code"]; status != int32(204) {
		t.Errorf("status %v behind the last session", status)
	}
}

func TestSession_RenewedByItsOwnLinkOnly(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{})
	n.accept("x")
	conn, err := amqp.Dial(n.ctx, "amqp://"+n.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	n.ok(err)
	defer conn.Close()
	putToken(n, conn, "amqp://host/q")
	session, err := conn.NewSession(n.ctx, nil)
	n.ok(err)
	_, err = session.NewReceiver(n.ctx, "q", &amqp.ReceiverOptions{
		Name: "link", Filters: []amqp.LinkFilter{amqp.NewLinkFilter("com.microsoft:session-filter", 0x137000000C, "y")},
	})
	n.ok(err)
	for id, want := range map[string]int32{"x": 410, "y": 200} {
		reply := request(n, conn, "q/$management", &amqp.Message{
			ApplicationProperties: map[string]any{"operation": "com.microsoft:renew-session-lock", "associated-link-name": "link"},
			Value:                 map[string]any{"session-id": id},
		})
		if status := reply.ApplicationProperties["status-code"]; status != want {
			t.Errorf("session %s: status %v in place of %d", id, status, want)
		}
	}
}

func TestSession_ReceiverWithoutOneIsRefused(t *testing.T) {
	t.Parallel()
	n := openSessions(t, sbserver.Config{})
	_, err := n.receiver("q").ReceiveMessages(n.ctx, 1, nil)
	n.condition(err, amqp.ErrCondNotAllowed)
	err = n.sender("q").SendMessage(n.ctx, &azservicebus.Message{}, nil)
	if e := (&amqp.Error{}); !errors.As(err, &e) {
		t.Errorf("a message without a session: %v", err)
	}
}
