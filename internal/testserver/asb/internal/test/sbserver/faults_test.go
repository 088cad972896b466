//go:build darwin || linux

package sbserver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// bodies returns the bodies of a queue's messages in any state.
func (n *namespace) bodies(queue string) []string {
	n.t.Helper()
	messages, err := n.Broker().Peek(queue, 0, 1000, nil)
	n.ok(err)
	var all []string
	for _, m := range messages {
		all = append(all, string(m.Body()))
	}
	return all
}

func TestFault_OfASend(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault sbserver.Fault
		sends int      // that the server sees
		want  []string // in the queue afterwards
	}{
		"server busy twice":              {sbserver.Fault{Action: sbserver.Refuse, Times: 2}, 3, []string{"a"}},
		"reply delayed":                  {sbserver.Fault{TakesEffect: true, Delay: 10 * time.Millisecond}, 1, []string{"a"}},
		"effect delayed":                 {sbserver.Fault{Delay: 10 * time.Millisecond}, 1, []string{"a"}},
		"connection cut before":          {sbserver.Fault{Action: sbserver.Cut}, 2, []string{"a"}},
		"connection cut after":           {sbserver.Fault{Action: sbserver.Cut, TakesEffect: true}, 2, []string{"a", "a"}},
		"connection closed after":        {sbserver.Fault{Action: sbserver.CloseConnection, TakesEffect: true}, 2, []string{"a", "a"}},
		"link detached before":           {sbserver.Fault{Action: sbserver.Detach}, 2, []string{"a"}},
		"link detached after":            {sbserver.Fault{Action: sbserver.Detach, TakesEffect: true}, 2, []string{"a", "a"}},
		"refused although it has effect": {sbserver.Fault{Action: sbserver.Refuse, TakesEffect: true}, 2, []string{"a", "a"}},
		"another entity":                 {sbserver.Fault{Entity: "other", Action: sbserver.Refuse}, 1, []string{"a"}},
		"later":                          {sbserver.Fault{Skip: 1, Action: sbserver.Refuse}, 1, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := open(t, sbserver.Config{})
			tt.fault.Ops = []sbserver.Op{sbserver.OpSend}
			n.Inject(tt.fault)
			n.send("q", "a")
			if got := n.Count(sbserver.OpSend, "Q"); got != tt.sends {
				t.Errorf("%d sends in place of %d", got, tt.sends)
			}
			if got := n.bodies("q"); !slices.Equal(got, tt.want) {
				t.Errorf("the queue has %q in place of %q", got, tt.want)
			}
		})
	}
}

func TestFault_RemovedActsNoMore(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	remove := n.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpSend}, Times: -1, Action: sbserver.Refuse, Error: &amqp10.Error{Condition: "amqp:not-allowed", Description: "no"}})
	s := n.sender("q")
	for range 3 {
		var e *amqp.Error
		if err := s.SendMessage(n.ctx, &azservicebus.Message{}, nil); !errors.As(err, &e) || e.Description != "no" {
			t.Errorf("error %v", err)
		}
	}
	remove()
	n.ok(s.SendMessage(n.ctx, &azservicebus.Message{}, nil))
}

func TestFault_CompletionWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]sbserver.Fault{
		"reply lost":     {Action: sbserver.Silence, TakesEffect: true},
		"connection cut": {Action: sbserver.Cut, TakesEffect: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := open(t, sbserver.Config{})
			n.send("q", "a")
			r := n.receiver("q")
			m := n.receive(r, "a")
			fault.Ops = []sbserver.Op{sbserver.OpComplete}
			n.Inject(fault)
			if err := n.completeUntilCounted(r, m); err == nil {
				t.Error("the completion succeeded without a reply")
			}
			n.await("the effect", func() bool { return len(n.bodies("q")) == 0 })
		})
	}
}

// completeUntilCounted completes a message, and gives up when the server has had the completion.
func (n *namespace) completeUntilCounted(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	completed := make(chan error, 1)
	go func() { completed <- r.CompleteMessage(ctx, m, nil) }()
	n.await("the completion", func() bool { return n.Count(sbserver.OpComplete, "q") == 1 })
	cancel()
	return <-completed
}

