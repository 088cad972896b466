package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// netHost is a stand-in for a host of NServiceBus: it declares, publishes and sends as
// NServiceBus.RabbitMQ does in its conventional topology. What the broker refuses fails the
// test, as it ends a host.
type netHost struct {
	ch      *amqp.Channel
	queue   string // the type of its queues
	returns chan amqp.Return
}

func (s *site) netHost(t testing.TB) *netHost {
	ch := s.channel(t)
	return &netHost{ch: ch, queue: "quorum", returns: ch.NotifyReturn(make(chan amqp.Return, 10))}
}

// netType is a .NET type: its full name, its base class, if it is a class, and all its
// interfaces.
type netType struct {
	namespace, name string
	base            *netType
	interfaces      []*netType
}

func (n *netType) exchange() string { return n.namespace + ":" + n.name }

var (
	netObject     = &netType{namespace: "System", name: "Object"}
	netIMessage   = &netType{namespace: "NServiceBus", name: "IMessage"}
	netIEvent     = &netType{namespace: "NServiceBus", name: "IEvent"}
	orderEvent    = &netType{namespace: "Shop", name: "IOrderEvent"} // by convention, without the marker
	orderChanged  = &netType{namespace: "Shop.Orders", name: "OrderChanged", base: netObject, interfaces: []*netType{orderEvent, netIEvent, netIMessage}}
	orderPlaced   = &netType{namespace: "Shop.Orders", name: "OrderPlaced", base: orderChanged, interfaces: []*netType{orderEvent, netIEvent, netIMessage}}
	orderReminded = &netType{namespace: "Shop.Orders", name: "OrderReminded", base: netObject}
)

// install is its installer.
func (n *netHost) install(t testing.TB, queues ...string) {
	t.Helper()
	var arguments amqp.Table
	if n.queue == "quorum" {
		arguments = amqp.Table{"x-queue-type": "quorum"}
	}
	for _, queue := range queues {
		_, err := n.ch.QueueDeclare(queue, true, false, false, false, arguments)
		n.must(t, err)
		n.exchange(t, queue)
		n.must(t, n.ch.QueueBind(queue, "", queue, false, nil))
	}
}

func (n *netHost) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("NServiceBus ends with: %v", err)
	}
}

func (n *netHost) exchange(t testing.TB, name string) {
	t.Helper()
	n.must(t, n.ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil))
}

// hierarchy declares the exchanges of a type and of all that it derives from.
func (n *netHost) hierarchy(t testing.TB, messageType *netType) {
	t.Helper()
	if messageType == netObject {
		return
	}
	n.exchange(t, messageType.exchange())
	for derived, base := messageType, messageType.base; base != nil; derived, base = base, base.base {
		n.exchange(t, base.exchange())
		n.must(t, n.ch.ExchangeBind(base.exchange(), "", derived.exchange(), false, nil))
	}
	for _, i := range messageType.interfaces {
		n.exchange(t, i.exchange())
		n.must(t, n.ch.ExchangeBind(i.exchange(), "", messageType.exchange(), false, nil))
	}
}

func (n *netHost) subscribe(t testing.TB, queue string, to *netType) {
	t.Helper()
	if to == netIEvent {
		to = netObject
	}
	n.hierarchy(t, to)
	n.must(t, n.ch.ExchangeBind(queue, "", to.exchange(), false, nil))
}

func (n *netHost) publish(t testing.TB, messageType *netType, body string) {
	t.Helper()
	n.hierarchy(t, messageType)
	n.must(t, n.ch.Publish(messageType.exchange(), "", false, false, amqp.Publishing{MessageId: body, Body: []byte(body)}))
}

func (n *netHost) send(t testing.TB, queue, body string) {
	t.Helper()
	n.must(t, n.ch.Publish(queue, "", true, false, amqp.Publishing{MessageId: body, Body: []byte(body)}))
}

// beside is a configuration for a virtual host with NServiceBus.
func (s *site) beside(t testing.TB) rabbitmq.Config {
	t.Helper()
	return rabbitmq.Config{Topology: rabbitmq.NServiceBus, ManagementURL: s.managementAs(t, "policymaker")}
}

// managers numbers users.
var managers atomic.Int64

