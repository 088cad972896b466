package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// topologies are the ways of topics to their subscribers.
var topologies = []rabbitmq.RoutingTopology{rabbitmq.Conventional, rabbitmq.Direct}

func onBothTopologies(t *testing.T, run func(t *testing.T, s *site, cfg rabbitmq.Config)) {
	onBoth(t, func(t *testing.T, s *site) {
		for _, topology := range topologies {
			t.Run(topology.String(), func(t *testing.T) { run(t, newSite(t, s.Server), rabbitmq.Config{Topology: topology}) })
		}
	})
}

func subscribe(t testing.TB, transport *rabbitmq.Transport, queue string, topics ...string) {
	t.Helper()
	if err := transport.Subscribe(t.Context(), queue, topics...); err != nil {
		t.Fatal(err)
	}
}

func unsubscribe(t testing.TB, transport *rabbitmq.Transport, queue string, topics ...string) {
	t.Helper()
	if err := transport.Unsubscribe(t.Context(), queue, topics...); err != nil {
		t.Fatal(err)
	}
}

func publish(t testing.TB, transport *rabbitmq.Transport, topic string) {
	t.Helper()
	if err := transport.Send(t.Context(), core.Outgoing{ID: topic, Topic: topic, Body: []byte(topic)}); err != nil {
		t.Fatal(err)
	}
}

// arrived is what is in a queue, taken from it, up to a message that is sent last.
func (s *site) arrived(t testing.TB, queue string) string {
	t.Helper()
	ch := s.channel(t)
	if err := ch.Publish("", queue, true, false, amqp.Publishing{Body: []byte("last")}); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Close()
	var bodies []string
	for {
		d := await(t, deliveries)
		if string(d.Body) == "last" {
			return strings.Join(bodies, " ")
		}
		bodies = append(bodies, string(d.Body))
	}
}

func TestSubscribe_BothTopologies(t *testing.T) {
	t.Parallel()
	onBothTopologies(t, func(t *testing.T, s *site, cfg rabbitmq.Config) {
		transport := s.provisioned(t, cfg, "sales", "billing")
		publish(t, transport, "orders.placed") // to no subscriber
		subscribe(t, transport, "billing", "orders.placed", "orders.paid")
		subscribe(t, transport, "billing", "orders.placed") // once more
		subscribe(t, transport, "sales", "orders.placed")
		for _, topic := range []string{"orders.placed", "orders.paid", "orders", "orders.placed.late", "Orders.Placed"} {
			publish(t, transport, topic)
		}
		if got, want := s.arrived(t, "billing"), "orders.placed orders.paid"; got != want {
			t.Errorf("billing has %q, want %q", got, want)
		}
		if got, want := s.arrived(t, "sales"), "orders.placed"; got != want {
			t.Errorf("sales has %q, want %q", got, want)
		}
		unsubscribe(t, transport, "billing", "orders.placed", "orders.unknown")
		unsubscribe(t, transport, "billing", "orders.placed")
		publish(t, transport, "orders.placed")
		publish(t, transport, "orders.paid")
		if got, want := s.arrived(t, "billing"), "orders.paid"; got != want {
			t.Errorf("unsubscribed, billing has %q, want %q", got, want)
		}
		if got, want := s.arrived(t, "sales"), "orders.placed"; got != want {
			t.Errorf("sales has %q, want %q", got, want)
		}
	})
}

// The queue is bound itself. An exchange that it gets later changes nothing.
func TestSubscribe_QueueWithoutExchange(t *testing.T) {
	t.Parallel()
	onBothTopologies(t, func(t *testing.T, s *site, cfg rabbitmq.Config) {
		s.queue(t, "billing", amqp.Table{"x-queue-type": "quorum"})
		transport := s.open(t, cfg)
		subscribe(t, transport, "billing", "orders.placed")
		publish(t, transport, "orders.placed")
		if got := s.arrived(t, "billing"); got != "orders.placed" {
			t.Errorf("it has %q, want one message", got)
		}
		provision(t, transport, "billing")
		subscribe(t, transport, "billing", "orders.placed")
		publish(t, transport, "orders.placed")
		if got := s.arrived(t, "billing"); got != "orders.placed" {
			t.Errorf("subscribed in both ways it has %q, want one message", got)
		}
		unsubscribe(t, transport, "billing", "orders.placed")
		publish(t, transport, "orders.placed")
		if got := s.arrived(t, "billing"); got != "" {
			t.Errorf("unsubscribed it has %q", got)
		}
	})
}

func TestSubscribe_MissingQueue(t *testing.T) {
	t.Parallel()
	onBothTopologies(t, func(t *testing.T, s *site, cfg rabbitmq.Config) {
		transport := s.open(t, cfg)
		for name, err := range map[string]error{
			"Subscribe":                 transport.Subscribe(t.Context(), "nowhere", "orders.placed"),
			"Subscribe to nothing":      transport.Subscribe(t.Context(), "nowhere"),
			"Unsubscribe":               transport.Unsubscribe(t.Context(), "nowhere", "orders.placed"),
			"Unsubscribe from nothing":  transport.Unsubscribe(t.Context(), "nowhere"),
			"Subscribe, somewhere else": transport.Subscribe(t.Context(), "now.here", "orders.placed"),
		} {
			if !errors.Is(err, core.ErrQueueNotFound) {
				t.Errorf("%s = %v, want ErrQueueNotFound", name, err)
			}
		}
	})
}

func TestSubscribe_RefusedNames(t *testing.T) {
	t.Parallel()
	onBothTopologies(t, func(t *testing.T, s *site, cfg rabbitmq.Config) {
		transport := s.provisioned(t, cfg, "billing")
		for name, err := range map[string]error{
			"an empty topic": transport.Subscribe(t.Context(), "billing", "orders.placed", ""),
			"a long topic":   transport.Unsubscribe(t.Context(), "billing", strings.Repeat("t", 256)),
			"no queue":       transport.Subscribe(t.Context(), "", "orders.placed"),
		} {
			saysAll(t, err, "rabbitmq: ")
			if err != nil && errors.Is(err, core.ErrQueueNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		publish(t, transport, "orders.placed")
		if got := s.arrived(t, "billing"); got != "" {
			t.Errorf("it has %q: something was bound although the call failed", got)
		}
	})
}

func TestSubscribe_WithoutTheRight(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "billing")
		user := s.open(t, rabbitmq.Config{URLs: []string{s.user(t, "user", "^$", ".*", ".*")}})
		err := user.Subscribe(t.Context(), "billing", "orders.placed")
		saysAll(t, err, `rabbitmq: subscribe "billing"`, `"topic:orders.placed"`, "ACCESS_REFUSED", "rabbitmqctl set_permissions")

		subscriber := s.open(t, rabbitmq.Config{})
		publish(t, subscriber, "orders.placed") // the exchange is there
		subscribe(t, user, "billing", "orders.placed")
		publish(t, user, "orders.placed")
		if got := s.arrived(t, "billing"); got != "orders.placed" {
			t.Errorf("it has %q, want one message", got)
		}
	})
}

func TestSubscribe_NamesExchangeOfAnotherType(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		if err := s.channel(t).ExchangeDeclare("topic:orders.placed", "direct", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		err := transport.Subscribe(t.Context(), "billing", "orders.placed")
		saysAll(t, err, `"topic:orders.placed"`, "fanout", "direct")
	})
}
