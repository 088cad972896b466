//go:build darwin || linux

package sbserver_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

func TestMessage_PropertiesArriveWithTheirTypes(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	sent := &azservicebus.Message{
		Body: []byte("body"),
		ApplicationProperties: map[string]any{
			"string": "s", "bool": true, "int32": int32(-7), "int64": int64(5), "float64": 1.5, "uint8": uint8(9),
			"time": time.UnixMilli(1_700_000_000_123).UTC(), "long": strings.Repeat("x", 300),
		},
		ContentType: new("application/json"), CorrelationID: new("c"), MessageID: new("m"), ReplyTo: new("r"),
		ReplyToSessionID: new("rs"), Subject: new("s"), To: new("t"), PartitionKey: new("p"),
	}
	n.ok(n.sender("q").SendMessage(n.ctx, sent, nil))
	r := n.receiver("q")
	got := n.receive(r, "body")
	for name, want := range sent.ApplicationProperties {
		got := got.ApplicationProperties[name]
		if at, ok := got.(time.Time); ok {
			got = at.UTC()
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("property %s is %#v in place of %#v", name, got, want)
		}
	}
	for name, pair := range map[string][2]*string{
		"content type": {got.ContentType, sent.ContentType}, "correlation id": {got.CorrelationID, sent.CorrelationID},
		"message id": {&got.MessageID, sent.MessageID}, "reply to": {got.ReplyTo, sent.ReplyTo},
		"reply-to session": {got.ReplyToSessionID, sent.ReplyToSessionID}, "subject": {got.Subject, sent.Subject},
		"to": {got.To, sent.To}, "partition key": {got.PartitionKey, sent.PartitionKey},
	} {
		if pair[0] == nil || *pair[0] != *pair[1] {
			t.Errorf("%s is %v in place of %q", name, pair[0], *pair[1])
		}
	}
	if got.DeliveryCount != 1 || *got.SequenceNumber != 1 || !got.EnqueuedTime.Equal(n.clock.Now()) || !got.LockedUntil.Equal(n.clock.Now().Add(time.Minute)) {
		t.Errorf("delivery %d, number %d, enqueued %v, locked until %v", got.DeliveryCount, *got.SequenceNumber, got.EnqueuedTime, got.LockedUntil)
	}
	n.ok(r.CompleteMessage(n.ctx, got, nil))
	n.empty("q")
}

func TestAbandon_RaisesDeliveryCountAndChangesProperties(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.send("q", "a")
	r := n.receiver("q")
	id := amqp.UUID{1}
	for delivery := uint32(1); delivery <= 3; delivery++ {
		m := n.receive(r, "a")
		if m.DeliveryCount != delivery {
			t.Fatalf("delivery count %d at delivery %d", m.DeliveryCount, delivery)
		}
		if delivery > 1 && m.ApplicationProperties["try"] != int64(delivery-1) {
			t.Errorf("properties %v at delivery %d", m.ApplicationProperties, delivery)
		}
		n.ok(r.AbandonMessage(n.ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"try": int64(delivery), "id": id}}))
	}
	if m := n.receive(r, "a"); m.ApplicationProperties["id"] != id {
		t.Errorf("property of the type UUID is %#v", m.ApplicationProperties["id"])
	}
}

func TestLock_ExpiresAndLateCompleteIsRefused(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.send("q", "a")
	r, other := n.receiver("q"), n.receiver("q")
	expired := n.receive(r, "a")
	n.clock.Advance(time.Minute)
	redelivered := n.receive(other, "a")
	if redelivered.DeliveryCount != 2 {
		t.Errorf("delivery count %d after the lock has expired", redelivered.DeliveryCount)
	}
	n.code(r.CompleteMessage(n.ctx, expired, nil), azservicebus.CodeLockLost)
	n.ok(other.CompleteMessage(n.ctx, redelivered, nil))
	n.empty("q")
}

func TestRenewMessageLock_KeepsTheLock(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.send("q", "a")
	r := n.receiver("q")
	m := n.receive(r, "a")
	n.clock.Advance(50 * time.Second)
	n.ok(r.RenewMessageLock(n.ctx, m, nil))
	if !m.LockedUntil.Equal(n.clock.Now().Add(time.Minute)) {
		t.Errorf("locked until %v at %v", m.LockedUntil, n.clock.Now())
	}
	n.clock.Advance(50 * time.Second)
	n.ok(r.CompleteMessage(n.ctx, m, nil))
	n.empty("q")
	n.code(r.RenewMessageLock(n.ctx, m, nil), azservicebus.CodeLockLost)
}