// managementAs is the URL of the management API for a user with a tag, whose password is
// s3cret.
func (s *site) managementAs(t testing.TB, tag string) string {
	t.Helper()
	name := fmt.Sprintf("%s-%d.%s", tag, managers.Add(1), s.vhost)
	s.manage(t, "PUT", "/api/users/"+name, map[string]string{"password": "s3cret", "tags": tag})
	t.Cleanup(func() { s.deleteUser(t, name) })
	s.manage(t, "PUT", "/api/permissions/"+s.vhost+"/"+name, map[string]string{"configure": "", "write": "", "read": ""})
	u, err := url.Parse(s.ManagementURL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, "s3cret")
	return u.String()
}

// Either side is the first, and again, and nothing changes any more.
func TestNServiceBus_EitherSideIsTheFirst(t *testing.T) {
	t.Parallel()
	queues := []string{"billing", "error", "audit"}
	onBoth(t, func(t *testing.T, s *site) {
		for name, kind := range map[string]rabbitmq.QueueType{"quorum": rabbitmq.Quorum, "classic": rabbitmq.Classic} {
			for _, netFirst := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, NServiceBus first: %t", name, netFirst), func(t *testing.T) {
					s := newSite(t, s.Server)
					cfg := s.beside(t)
					cfg.QueueType = kind
					net := s.netHost(t)
					net.queue = name
					if netFirst {
						net.install(t, queues...)
					}
					theirs := s.catalogue(t)
					provision(t, s.open(t, cfg), queues...)
					ours := s.catalogue(t)
					net.install(t, queues...)
					provision(t, s.open(t, cfg), queues...)
					net.install(t, queues...)
					sameCatalogue(t, s.catalogue(t), ours)
					if netFirst {
						sameCatalogue(t, ours, theirs)
					}
					for _, queue := range queues {
						line := fmt.Sprintf("queues name=%s type=quorum durable=true auto_delete=false exclusive=false arguments=map[x-queue-type:quorum]", queue)
						if kind == rabbitmq.Quorum && !slices.Contains(ours, line) {
							t.Errorf("there is no line %s in\n%s", line, strings.Join(ours, "\n"))
						}
					}
				})
			}
		}
	})
}

// isOld reports whether the broker is RabbitMQ 3.
func (s *site) isOld() bool { return strings.HasPrefix(s.Version(), "3.") }

// A queue that expires is Reprise's alone, and needs no policy.
func TestNServiceBus_QueueThatExpires(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.open(t, s.beside(t))
		topology := core.Topology{InputQueue: "billing-pod-0", Queues: []string{"billing-pod-0", "error"}, QueueExpiry: time.Hour}
		for range 2 {
			if err := errors.Join(transport.Provision(t.Context(), topology), transport.Check(t.Context(), topology)); err != nil {
				t.Fatal(err)
			}
		}
		if text := strings.Join(s.catalogue(t), "\n"); !strings.Contains(text, "arguments=map[x-delivery-limit:100000 x-expires:3.6e+06 x-queue-type:quorum]") {
			t.Errorf("the queue is not as it should be:\n%s", text)
		}
		if policies := s.manage(t, "GET", "/api/policies/"+s.vhost, nil); strings.Contains(policies, "pod") {
			t.Errorf("there are the policies %s", policies)
		}
	})
}

// Other declarations are named, and left as they are.
func TestNServiceBus_OtherDeclarationsAreRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "billing")
		s.queue(t, "error", amqp.Table{"x-queue-type": "quorum", "x-max-length": int64(7)})
		s.queue(t, "audit", amqp.Table{"x-queue-type": "classic"})
		before := s.catalogue(t)
		err := s.open(t, s.beside(t)).Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing", "error", "audit"}})
		saysAll(t, err, `the queue "billing" is not as NServiceBus declares it`, "x-delivery-limit", "Queues that Reprise made before",
			`the queue "error" is not as`, "x-max-length", `"audit" is of type classic`)
		sameCatalogue(t, s.catalogue(t), before)
		// The limit is the one that NServiceBus wants, so that it can be received from.
		if err := receive(t, s.open(t, s.beside(t)), "billing", 50); err != nil {
			t.Error(err)
		}
	})
}

