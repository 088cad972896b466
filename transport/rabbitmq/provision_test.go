package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

func TestProvision_CreatesMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg       rabbitmq.Config
		arguments string
		exchange  bool
	}{
		"quorum":  {rabbitmq.Config{}, "map[x-delivery-limit:100000 x-queue-type:quorum]", true},
		"limited": {rabbitmq.Config{DeliveryLimit: 700}, "map[x-delivery-limit:700 x-queue-type:quorum]", true},
		"classic": {rabbitmq.Config{QueueType: rabbitmq.Classic}, "map[x-queue-type:classic]", true},
		"direct":  {rabbitmq.Config{Topology: rabbitmq.Direct}, "map[x-delivery-limit:100000 x-queue-type:quorum]", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *site) {
				s.withDelays()
				s.provisioned(t, rabbitmq.Config{})
				before := s.catalogue(t)
				if !strings.Contains(strings.Join(before, "\n"), "nsb.v2.delay-level-27") {
					t.Fatalf("there is no topology of delayed messages:\n%s", strings.Join(before, "\n"))
				}
				s.provisioned(t, c.cfg, "billing")
				want := slices.Concat(before, []string{
					"queues name=billing type=" + strings.TrimSuffix(strings.SplitAfter(c.arguments, "x-queue-type:")[1], "]") +
						" durable=true auto_delete=false exclusive=false arguments=" + c.arguments,
					"bindings source= destination=billing destination_type=queue routing_key=billing arguments=map[]",
					"bindings source=nsb.v2.delay-delivery destination=billing destination_type=queue routing_key=" + strings.Repeat("*.", 28) + "billing arguments=map[]",
					"bindings source=reprise.delay-delivery destination=billing destination_type=queue routing_key=" + strings.Repeat("*.", 28) + "billing arguments=map[]",
					"bindings source=nsb.v2.delay-delivery destination=reprise.delay-delivery destination_type=exchange routing_key=" + strings.Repeat("*.", 28) + "billing arguments=map[]"})
				if c.exchange {
					want = append(want,
						"exchanges name=billing type=fanout durable=true auto_delete=false internal=false arguments=map[]",
						"bindings source=billing destination=billing destination_type=queue routing_key= arguments=map[]")
				}
				sameCatalogue(t, s.catalogue(t), want)
			})
		})
	}
}

// All else works: an endpoint runs, and an immediate retry needs no delay.
func TestNoDelays_DeclaresNoLevelAndRefusesDelays(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{NoDelays: true}, "billing", "error")
		for _, thing := range s.catalogue(t) {
			if strings.Contains(thing, "nsb.v2") {
				t.Errorf("there is %s", thing)
			}
		}
		delayed := core.Outgoing{ID: "m1", Queue: "billing", Delay: time.Second}
		if err := transport.Send(t.Context(), delayed); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Send with a delay returns %v, want errors.ErrUnsupported", err)
		}
		ep, err := core.New("billing", transport, core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		attempts := make(chan int, 10)
		core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ string) error {
			attempts <- m.Attempt
			if m.Attempt == 1 {
				return errors.New("boom")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(ctx) }()
		if err := ep.Send(t.Context(), "billing", orderType.Of("x")); err != nil {
			t.Fatal(err)
		}
		for want := 1; want <= 2; want++ {
			if got := <-attempts; got != want {
				t.Errorf("attempt %d is number %d", want, got)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, thing := range s.catalogue(t) {
			if strings.Contains(thing, "nsb.v2") {
				t.Errorf("since the endpoint ran there is %s", thing)
			}
		}
	})
}

func TestProvision_IsIdempotent(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "orders", "error")
		// An operator is responsible for a table or queue that the operator made.
		ch := s.channel(t)
		for _, err := range []error{
			ch.QueueBind("orders", "north", "amq.direct", false, nil),
			ch.Publish("", "orders", true, false, amqp.Publishing{Body: []byte("x")}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		before := s.catalogue(t)
		provision(t, transport, "orders", "error", "orders")
		s.provisioned(t, rabbitmq.Config{}, "orders", "error")
		sameCatalogue(t, s.catalogue(t), before)
	})
}

// As when a service with many instances is started for the first time.
func TestProvision_Concurrent(t *testing.T) {
	t.Parallel()
	const instances = 20
	onNewest(t, func(t *testing.T, s *site) {
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for range instances {
			transport := s.open(t, rabbitmq.Config{})
			wg.Go(func() {
				<-begin
				if err := transport.Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "error", "audit"}}); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		alone := newSite(t, s.Server)
		alone.provisioned(t, rabbitmq.Config{}, "orders", "error", "audit")
		sameCatalogue(t, s.catalogue(t), alone.catalogue(t))
	})
}