func TestFault_CompletionThatIsLost(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.send("q", "a")
	r := n.receiver("q")
	m := n.receive(r, "a")
	n.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpComplete}, Action: sbserver.Silence})
	if err := n.completeUntilCounted(r, m); !errors.Is(err, context.Canceled) {
		t.Errorf("the completion without a reply: %v", err)
	}
	n.ok(r.CompleteMessage(n.ctx, m, nil)) // the client sends the outcome again
	n.empty("q")
}

func TestFault_DeliveryThatIsLost(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpDeliver}, Action: sbserver.Silence})
	n.send("q", "a")
	r := n.receiver("q")
	got := make(chan *azservicebus.ReceivedMessage, 1)
	go func() { got <- n.receive(r, "a") }()
	n.await("the first delivery", func() bool { return n.Count(sbserver.OpDeliver, "q") == 1 })
	n.clock.Advance(time.Minute)
	if m := <-got; m.DeliveryCount != 2 {
		t.Errorf("delivery count %d", m.DeliveryCount)
	}
}

func TestReceiver_ReconnectsAfter(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(*namespace){
		"the link was detached": func(n *namespace) {
			if got := n.DetachLinks("Q", amqp10.Errorf(amqp10.ErrDetachForced, "idle")); got != 1 {
				n.t.Errorf("%d links were detached", got)
			}
		},
		"connections were closed": func(n *namespace) {
			n.CloseConnections(amqp10.Errorf(amqp10.ErrConnectionForced, "maintenance"))
		},
		"connections were cut": func(n *namespace) { n.CutConnections() },
		"the server was restarted": func(n *namespace) {
			n.ok(n.Kill())
			n.ok(n.Restart())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := open(t, sbserver.Config{})
			n.send("q", "a")
			r := n.receiver("q")
			n.ok(r.CompleteMessage(n.ctx, n.receive(r, "a"), nil))
			disturb(n)
			n.send("q", "b")
			var ms []*azservicebus.ReceivedMessage
			for len(ms) == 0 { // the receive that notices the loss returns nothing
				var err error
				ms, err = r.ReceiveMessages(n.ctx, 1, nil)
				n.ok(err)
			}
			n.ok(r.CompleteMessage(n.ctx, ms[0], nil))
			n.empty("q")
		})
	}
}

func TestRestart_JournalKeepsMessagesAndLocks(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{Broker: broker.Config{Dir: t.TempDir()}})
	n.send("q", "a", "b")
	r := n.receiver("q")
	n.receive(r, "a")
	n.ok(n.Kill())
	if _, err := connect(t, n.ConnectionString()).NewSender("q", nil); err != nil {
		t.Fatal(err)
	}
	n.ok(n.Restart())
	if err := n.Restart(); err == nil {
		t.Error("a server that runs was started again")
	}
	second := n.receiver("q")
	n.receive(second, "b")
	n.clock.Advance(time.Minute)
	if m := n.receive(second, "a"); m.DeliveryCount != 2 {
		t.Errorf("delivery count %d", m.DeliveryCount)
	}
}

func TestExpireLocks_LosesTheLock(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.send("q", "a")
	r := n.receiver("q")
	m := n.receive(r, "a")
	count, err := n.ExpireLocks("q")
	n.ok(err)
	if count != 1 {
		t.Errorf("%d locks ended", count)
	}
	n.code(r.CompleteMessage(n.ctx, m, nil), azservicebus.CodeLockLost)
}

func TestToken_Refused(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.RefuseTokens(func(audience, _ string) error {
		if strings.HasSuffix(audience, "/secret") {
			return errors.New("not this one")
		}
		return nil
	})
	n.send("q", "a")
	err := n.sender("secret").SendMessage(n.ctx, &azservicebus.Message{}, nil)
	n.code(err, azservicebus.CodeUnauthorizedAccess)
	n.RefuseTokens(nil)
	n.send("secret", "a")
}