func TestNServiceBus_Policy(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		const queue = "a.b+c (it's $mine)"
		transport := s.open(t, s.beside(t))
		for range 2 {
			provision(t, transport, queue, "error")
		}
		policies := s.manage(t, "GET", "/api/policies/"+s.vhost, nil)
		if s.isOld() {
			if policies != "[]" {
				t.Errorf("before RabbitMQ 4.0 there are the policies %s", policies)
			}
		} else {
			saysAll(t, errors.New(policies), `"nsb.a.b+c (it's $mine).delivery-limit"`, `"pattern":"^a\\.b\\+c \\(it's \\$mine\\)$"`,
				`"apply-to":"quorum_queues"`, `"priority":0`, `"definition":{"delivery-limit":100000}`, `"nsb.error.delivery-limit"`)
		}
		for _, cfg := range []rabbitmq.Config{s.beside(t), {ManagementURL: s.ManagementURL()}} {
			if err := receive(t, s.open(t, cfg), queue, 50); err != nil {
				t.Error(err)
			}
		}
	})
}

// As NServiceBus does, it refuses a value that others have set, unless that is 100,000.
func TestNServiceBus_ForeignLimits(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		topology := core.Topology{InputQueue: "billing", Queues: []string{"billing", "error"}}
		s.netHost(t).install(t, topology.Queues...)
		s.policy(t, "policies", "P", "^billing$", 5, map[string]any{"delivery-limit": 5000})
		s.policy(t, "policies", "E", "^error$", 5, map[string]any{"max-length": 7})
		transport := s.open(t, s.beside(t))
		for how, err := range map[string]error{
			"Provision": transport.Provision(t.Context(), topology),
			"Check":     transport.Check(t.Context(), topology),
			"receive":   receive(t, transport, "billing", 50),
		} {
			t.Run(how, func(t *testing.T) {
				saysAll(t, err, `"billing" must be 100000 beside NServiceBus`, `the policy "P" says 5000`, "rabbitmqctl set_policy")
			})
		}
		if text := strings.Join(transport.Warnings(), "\n"); !strings.Contains(text, `the queue "error" must be 100000`) {
			t.Errorf("the warnings are %q", text)
		}
		s.applyFix(t, transport.Provision(t.Context(), topology))
		if err := errors.Join(transport.Provision(t.Context(), topology), transport.Check(t.Context(), topology), receive(t, transport, "billing", 50)); err != nil {
			t.Error(err)
		}
		if policies := s.manage(t, "GET", "/api/policies/"+s.vhost, nil); strings.Contains(policies, "nsb.") {
			t.Errorf("there are the policies %s", policies)
		}
	})
}

// On a broker of 4.0 or later nothing else can make the policy.
func TestNServiceBus_PolicyNeedsTheManagementAPI(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		topology := core.Topology{InputQueue: "billing", Queues: []string{"billing", "error"}}
		err := s.open(t, rabbitmq.Config{Topology: rabbitmq.NServiceBus}).Provision(t.Context(), topology)
		if s.isOld() {
			if err != nil {
				t.Error(err)
			}
			return
		}
		saysAll(t, err, `the delivery limit of the queue "billing" cannot be verified`, "set Config.ManagementURL", "UnverifiedDeliveryLimit")
		if err := s.open(t, rabbitmq.Config{Topology: rabbitmq.NServiceBus, UnverifiedDeliveryLimit: true}).Provision(t.Context(), topology); err != nil {
			t.Error(err)
		}
		cfg := s.beside(t)
		cfg.ManagementURL = s.managementAs(t, "management")
		err = s.open(t, cfg).Provision(t.Context(), topology)
		saysAll(t, err, `make the policy "nsb.billing.delivery-limit"`, "tag policymaker", "management-")
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error tells the password: %v", err)
		}
	})
}