// odd is a queue that is not as a transport needs it, and what is said of it.
var odd = map[string]struct {
	cfg     rabbitmq.Config
	declare func(*amqp.Channel, string) error
	says    []string
}{
	"classic for quorum": {declare: declared(true, false, amqp.Table{"x-queue-type": "classic"}),
		says: []string{"of type classic", "Config.QueueType says quorum", "set Config.QueueType to Classic"}},
	"without a type for quorum": {declare: declared(true, false, nil),
		says: []string{"of type classic", "Config.QueueType says quorum"}},
	"quorum for classic": {cfg: rabbitmq.Config{QueueType: rabbitmq.Classic}, declare: declared(true, false, amqp.Table{"x-queue-type": "quorum"}),
		says: []string{"of type quorum", "Config.QueueType says classic", "set Config.QueueType to Quorum"}},
	"quorum with much else for classic": {cfg: rabbitmq.Config{QueueType: rabbitmq.Classic}, declare: declared(true, false, amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "it's none", "x-message-ttl": 60000, "x-single-active-consumer": true}),
		says: []string{"of type quorum", "Config.QueueType says classic"}},
	"not durable": {cfg: rabbitmq.Config{QueueType: rabbitmq.Classic}, declare: declared(false, false, nil),
		says: []string{"durable is false, but must be true"}},
	"auto-delete": {cfg: rabbitmq.Config{QueueType: rabbitmq.Classic}, declare: declared(true, true, nil),
		says: []string{"auto_delete is true, but must be false"}},
	"all at once": {declare: declared(false, true, nil),
		says: []string{"of type classic", "quorum", "durable is false", "auto_delete is true"}},
	"exclusive": {cfg: rabbitmq.Config{QueueType: rabbitmq.Classic}, declare: func(ch *amqp.Channel, name string) error {
		_, err := ch.QueueDeclare(name, true, false, true, false, nil)
		return err
	}, says: []string{"is exclusive"}},
}

func declared(durable, autoDelete bool, arguments amqp.Table) func(*amqp.Channel, string) error {
	return func(ch *amqp.Channel, name string) error {
		_, err := ch.QueueDeclare(name, durable, autoDelete, false, false, arguments)
		return err
	}
}

// Provision, Check and OpenReceiver name it, and leave the queue as it is.
func TestProvision_NamesMismatch(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}) // shared by all
		for name, c := range odd {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				queue := "odd ' " + name
				if err := c.declare(s.channel(t), queue); err != nil {
					t.Fatal(err)
				}
				transport := s.open(t, c.cfg)
				topology := core.Topology{InputQueue: queue, Queues: []string{queue}}
				cfg := c.cfg
				cfg.ManagementURL = s.ManagementURL()
				managed := s.open(t, cfg)
				for how, err := range map[string]error{
					"Provision":                          transport.Provision(t.Context(), topology),
					"Check":                              transport.Check(t.Context(), topology),
					"OpenReceiver":                       receive(t, transport, queue, 50),
					"Check with the management API":      managed.Check(t.Context(), topology),
					"OpenReceiver of the management API": receive(t, managed, queue, 50),
				} {
					t.Run(how, func(t *testing.T) {
						saysAll(t, err, append(c.says, "rabbitmq: ", fmt.Sprintf("%q", queue), "delete it")...)
					})
				}
			})
		}
	})
}

// receive tries to, and closes the receiver.
func receive(t testing.TB, transport *rabbitmq.Transport, queue string, maxDeliveries int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: maxDeliveries})
	if err == nil {
		err = r.Close(ctx)
	}
	return err
}

func TestProvision_NamesLowerDeliveryLimit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.queue(t, "orders", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 60})
		err := s.open(t, rabbitmq.Config{}).Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
		saysAll(t, err, `"orders"`, "60", "100000", "Config.DeliveryLimit to 60")
		s.provisioned(t, rabbitmq.Config{DeliveryLimit: 60}, "orders")
		s.provisioned(t, rabbitmq.Config{DeliveryLimit: 59}, "orders")
	})
}

// All at once.
func TestProvision_NamesEveryMismatch(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.queue(t, "orders", nil)
		s.queue(t, "error", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 3})
		err := s.open(t, rabbitmq.Config{}).Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "audit", "error"}})
		saysAll(t, err, `"orders"`, "classic", `"error"`, " 3,")
		s.provisioned(t, rabbitmq.Config{}, "audit")
	})
}