func TestDeadLetter_HasReasonAndProperties(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.send("q", "a")
	r := n.receiver("q")
	n.ok(r.DeadLetterMessage(n.ctx, n.receive(r, "a"), &azservicebus.DeadLetterOptions{
		Reason: new("why"), ErrorDescription: new("because"), PropertiesToModify: map[string]any{"p": int64(1)},
	}))
	n.empty("q")
	dead := n.deadLetters("q")
	peeked, err := dead.PeekMessages(n.ctx, 10, nil)
	n.ok(err)
	if len(peeked) != 1 {
		t.Errorf("peeked %d dead letters", len(peeked))
	}
	m := n.receive(dead, "a")
	n.ok(dead.RenewMessageLock(n.ctx, m, nil))
	if *m.DeadLetterReason != "why" || *m.DeadLetterErrorDescription != "because" || m.ApplicationProperties["p"] != int64(1) {
		t.Errorf("reason %q, description %q, properties %v", *m.DeadLetterReason, *m.DeadLetterErrorDescription, m.ApplicationProperties)
	}
	n.ok(dead.CompleteMessage(n.ctx, m, nil))
	n.empty("q/$DeadLetterQueue")
	if count := n.Count(sbserver.OpConnect, ""); count != 1 { // a reply with an error would have the SDK reconnect
		t.Errorf("%d connections", count)
	}
}

func TestMaxDeliveryCount_MovesToDeadLetterQueue(t *testing.T) {
	t.Parallel()
	cfg := sbserver.Config{}
	cfg.Broker.AutoQueue.MaxDeliveryCount = 3
	n := open(t, cfg)
	n.send("q", "a")
	r := n.receiver("q")
	for range 3 {
		n.ok(r.AbandonMessage(n.ctx, n.receive(r, "a"), nil))
	}
	n.empty("q")
	if m := n.receive(n.deadLetters("q"), "a"); *m.DeadLetterReason != "MaxDeliveryCountExceeded" {
		t.Errorf("reason %q", *m.DeadLetterReason)
	}
}

func TestScheduledEnqueueTime_DelaysTheMessage(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	at := n.clock.Now().Add(time.Hour)
	n.ok(n.sender("q").SendMessage(n.ctx, &azservicebus.Message{Body: []byte("later"), ScheduledEnqueueTime: &at}, nil))
	n.send("q", "now")
	r := n.receiver("q")
	n.ok(r.CompleteMessage(n.ctx, n.receive(r, "now"), nil))
	n.clock.Advance(time.Hour)
	m := n.receive(r, "later")
	if !m.EnqueuedTime.Equal(at) || !m.ScheduledEnqueueTime.Equal(at) {
		t.Errorf("enqueued at %v, scheduled for %v", m.EnqueuedTime, m.ScheduledEnqueueTime)
	}
}

func TestScheduleMessages_CancelledOneDoesNotArrive(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	s := n.sender("q")
	numbers, err := s.ScheduleMessages(n.ctx, []*azservicebus.Message{{Body: []byte("a")}, {Body: []byte("b")}}, n.clock.Now().Add(time.Minute), nil)
	n.ok(err)
	n.ok(s.CancelScheduledMessages(n.ctx, numbers[:1], nil))
	n.clock.Advance(time.Minute)
	r := n.receiver("q")
	n.ok(r.CompleteMessage(n.ctx, n.receive(r, "b"), nil))
	n.empty("q")
	n.code(s.CancelScheduledMessages(n.ctx, numbers, nil), azservicebus.CodeNotFound)
}

func TestBatch_ArrivesInOrder(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	bodies := numbered("m", 100)
	n.sendBatch("q", bodies)
	r := n.receiver("q")
	for _, body := range bodies {
		m := n.receive(r, body)
		if m.ApplicationProperties["body"] != body {
			t.Fatalf("message %q has the properties %v", body, m.ApplicationProperties)
		}
		n.ok(r.CompleteMessage(n.ctx, m, nil))
	}
	if count := n.Count(sbserver.OpSend, "q"); count != 1 {
		t.Errorf("%d sends were counted", count)
	}
}

// sendBatch sends messages in as few batches as it takes.
func (n *namespace) sendBatch(queue string, bodies []string) {
	n.t.Helper()
	s := n.sender(queue)
	defer s.Close(n.ctx)
	batch, err := s.NewMessageBatch(n.ctx, nil)
	n.ok(err)
	for _, body := range bodies {
		m := &azservicebus.Message{Body: []byte(body), ApplicationProperties: map[string]any{"body": body}}
		err := batch.AddMessage(m, nil)
		if errors.Is(err, azservicebus.ErrMessageTooLarge) {
			n.ok(s.SendMessageBatch(n.ctx, batch, nil))
			batch, err = s.NewMessageBatch(n.ctx, nil)
			n.ok(err)
			err = batch.AddMessage(m, nil)
		}
		n.ok(err)
	}
	n.ok(s.SendMessageBatch(n.ctx, batch, nil))
}