// Messages go to the exchange of the queue, as NServiceBus's do, and one that nothing is
// bound to is refused alone.
func TestNServiceBus_SendsToTheExchangeOfTheQueue(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, s.beside(t), "billing")
		s.queue(t, "tap", nil)
		s.queue(t, "replies of a client", nil) // which has no exchange
		ch := s.channel(t)
		if err := errors.Join(
			ch.QueueBind("tap", "", "billing", false, nil),
			ch.ExchangeDeclare("deleted", "fanout", true, false, false, false, nil),
		); err != nil {
			t.Fatal(err)
		}
		err := transport.Send(t.Context(),
			core.Outgoing{ID: "1", Queue: "billing", Body: []byte("1")},
			core.Outgoing{ID: "2", Queue: "deleted", Body: []byte("2")},
			core.Outgoing{ID: "3", Queue: "replies of a client", Body: []byte("3")},
			core.Outgoing{ID: "4", Queue: "never", Body: []byte("4")},
			core.Outgoing{ID: "5", Queue: "billing", Body: []byte("5")})
		failed, ok := errors.AsType[*core.SendError](err)
		if !ok {
			t.Fatalf("Send = %v, want a SendError", err)
		}
		for i, want := range []core.SendState{core.SendAccepted, core.SendRefused, core.SendAccepted, core.SendRefused, core.SendAccepted} {
			if r := failed.Results[i]; r.State != want || want == core.SendRefused && !errors.Is(r.Err, core.ErrQueueNotFound) {
				t.Errorf("message %s is %v: %v; want %v", r.ID, r.State, r.Err, want)
			}
		}
		for queue, want := range map[string]string{"billing": "1 5", "tap": "1 5", "replies of a client": "3"} {
			if got := s.arrived(t, queue); got != want {
				t.Errorf("%s has %q, want %q", queue, got, want)
			}
		}
		// An exchange that is deleted later is looked for again.
		if err := errors.Join(ch.ExchangeDelete("billing", false, false), ch.QueueUnbind("tap", "", "billing", nil)); err != nil {
			t.Fatal(err)
		}
		awaitTrue(t, "a message comes by the default exchange", func() bool {
			return transport.Send(t.Context(), core.Outgoing{ID: "6", Queue: "billing", Body: []byte("6")}) == nil
		})
		if got := s.arrived(t, "billing"); got != "6" {
			t.Errorf("billing has %q, want 6", got)
		}
	})
}

// Events pass in both directions without a binding made by hand.
func TestNServiceBus_Events(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for name, goFirst := range map[string]bool{"Reprise first": true, "NServiceBus first": false} {
			t.Run(name, func(t *testing.T) {
				s := newSite(t, s.Server)
				net := s.netHost(t)
				transport := s.provisioned(t, s.beside(t), "Go", "GoBase", "GoAll", "error")
				net.install(t, "Net", "NetBase", "NetInterface", "NetAll", "error")
				subscribeGo := func() {
					subscribe(t, transport, "Go", "Shop.Orders.OrderPlaced", "Shop.Orders.OrderChanged", "Shop.IOrderEvent")
					subscribe(t, transport, "GoBase", "Shop.Orders.OrderChanged")
					subscribe(t, transport, "GoAll", "NServiceBus.IEvent")
				}
				subscribeNet := func() {
					net.subscribe(t, "Net", orderPlaced)
					net.subscribe(t, "Net", orderEvent)
					net.subscribe(t, "NetBase", orderChanged)
					net.subscribe(t, "NetInterface", orderEvent)
				}
				if goFirst {
					subscribeGo()
					subscribeNet()
				} else {
					subscribeNet()
					subscribeGo()
				}
				// NServiceBus needs the exchange of all classes for this, and does not declare it.
				net.exchange(t, "System:Object")
				net.subscribe(t, "NetAll", netIEvent)

				net.publish(t, orderPlaced, "net-placed")
				net.publish(t, orderChanged, "net-changed")
				net.publish(t, orderReminded, "net-reminded")
				if err := transport.Send(t.Context(),
					core.Outgoing{ID: "1", Topic: "Shop.Orders.OrderPlaced", BaseTopics: []string{"Shop.Orders.OrderChanged", "Shop.IOrderEvent"}, Body: []byte("go-placed")},
					core.Outgoing{ID: "2", Topic: "Shop.Orders.OrderCancelled", BaseTopics: []string{"Shop.Orders.OrderChanged", "NServiceBus.IEvent"}, Body: []byte("go-cancelled")},
					core.Outgoing{ID: "3", Topic: "Shop.Orders.OrderReminded", Body: []byte("go-reminded")},
					core.Outgoing{ID: "4", Topic: "Shop.Billing.InvoicePaid", Body: []byte("go-paid")}, // which NServiceBus does not know
				); err != nil {
					t.Fatal(err)
				}
				const all = "go-cancelled go-paid go-placed go-reminded net-changed net-placed net-reminded"
				for queue, want := range map[string]string{
					"Go":      "go-cancelled go-placed net-changed net-placed",
					"GoBase":  "go-cancelled go-placed net-changed net-placed",
					"GoAll":   all,
					"Net":     "go-cancelled go-placed net-changed net-placed",
					"NetBase": "go-cancelled go-placed net-changed net-placed",
					// That OrderChanged has the interface is known by NServiceBus alone.
					"NetInterface": "go-cancelled go-placed net-changed net-placed",
					"NetAll":       all,
				} {
					got := strings.Fields(s.arrived(t, queue))
					slices.Sort(got)
					if text := strings.Join(got, " "); text != want {
						t.Errorf("%s has %q, want %q", queue, text, want)
					}
				}
				// Both sides start again, and find the entities that they need.
				net.install(t, "Net", "error")
				subscribeNet()
				provision(t, transport, "Go", "error")
				unsubscribe(t, transport, "GoAll", "NServiceBus.IEvent")
				net.publish(t, orderReminded, "last")
				if got := s.arrived(t, "GoAll"); got != "" {
					t.Errorf("after Unsubscribe it has %q", got)
				}
			})
		}
	})
}