// A queue of the same name that differs, made since the last call.
func TestProvision_SeesQueueMadeByOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.queue(t, "classic", amqp.Table{"x-queue-type": "classic"})
		s.queue(t, "will do", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 200000})
		transport := s.open(t, rabbitmq.Config{})
		saysAll(t, rabbitmq.CreateQueue(t.Context(), transport, "classic"), "of type classic", "Config.QueueType says quorum", "delete it")
		if err := rabbitmq.CreateQueue(t.Context(), transport, "will do"); err != nil {
			t.Error(err)
		}
	})
}

func TestProvision_NamesExchangeOfAnotherType(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		ch := s.channel(t)
		for _, err := range []error{
			ch.ExchangeDeclare("orders", "topic", true, false, false, false, nil),
			ch.ExchangeDeclare("error", "fanout", true, false, false, false, amqp.Table{"alternate-exchange": "elsewhere"}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		transport := s.open(t, rabbitmq.Config{})
		err := transport.Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
		saysAll(t, err, `exchange "orders"`, "topic", "fanout", "delete it")
		provision(t, transport, "error") // which is not of concern
	})
}

// A queue with further arguments is used as it is.
func TestProvision_AdoptsExisting(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for name, arguments := range map[string]amqp.Table{
			"plain":                  {"x-queue-type": "quorum"},
			"much":                   {"x-queue-type": "quorum", "x-delivery-limit": 200000, "x-dead-letter-exchange": "current is 'none'", "x-dead-letter-routing-key": "5", "x-message-ttl": 60000, "x-max-length": int64(7), "x-overflow": "reject-publish", "x-single-active-consumer": true, "x-of-my-own": "x"},
			strings.Repeat("n", 199): {"x-queue-type": "quorum", "x-delivery-limit": 100000},
			// Of this one the broker's text, which has 255 bytes at most, ends too early.
			strings.Repeat("m", 199): {"x-queue-type": "quorum", "x-delivery-limit": 200000},
		} {
			s.queue(t, name, arguments)
			s.provisioned(t, rabbitmq.Config{}, name)
		}
	})
}

// Its topology is declared as NServiceBus declares it.
func TestProvision_BesideNServiceBus(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for _, topology := range []rabbitmq.RoutingTopology{rabbitmq.Conventional, rabbitmq.NServiceBus} {
			t.Run(topology.String(), func(t *testing.T) {
				s := newSite(t, s.Server).withDelays()
				cfg := s.beside(t)
				cfg.Topology = topology
				provisionBeside(t, s, cfg)
			})
		}
	})
}

func provisionBeside(t *testing.T, s *site, cfg rabbitmq.Config) {
	theirs := s.channel(t)
	declareLikeNServiceBus(t, theirs, "billing")
	transport := s.provisioned(t, cfg, "billing", "error")
	declareLikeNServiceBus(t, theirs, "billing") // when their endpoint starts again

	// A delayed message comes by their binding and by ours, and arrives once.
	if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: "billing", Delay: time.Second}); err != nil {
		t.Fatal(err)
	}
	deliveries, err := theirs.Consume("billing", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	await(t, deliveries)
	// What is published to the exchange of the queue, as they do, comes after any
	// second copy.
	if err := theirs.Publish("billing", "", true, false, amqp.Publishing{MessageId: "last"}); err != nil {
		t.Fatal(err)
	}
	if d := await(t, deliveries); d.MessageId != "last" {
		t.Errorf("the message arrived twice: %+v", d)
	}
}

func await(t testing.TB, deliveries <-chan amqp.Delivery) amqp.Delivery {
	t.Helper()
	select {
	case d := <-deliveries:
		return d
	case <-time.After(patience):
		t.Fatal("nothing arrived")
		return amqp.Delivery{}
	}
}

// declareLikeNServiceBus declares the delay topology and an endpoint as
// NServiceBus.RabbitMQ does in the conventional topology.
func declareLikeNServiceBus(t testing.TB, ch *amqp.Channel, endpoint string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	declare := func(queue string, arguments amqp.Table) {
		t.Helper()
		_, err := ch.QueueDeclare(queue, true, false, false, false, arguments)
		must(err)
	}
	level := func(n int) string { return fmt.Sprintf("nsb.v2.delay-level-%02d", n) }
	binding := "1.#"
	for n := 27; n >= 0; n-- {
		next := "nsb.v2.delay-delivery"
		if n > 0 {
			next = level(n - 1)
		}
		must(ch.ExchangeDeclare(level(n), "topic", true, false, false, false, nil))
		declare(level(n), amqp.Table{
			"x-queue-type":           "quorum",
			"x-dead-letter-strategy": "at-least-once",
			"x-overflow":             "reject-publish",
			"x-message-ttl":          int64(1<<n) * 1000,
			"x-dead-letter-exchange": next,
		})
		must(ch.QueueBind(level(n), binding, level(n), false, nil))
		binding = "*." + binding
	}
	binding = "0.#"
	for n := 27; n >= 1; n-- {
		must(ch.ExchangeBind(level(n-1), binding, level(n), false, nil))
		binding = "*." + binding
	}
	must(ch.ExchangeDeclare("nsb.v2.delay-delivery", "topic", true, false, false, false, nil))
	must(ch.ExchangeBind("nsb.v2.delay-delivery", binding, level(0), false, nil))

	declare(endpoint, amqp.Table{"x-queue-type": "quorum"})
	must(ch.ExchangeDeclare(endpoint, "fanout", true, false, false, false, nil))
	must(ch.QueueBind(endpoint, "", endpoint, false, nil))
	must(ch.ExchangeBind(endpoint, "#."+endpoint, "nsb.v2.delay-delivery", false, nil))
}