func TestTopic_CopiesToSubscriptions(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.ok(n.Broker().CreateTopic("t", properties.Topic{}))
	for _, name := range []string{"s1", "s2"} {
		n.ok(n.Broker().CreateSubscription("t", name, properties.Subscription{}, rules.Rule{}))
	}
	n.send("t", "a")
	for _, name := range []string{"s1", "s2"} {
		r, err := n.client.NewReceiverForSubscription("t", name, nil)
		n.ok(err)
		n.ok(r.DeadLetterMessage(n.ctx, n.receive(r, "a"), nil))
		dead, err := n.client.NewReceiverForSubscription("t", name, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
		n.ok(err)
		n.ok(dead.CompleteMessage(n.ctx, n.receive(dead, "a"), nil))
	}
}

func TestDefer_ReceivedByItsNumberOnly(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.send("q", "a", "b")
	r := n.receiver("q")
	m := n.receive(r, "a")
	n.ok(r.DeferMessage(n.ctx, m, nil))
	n.ok(r.CompleteMessage(n.ctx, n.receive(r, "b"), nil))
	got, err := r.ReceiveDeferredMessages(n.ctx, []int64{*m.SequenceNumber}, nil)
	n.ok(err)
	if len(got) != 1 || string(got[0].Body) != "a" {
		t.Fatalf("received %v", got)
	}
	n.ok(r.RenewMessageLock(n.ctx, got[0], nil))
	n.ok(r.AbandonMessage(n.ctx, got[0], &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"p": "v"}}))
	got, err = r.ReceiveDeferredMessages(n.ctx, []int64{*m.SequenceNumber}, nil)
	n.ok(err)
	if got[0].ApplicationProperties["p"] != "v" {
		t.Errorf("properties %v", got[0].ApplicationProperties)
	}
	n.ok(r.CompleteMessage(n.ctx, got[0], nil))
	n.empty("q")
	_, err = r.ReceiveDeferredMessages(n.ctx, []int64{*m.SequenceNumber}, nil)
	n.code(err, azservicebus.CodeNotFound)
}

func TestPeek_ReturnsMessagesInAnyState(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	r := n.receiver("q")
	none, err := r.PeekMessages(n.ctx, 10, nil)
	n.ok(err)
	if len(none) != 0 {
		t.Errorf("peeked %d messages of an empty queue", len(none))
	}
	at := n.clock.Now().Add(time.Hour)
	n.send("q", "a", "b")
	n.ok(n.sender("q").SendMessage(n.ctx, &azservicebus.Message{Body: []byte("c"), ScheduledEnqueueTime: &at}, nil))
	n.ok(r.DeferMessage(n.ctx, n.receive(r, "a"), nil))
	peeked, err := r.PeekMessages(n.ctx, 10, nil)
	n.ok(err)
	states := map[string]azservicebus.MessageState{}
	for _, m := range peeked {
		states[string(m.Body)] = m.State
	}
	want := map[string]azservicebus.MessageState{
		"a": azservicebus.MessageStateDeferred, "b": azservicebus.MessageStateActive, "c": azservicebus.MessageStateScheduled,
	}
	if !maps.Equal(states, want) {
		t.Errorf("states %v", states)
	}
}

func TestReceiveAndDelete_RemovesTheMessage(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.send("q", "a", "b")
	r := n.receiverWith("q", azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	n.receive(r, "a")
	n.receive(r, "b")
	n.empty("q")
}

func TestTimeToLive_ExpiredMessageIsGone(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.ok(n.sender("q").SendMessage(n.ctx, &azservicebus.Message{Body: []byte("a"), TimeToLive: to.Ptr(time.Minute)}, nil))
	n.clock.Advance(time.Minute)
	n.empty("q")
	n.ok(n.Broker().CreateQueue("dead", properties.Queue{DeadLetteringOnMessageExpiration: true}))
	n.ok(n.sender("dead").SendMessage(n.ctx, &azservicebus.Message{Body: []byte("a"), TimeToLive: to.Ptr(time.Minute)}, nil))
	n.clock.Advance(time.Minute)
	if m := n.receive(n.deadLetters("dead"), "a"); *m.DeadLetterReason != "TTLExpiredException" {
		t.Errorf("reason %q", *m.DeadLetterReason)
	}
}

func TestMessage_LargeOnesTakeManyFrames(t *testing.T) {
	t.Parallel()
	cfg := sbserver.Config{}
	cfg.Broker.Tier = properties.Premium
	n := open(t, cfg)
	body := make([]byte, 900_000)
	rand.Read(body)
	s := n.sender("q")
	n.ok(s.SendMessage(n.ctx, &azservicebus.Message{Body: body}, nil))
	r := n.receiver("q")
	ms, err := r.ReceiveMessages(n.ctx, 1, nil)
	n.ok(err)
	if !bytes.Equal(ms[0].Body, body) {
		t.Error("the body has changed")
	}
	n.ok(r.CompleteMessage(n.ctx, ms[0], nil))
	if err := s.SendMessage(n.ctx, &azservicebus.Message{Body: make([]byte, 1<<20)}, nil); !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		t.Errorf("a message of 1 MiB and its header: %v", err)
	}
	n.ok(s.SendMessage(n.ctx, &azservicebus.Message{Body: []byte("small")}, nil))
}