func TestNServiceBus_Topics(t *testing.T) {
	t.Parallel()
	transport, err := rabbitmq.New(rabbitmq.Config{URLs: []string{"amqp://127.0.0.1:1"}, Topology: rabbitmq.NServiceBus})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close(context.WithoutCancel(t.Context())) })
	for topic, says := range map[string]string{
		"Shop.Orders.OrderPlaced": "", "Shop.List`1": "generic type", "Shop:OrderPlaced": "has no colon", "": "is empty",
	} {
		if err := transport.CheckTopic(topic); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("CheckTopic(%q) = %v", topic, err)
		}
	}
}

// Declarations of Reprise that stop NServiceBus's installer are told of where it is at home.
func TestProvision_WarnsBesideNServiceBus(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "orders")
		if warnings := transport.Warnings(); len(warnings) > 0 {
			t.Errorf("without NServiceBus it warns: %q", warnings)
		}
		s.netHost(t).publish(t, orderPlaced, "1")
		provision(t, transport, "orders") // which are there
		if warnings := transport.Warnings(); len(warnings) > 0 {
			t.Errorf("it made nothing, and warns: %q", warnings)
		}
		provision(t, transport, "orders", "billing", "error")
		saysAll(t, errors.New(strings.Join(transport.Warnings(), "\n")), `["billing" "error"]`, "its installer fails", "set Config.Topology to NServiceBus")
		beside := s.provisioned(t, s.beside(t), "shipping")
		if warnings := beside.Warnings(); len(warnings) > 0 {
			t.Errorf("in its own topology it warns: %q", warnings)
		}
	})
}

