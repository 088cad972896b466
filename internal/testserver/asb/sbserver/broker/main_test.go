package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// start is the time at which the clock of a test stands.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A namespace is a broker with a clock that the test moves.
type namespace struct {
	*broker.Broker
	t     *testing.T
	clock *clock.Fake
}

func newNamespace(t *testing.T, cfg broker.Config) *namespace {
	t.Helper()
	clock := clock.NewFake(start)
	cfg.Clock = clock
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &namespace{b, t, clock}
}

// withQueue returns a namespace that has the queue "q".
func withQueue(t *testing.T, p properties.Queue) *namespace {
	t.Helper()
	n := newNamespace(t, broker.Config{})
	n.queue("q", p)
	return n
}

func (n *namespace) queue(name string, p properties.Queue) {
	n.t.Helper()
	n.must(n.CreateQueue(name, p))
}

func (n *namespace) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// refuses fails the test unless an error has a condition.
func (n *namespace) refuses(err error, want amqp10.Symbol) {
	n.t.Helper()
	if err == nil || condition.Of(err) != want {
		n.t.Fatalf("got the error %v, want the condition %s", err, want)
	}
}

// An option changes a message before it is sent.
type option func(*amqp10.Message)

func header(m *amqp10.Message) *amqp10.MessageHeader {
	if m.Header == nil {
		m.Header = &amqp10.MessageHeader{Priority: 4}
	}
	return m.Header
}

func inSession(id string) option { return func(m *amqp10.Message) { m.Properties.GroupID = &id } }
func withID(id any) option       { return func(m *amqp10.Message) { m.Properties.MessageID = id } }
func withTTL(d time.Duration) option {
	return func(m *amqp10.Message) { header(m).TTL = d }
}

func scheduledAt(at time.Time) option {
	return func(m *amqp10.Message) { m.Annotations = amqp10.Annotations{"x-opt-scheduled-enqueue-time": at} }
}

func withPartition(key string) option {
	return func(m *amqp10.Message) { m.Annotations = amqp10.Annotations{"x-opt-partition-key": key} }
}

func withProperty(name string, value any) option {
	return func(m *amqp10.Message) {
		if m.ApplicationProperties == nil {
			m.ApplicationProperties = map[string]any{}
		}
		m.ApplicationProperties[name] = value
	}
}

func newMessage(body string, options ...option) broker.Message {
	m := &amqp10.Message{Data: [][]byte{[]byte(body)}}
	m.Properties = &amqp10.MessageProperties{}
	for _, o := range options {
		o(m)
	}
	return broker.Message{AMQP: m}
}

func (n *namespace) send(path, body string, options ...option) {
	n.t.Helper()
	n.must(n.Send(path, newMessage(body, options...)))
}

func (n *namespace) consume(path string) *broker.Consumer {
	n.t.Helper()
	c, err := n.Consume(context.Background(), path, broker.ConsumerConfig{})
	n.must(err)
	return c
}

// receive takes one message with a new receiver, which it closes.
func (n *namespace) receive(path string) broker.Delivery {
	n.t.Helper()
	c := n.consume(path)
	defer func() { n.must(c.Close()) }()
	return n.next(c)
}

func (n *namespace) next(c *broker.Consumer) broker.Delivery {
	n.t.Helper()
	got := c.Next(1)
	if len(got) != 1 {
		n.t.Fatalf("got %d messages, want 1", len(got))
	}
	return got[0]
}

// nothing fails the test if there is a message.
func (n *namespace) nothing(path string) {
	n.t.Helper()
	c := n.consume(path)
	defer func() { n.must(c.Close()) }()
	if got := c.Next(1); len(got) > 0 {
		n.t.Fatalf("got the message %q from %s, want none", body(got[0]), path)
	}
}

func (n *namespace) settle(path string, d broker.Delivery, how broker.Outcome) {
	n.t.Helper()
	n.must(n.Settle(path, d.LockToken, broker.Settlement{Outcome: how}))
}

func body(d broker.Delivery) string { return string(d.Message.Body()) }

func bodies(all []broker.Delivery) string {
	var s []string
	for _, d := range all {
		s = append(s, body(d))
	}
	return fmt.Sprint(s)
}

func equal[T comparable](t *testing.T, subject string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", subject, got, want)
	}
}