func TestToken_SignatureIsChecked(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{Key: "right"})
	n.send("q", "a")
	wrong := connect(t, strings.Replace(n.ConnectionString(), "=right", "=wrong", 1))
	s, err := wrong.NewSender("q", nil)
	n.ok(err)
	err = s.SendMessage(n.ctx, &azservicebus.Message{}, nil)
	n.code(err, azservicebus.CodeUnauthorizedAccess)
	if strings.Contains(err.Error(), "right") {
		t.Errorf("the error tells the key: %v", err)
	}
}

func TestToken_EndsTheLinks(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{TokenLifetime: time.Minute})
	s := n.sender("q")
	n.ok(s.SendMessage(n.ctx, &azservicebus.Message{}, nil))
	n.clock.Advance(time.Minute)
	n.code(s.SendMessage(n.ctx, &azservicebus.Message{}, nil), azservicebus.CodeUnauthorizedAccess)
	n.send("q", "a") // a new link puts a new token
}

func TestToken_RenewedKeepsTheLinks(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{TokenLifetime: time.Minute})
	conn, err := amqp.Dial(n.ctx, "amqp://"+n.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	n.ok(err)
	defer conn.Close()
	putToken(n, conn, "sb://host/") // of the whole namespace
	session, err := conn.NewSession(n.ctx, nil)
	n.ok(err)
	sender, err := session.NewSender(n.ctx, "q", nil)
	n.ok(err)
	for range 3 {
		n.clock.Advance(59 * time.Second)
		putToken(n, conn, "sb://host/")
		n.ok(sender.Send(n.ctx, amqp.NewMessage(nil), nil))
	}
	n.clock.Advance(time.Minute)
	n.condition(sender.Send(n.ctx, amqp.NewMessage(nil), nil), amqp.ErrCondUnauthorizedAccess)
}

func TestManagement_RefusesOtherRequests(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.ok(n.Broker().CreateTopic("t", properties.Topic{}))
	conn, err := amqp.Dial(n.ctx, "amqp://"+n.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	n.ok(err)
	defer conn.Close()
	putToken(n, conn, "sb://host/")
	for _, tt := range []struct {
		node, operation string
		body            any
		status          int32
	}{
		{"$cbs", "delete-token", nil, 501},
		{"q/$management", "READ", nil, 501},
		{"q/$management", "com.microsoft:dance", nil, 501},
		{"t/Subscriptions/missing/$management", "com.microsoft:peek-message", nil, 404},
		{"q/$management", "com.microsoft:schedule-message", nil, 400},
		{"q/$management", "com.microsoft:schedule-message", map[string]any{"messages": []any{map[string]any{}}}, 400},
		{"q/$management", "com.microsoft:schedule-message", map[string]any{"messages": []any{map[string]any{"message": []byte{0xff}}}}, 400},
		{"q/$management", "com.microsoft:renew-session-lock", nil, 400},
		{"q/$management", "com.microsoft:update-disposition", map[string]any{"disposition-status": "lost"}, 400},
		{"q/$management", "com.microsoft:update-disposition", map[string]any{"disposition-status": "completed", "lock-tokens": []amqp.UUID{{}}}, 410},
		{"q/$management", "com.microsoft:peek-message", map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)}, 204},
	} {
		reply := request(n, conn, tt.node, &amqp.Message{ApplicationProperties: map[string]any{"operation": tt.operation}, Value: tt.body})
		if status := reply.ApplicationProperties["status-code"]; status != tt.status {
			t.Errorf("%s on %s: status %v in place of %d", tt.operation, tt.node, status, tt.status)
		}
	}
}