func TestSubscribe_BaseTopics(t *testing.T) {
	t.Parallel()
	onBothTopologies(t, func(t *testing.T, s *site, cfg rabbitmq.Config) {
		transport := s.provisioned(t, cfg, "all", "base")
		subscribe(t, transport, "all", "placed", "changed", "event")
		subscribe(t, transport, "base", "event")
		const body = "placed"
		for range 2 {
			if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Topic: "placed", BaseTopics: []string{"changed", "event"}, Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		publish(t, transport, "changed")
		for queue, want := range map[string]string{"all": "placed placed changed", "base": "placed placed"} {
			if got := s.arrived(t, queue); got != want {
				t.Errorf("%s has %q, want %q", queue, got, want)
			}
		}
	})
}

// Endpoints on both sides: an event of a derived .NET type reaches the handlers of its types,
// and the endpoint's events name their base types.
func TestNServiceBus_EndpointHandlesDerivedTypes(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		net := s.netHost(t)
		net.install(t, "Net", "error")
		net.subscribe(t, "Net", orderEvent)
		ep, err := core.New("billing", s.open(t, s.beside(t)), core.Config{
			Provision: core.ProvisionAlways,
			BaseTypes: map[string][]string{"Shop.Billing.InvoicePaid": {"Shop.IOrderEvent"}},
			// The queues of delayed messages are not made here.
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan string, 10)
		for _, messageType := range []string{"Shop.IOrderEvent", "Shop.Orders.OrderChanged"} {
			core.HandleEvent(ep, core.NewEvent[[]byte](messageType), func(_ context.Context, m *core.Message, _ []byte) error {
				ran <- messageType
				if messageType == "Shop.IOrderEvent" && m.ID == "1" { // and not at its own event
					return m.Publish(invoicePaidEvent.Of([]byte("42")))
				}
				return nil
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(ctx) }()
		<-ep.Ready()
		net.hierarchy(t, orderPlaced)
		const assembly = ", Shop.Contracts, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"
		if err := net.ch.Publish("Shop.Orders:OrderPlaced", "", false, false, amqp.Publishing{
			MessageId: "1", Type: "Shop.Orders.OrderPlaced", Body: []byte("42"),
			Headers: amqp.Table{
				"NServiceBus.MessageId":            "1",
				"NServiceBus.EnclosedMessageTypes": "Shop.Orders.OrderPlaced" + assembly + ";Shop.Orders.OrderChanged" + assembly + ";Shop.IOrderEvent" + assembly,
			},
		}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Shop.Orders.OrderChanged", "Shop.IOrderEvent"} {
			select {
			case got := <-ran:
				if got != want {
					t.Errorf("the handler of %s ran, want that of %s", got, want)
				}
			case <-time.After(patience):
				t.Fatal("no handler ran")
			}
		}
		deliveries, err := net.ch.Consume("Net", "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for {
			d := await(t, deliveries)
			if d.Exchange == "Shop.Orders:OrderPlaced" {
				continue // its own
			}
			if got, want := d.Headers["NServiceBus.EnclosedMessageTypes"], "Shop.Billing.InvoicePaid;Shop.IOrderEvent"; d.Exchange != "Shop.Billing:InvoicePaid" || d.Type != "Shop.Billing.InvoicePaid" || got != want {
				t.Errorf("NServiceBus gets %q by %s, with the types %v", d.Type, d.Exchange, got)
			}
			break
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What docs/transports/rabbitmq.md says of rights in this topology, and nothing else.
func TestNServiceBus_Rights(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		admin := s.provisioned(t, s.beside(t), "billing")
		event := core.Outgoing{ID: "1", Topic: "Shop.OrderPlaced", BaseTopics: []string{"Shop.IOrderEvent"}, Body: []byte("event")}
		mustSend(t, admin, event)
		subscribe(t, admin, "billing", "Shop.IOrderEvent")
		messages := []core.Outgoing{event, {ID: "2", Queue: "billing", Body: []byte("command")}}
		open := func(name, write, read string) *rabbitmq.Transport {
			return s.open(t, rabbitmq.Config{Topology: rabbitmq.NServiceBus, URLs: []string{s.user(t, name, "^$", write, read)}})
		}
		mustSend(t, open("enough", "^(billing|Shop:OrderPlaced|Shop:IOrderEvent|System:Object)$", "^Shop:OrderPlaced$"), messages...)
		for name, missing := range map[string]*rabbitmq.Transport{
			"the queue":       open("queue", "^(Shop:OrderPlaced|Shop:IOrderEvent|System:Object)$", "^Shop:OrderPlaced$"),
			"the base type":   open("base", "^(billing|Shop:OrderPlaced|System:Object)$", "^Shop:OrderPlaced$"),
			"all classes":     open("object", "^(billing|Shop:OrderPlaced|Shop:IOrderEvent)$", "^Shop:OrderPlaced$"),
			"reading the own": open("read", "^(billing|Shop:OrderPlaced|Shop:IOrderEvent|System:Object)$", "^$"),
		} {
			t.Run(name, func(t *testing.T) {
				saysAll(t, errors.Join(missing.Send(t.Context(), messages[0]), missing.Send(t.Context(), messages[1])), "ACCESS_REFUSED")
			})
		}
	})
}