func TestProvision_WithoutTheRightToConfigure(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.withDelays()
		user := rabbitmq.Config{URLs: []string{s.user(t, "user", "^$", ".*", ".*")}}
		topology := core.Topology{InputQueue: "orders", Queues: []string{"orders"}}
		err := s.open(t, user).Provision(t.Context(), topology)
		saysAll(t, err, `create the queue "orders"`, "ACCESS_REFUSED", "rabbitmqctl set_permissions")

		s.queue(t, "orders", amqp.Table{"x-queue-type": "quorum"})
		err = s.open(t, user).Provision(t.Context(), topology)
		saysAll(t, err, `exchange "orders"`, "ACCESS_REFUSED", "rabbitmqctl set_permissions")

		s.provisioned(t, rabbitmq.Config{}, "orders")
		before := s.catalogue(t)
		s.provisioned(t, user, "orders")
		sameCatalogue(t, s.catalogue(t), before)
	})
}

func TestProvision_WithoutABroker(t *testing.T) {
	t.Parallel()
	transport, err := rabbitmq.New(rabbitmq.Config{URLs: []string{"amqp://guest:secret@127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	err = transport.Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
	saysAll(t, err, "rabbitmq: provision", "127.0.0.1:1", "refused")
	if err := transport.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := transport.Provision(t.Context(), core.Topology{}); err == nil || !strings.Contains(err.Error(), core.ErrClosed.Error()) {
		t.Errorf("after Close, Provision = %v, want %v", err, core.ErrClosed)
	}
}

// The endpoint's own queues come first, and the error says how to do without the others.
func TestProvision_LimitOfQueues(t *testing.T) {
	t.Parallel()
	ofDelayQueues(t)
	onBoth(t, func(t *testing.T, s *site) {
		s.withDelays()
		s.manage(t, "PUT", "/api/vhost-limits/"+s.vhost+"/max-queues", map[string]int{"value": 10})
		topology := core.Topology{InputQueue: "billing", Queues: []string{"billing", "error"}}
		err := s.open(t, rabbitmq.Config{}).Provision(t.Context(), topology)
		saysAll(t, err, "queue limit", "10", "need 30 queues", "Config.NoDelays", "nsb.v2.delay-level-", "set_vhost_limits")
		if errors.Is(err, core.ErrUnavailable) {
			t.Errorf("an endpoint would wait for a limit that it reaches itself: %v", err)
		}
		without := s.open(t, rabbitmq.Config{NoDelays: true})
		if err := without.Provision(t.Context(), topology); err != nil {
			t.Errorf("without delays: %v", err)
		}
		if err := receive(t, without, "billing", 0); err != nil {
			t.Errorf("without delays: %v", err)
		}
		saysAll(t, without.Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}}), `"orders"`, "queue limit", "set_vhost_limits")
	})
}

// A stream keeps messages that are not to be deleted.
func TestProvision_StreamIsNotToBeDeleted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.queue(t, "events", amqp.Table{"x-queue-type": "stream"})
		for name, err := range map[string]error{
			"Provision":    s.open(t, rabbitmq.Config{}).Provision(t.Context(), core.Topology{InputQueue: "events", Queues: []string{"events"}}),
			"Check":        s.open(t, rabbitmq.Config{}).Check(t.Context(), core.Topology{InputQueue: "events", Queues: []string{"events"}}),
			"OpenReceiver": receive(t, s.open(t, rabbitmq.Config{UnverifiedDeliveryLimit: true}), "events", 0),
			"the API":      receive(t, s.open(t, rabbitmq.Config{ManagementURL: s.ManagementURL()}), "events", 0),
		} {
			saysAll(t, err, `"events"`, "stream", "another name")
			if err != nil && strings.Contains(err.Error(), "delete") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
