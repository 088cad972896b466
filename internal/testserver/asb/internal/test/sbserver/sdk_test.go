//go:build darwin || linux

package sbserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
)

// patience is a deadline that means never: a test that waits for it has failed.
const patience = 2 * time.Minute

// namespace is a server, its clock and a client of it.
type namespace struct {
	*sbserver.Server
	clock  *clock.Fake
	client *azservicebus.Client
	ctx    context.Context
	t      *testing.T
}

// open starts a server whose clock stands still, and connects a client. Queues appear when they
// are first used unless cfg says otherwise.
func open(t *testing.T, cfg sbserver.Config) *namespace {
	t.Helper()
	clock := clock.NewFake(time.Now().Truncate(time.Millisecond))
	cfg.Broker.Clock = clock
	cfg.Broker.AutoCreate = true
	s, err := sbserver.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return &namespace{Server: s, clock: clock, client: connect(t, s.ConnectionString()), ctx: ctx, t: t}
}

// connect returns a client that retries soon.
func connect(t *testing.T, connectionString string) *azservicebus.Client {
	t.Helper()
	c, err := azservicebus.NewClientFromConnectionString(connectionString, &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 5, RetryDelay: time.Millisecond, MaxRetryDelay: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { returns(func() { c.Close(context.Background()) }) })
	return c
}

func (n *namespace) sender(queueOrTopic string) *azservicebus.Sender {
	n.t.Helper()
	s, err := n.client.NewSender(queueOrTopic, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *namespace) receiver(queue string) *azservicebus.Receiver {
	n.t.Helper()
	return n.receiverWith(queue, azservicebus.ReceiverOptions{})
}

func (n *namespace) receiverWith(queue string, o azservicebus.ReceiverOptions) *azservicebus.Receiver {
	n.t.Helper()
	r, err := n.client.NewReceiverForQueue(queue, &o)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *namespace) deadLetters(queue string) *azservicebus.Receiver {
	n.t.Helper()
	return n.receiverWith(queue, azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

// send sends messages with the bodies.
func (n *namespace) send(queueOrTopic string, bodies ...string) {
	n.t.Helper()
	s := n.sender(queueOrTopic)
	defer s.Close(n.ctx)
	for _, body := range bodies {
		n.ok(s.SendMessage(n.ctx, &azservicebus.Message{Body: []byte(body)}, nil))
	}
}

// messages is a receiver of either kind.
type messages interface {
	ReceiveMessages(ctx context.Context, limit int, o *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive receives one message and checks its body.
func (n *namespace) receive(r messages, body string) *azservicebus.ReceivedMessage {
	n.t.Helper()
	ms, err := r.ReceiveMessages(n.ctx, 1, nil)
	if err != nil {
		n.t.Fatalf("receive %q: %v", body, err)
	}
	if string(ms[0].Body) != body {
		n.t.Fatalf("received %q in place of %q", ms[0].Body, body)
	}
	return ms[0]
}

// empty checks that a queue has no messages in any state.
func (n *namespace) empty(queue string) {
	n.t.Helper()
	left, err := n.Broker().Peek(queue, 0, 1000, nil)
	n.ok(err)
	if len(left) > 0 {
		n.t.Errorf("%s has %d messages left", queue, len(left))
	}
}

func (n *namespace) ok(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// code checks that err is an error of the SDK with the code.
func (n *namespace) code(err error, code azservicebus.Code) {
	n.t.Helper()
	var e *azservicebus.Error
	if !errors.As(err, &e) || e.Code != code {
		n.t.Errorf("error %v; its code should be %s", err, code)
	}
}

func (n *namespace) await(subject string, holds func() bool) {
	n.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("%s did not happen", subject)
		}
	}
}

func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(prefix, i)
	}
	return all
}