func TestReceivers_ShareManyMessages(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	const total = 2000
	n.sendBatch("q", numbered("m", total))
	var mu sync.Mutex
	seen := map[string]int{}
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(n.ctx)
	for range 4 {
		c := connect(t, n.ConnectionString())
		all.Go(func() {
			r, err := c.NewReceiverForQueue("q", nil)
			if err != nil {
				t.Error(err)
				return
			}
			for {
				ms, err := r.ReceiveMessages(ctx, 50, nil)
				if err != nil {
					if n.ctx.Err() != nil || !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				for _, m := range ms {
					if err := r.CompleteMessage(n.ctx, m, nil); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					seen[string(m.Body)]++
					whole := len(seen) == total
					mu.Unlock()
					if whole {
						stop()
					}
				}
			}
		})
	}
	all.Wait()
	stop()
	for _, body := range numbered("m", total) {
		if seen[body] != 1 {
			t.Errorf("message %s was received %d times", body, seen[body])
		}
	}
}

func TestSession_MessagesAndState(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.ok(n.Broker().CreateQueue("q", properties.Queue{RequiresSession: true}))
	s := n.sender("q")
	for i := range 3 {
		for _, id := range []string{"x", "y"} {
			n.ok(s.SendMessage(n.ctx, &azservicebus.Message{Body: fmt.Append(nil, id, i), SessionID: &id}, nil))
		}
	}
	y, err := n.client.AcceptSessionForQueue(n.ctx, "q", "y", nil)
	n.ok(err)
	if !y.LockedUntil().Equal(n.clock.Now().Add(time.Minute)) {
		t.Errorf("locked until %v at %v", y.LockedUntil(), n.clock.Now())
	}
	next, err := n.client.AcceptNextSessionForQueue(n.ctx, "q", nil)
	n.ok(err)
	if next.SessionID() != "x" {
		t.Fatalf("the next session is %q", next.SessionID())
	}
	for i := range 3 {
		m := n.receive(y, fmt.Sprint("y", i))
		if m.SessionID == nil || *m.SessionID != "y" {
			t.Errorf("message of session %v", m.SessionID)
		}
		n.ok(y.CompleteMessage(n.ctx, m, nil))
	}
	state, err := y.GetSessionState(n.ctx, nil)
	n.ok(err)
	if state != nil {
		t.Errorf("state %q of a new session", state)
	}
	n.ok(y.SetSessionState(n.ctx, []byte("state"), nil))
	n.clock.Advance(30 * time.Second)
	n.ok(y.RenewSessionLock(n.ctx, nil))
	if !y.LockedUntil().Equal(n.clock.Now().Add(time.Minute)) {
		t.Errorf("locked until %v at %v", y.LockedUntil(), n.clock.Now())
	}
	n.ok(y.Close(n.ctx))
	// "When a session is detached there's a delay before we can reacquire the lock" (azservicebus v1.11.0, errors.go).
	n.await("the end of the session's lock", func() bool {
		y, err = n.client.AcceptSessionForQueue(n.ctx, "q", "y", nil)
		if err != nil {
			n.condition(err, "com.microsoft:session-cannot-be-locked")
		}
		return err == nil
	})
	state, err = y.GetSessionState(n.ctx, nil)
	n.ok(err)
	if string(state) != "state" {
		t.Errorf("state %q", state)
	}
	n.ok(y.SetSessionState(n.ctx, nil, nil))
	if state, err := y.GetSessionState(n.ctx, nil); err != nil || state != nil {
		t.Errorf("state %q, %v after it was cleared", state, err)
	}
}