func TestRequests_ClientThatReadsNoRepliesIsClosed(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	conn, err := amqp.Dial(n.ctx, "amqp://"+n.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	n.ok(err)
	defer conn.Close()
	session, err := conn.NewSession(n.ctx, nil)
	n.ok(err)
	_, err = session.NewReceiver(n.ctx, "$cbs", &amqp.ReceiverOptions{TargetAddress: "reply", Credit: -1})
	n.ok(err)
	sender, err := session.NewSender(n.ctx, "$cbs", &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	n.ok(err)
	for err == nil {
		err = sender.Send(n.ctx, &amqp.Message{Properties: &amqp.MessageProperties{ReplyTo: new("reply")}, Value: "token"}, nil)
	}
	<-conn.Done()
	n.condition(conn.Err(), amqp.ErrCondResourceLimitExceeded)
}

func TestLink_RefusedWithoutAToken(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	conn, err := amqp.Dial(n.ctx, "amqp://"+n.Addr(), &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	n.ok(err)
	defer conn.Close()
	session, err := conn.NewSession(n.ctx, nil)
	n.ok(err)
	for _, node := range []string{"q", "q/$management"} {
		_, err = session.NewSender(n.ctx, node, nil)
		var e *amqp.Error
		if !errors.As(err, &e) || e.Condition != amqp.ErrCondUnauthorizedAccess {
			t.Errorf("%s: %v", node, err)
		}
	}
}

func TestEntity_DisabledOrMissing(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{})
	n.ok(n.Broker().CreateTopic("t", properties.Topic{}))
	r, err := n.client.NewReceiverForSubscription("t", "missing", nil)
	n.ok(err)
	_, err = r.ReceiveMessages(n.ctx, 1, nil)
	n.condition(err, amqp.ErrCondNotFound)

	s := n.sender("q")
	n.ok(s.SendMessage(n.ctx, &azservicebus.Message{}, nil))
	n.ok(n.Broker().SetStatus("q", properties.StatusSendDisabled))
	n.condition(s.SendMessage(n.ctx, &azservicebus.Message{}, nil), "com.microsoft:entity-disabled")
	receiver := n.receiver("q")
	n.ok(receiver.CompleteMessage(n.ctx, n.receive(receiver, ""), nil))
	received := make(chan error, 1)
	go func() {
		_, err := receiver.ReceiveMessages(n.ctx, 1, nil)
		received <- err
	}()
	n.ok(n.Broker().SetStatus("q", properties.StatusDisabled))
	n.condition(<-received, "com.microsoft:entity-disabled")
}

// condition checks that err has an error of AMQP with the condition.
func (n *namespace) condition(err error, condition amqp.ErrCond) {
	n.t.Helper()
	var e *amqp.Error
	if !errors.As(err, &e) || e.Condition != condition {
		n.t.Errorf("error %v; its condition should be %s", err, condition)
	}
}

func TestAdministration_CreatesCountsAndFails(t *testing.T) {
	t.Parallel()
	n := open(t, sbserver.Config{Key: "right"})
	client := func(connection string) *admin.Client {
		c, err := admin.NewClientFromConnectionString(connection, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
			Transport: sbserver.NewAdminTransport(n.AdminAddr()), Retry: policy.RetryOptions{MaxRetries: -1},
		}})
		n.ok(err)
		return c
	}
	c := client(n.ConnectionString())
	_, err := c.CreateQueue(n.ctx, "q", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{RequiresSession: new(true)}})
	n.ok(err)
	n.sendSession("x", "a")
	n.receive(n.accept("x"), "a")
	status := func(err error, want int) {
		t.Helper()
		var e *azcore.ResponseError
		if !errors.As(err, &e) || e.StatusCode != want {
			t.Errorf("error %v; its status should be %d", err, want)
		}
	}
	n.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpAdministration}, Action: sbserver.Refuse})
	_, err = c.GetQueue(n.ctx, "q", nil)
	status(err, 503)
	n.Inject(sbserver.Fault{Ops: []sbserver.Op{sbserver.OpAdministration}, Action: sbserver.Cut})
	if _, err = c.GetQueue(n.ctx, "q", nil); err == nil {
		t.Error("a request that was cut succeeded")
	}
	_, err = client(strings.Replace(n.ConnectionString(), "=right", "=wrong", 1)).GetQueue(n.ctx, "q", nil)
	status(err, 401)
	if got := n.Count(sbserver.OpAdministration, ""); got != 4 {
		t.Errorf("%d requests were counted", got)
	}
}
