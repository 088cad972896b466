package rabbitmq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// expiring is the topology of an endpoint with an input queue that expires.
func expiring(after time.Duration) core.Topology {
	return core.Topology{InputQueue: "orders-a", Queues: []string{"orders-a", "error"}, QueueExpiry: after}
}

func TestProvision_QueueExpiry(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	for name, c := range map[string]struct {
		cfg       rabbitmq.Config
		arguments string
		exchange  string // its auto_delete; "" is none
	}{
		"quorum":    {rabbitmq.Config{}, "map[x-delivery-limit:100000 x-expires:3.6e+06 x-queue-type:quorum]", "true"},
		"classic":   {rabbitmq.Config{QueueType: rabbitmq.Classic}, "map[x-expires:3.6e+06 x-queue-type:classic]", "true"},
		"in direct": {rabbitmq.Config{Topology: rabbitmq.Direct}, "map[x-delivery-limit:100000 x-expires:3.6e+06 x-queue-type:quorum]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *site) {
				s.withDelays()
				transport := s.open(t, c.cfg)
				for range 2 {
					if err := transport.Provision(t.Context(), expiring(time.Hour)); err != nil {
						t.Fatal(err)
					}
				}
				if err := transport.Check(t.Context(), expiring(time.Hour)); err != nil {
					t.Error(err)
				}
				all := strings.Join(s.catalogue(t), "\n")
				for _, want := range []string{
					"name=orders-a type=" + strings.ToLower(c.cfg.QueueType.String()) + " durable=true auto_delete=false exclusive=false arguments=" + c.arguments,
					"bindings source=nsb.v2.delay-delivery destination=orders-a ",
				} {
					if !strings.Contains(all, want) {
						t.Errorf("%s is missing in\n%s", want, all)
					}
				}
				if strings.Count(all, "x-expires") > 1 {
					t.Errorf("the other queues expire too:\n%s", all)
				}
				exchange := "exchanges name=orders-a type=fanout durable=true auto_delete=" + c.exchange + " "
				if c.exchange != "" && !strings.Contains(all, exchange) || c.exchange == "" && strings.Contains(all, "exchanges name=orders-a") {
					t.Errorf("the exchange is not as it should be, auto_delete=%q, in\n%s", c.exchange, all)
				}
			})
		})
	}
}

// The broker deletes the queue with its exchange when it has had no receiver for that
// time, not before, and with its messages.
func TestProvision_QueueExpiresWithoutAReceiver(t *testing.T) {
	t.Parallel()
	for _, kind := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *site) {
				const expiry = 3 * time.Second
				transport := s.open(t, rabbitmq.Config{QueueType: kind})
				if err := transport.Provision(t.Context(), expiring(expiry)); err != nil {
					t.Fatal(err)
				}
				r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders-a", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
				if err != nil {
					t.Fatal(err)
				}
				send := func() error {
					return transport.Send(t.Context(), core.Outgoing{ID: "m", Queue: "orders-a", Body: []byte("x")})
				}
				for began := time.Now(); time.Since(began) < 2*expiry; time.Sleep(100 * time.Millisecond) { // received from, it stays
					if err := send(); err != nil {
						t.Fatal(err)
					}
					if err := next(t, r, 1)[0].Complete(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := send(); err != nil { // a message does not keep it
					t.Fatal(err)
				}
				left := time.Now()
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				// A declaration of a queue, even a passive one, restarts its time.
				exists := fmt.Sprintf(`length([1 || rabbit_amqqueue:exists(rabbit_misc:r(<<"%s">>, queue, <<"orders-a">>))]).`, s.vhost)
				awaitTrue(t, "the queue is deleted", func() bool { return s.evalNumber(t, exists) == 0 })
				awaitTrue(t, "its exchange is deleted too", func() bool { return !strings.Contains(strings.Join(s.catalogue(t), "\n"), "name=orders-a ") })
				if took := time.Since(left); took < expiry {
					t.Errorf("the queue was deleted %v after its last receiver had left, want %v at least", took, expiry)
				}
				if all := strings.Join(s.catalogue(t), "\n"); strings.Contains(all, "orders-a") {
					t.Errorf("something is left:\n%s", all)
				}
				if err := send(); !errors.Is(err, core.ErrQueueNotFound) {
					t.Errorf("Send to it: %v", err)
				}
				if err := transport.Provision(t.Context(), expiring(expiry)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestProvision_QueueOfAnotherExpiry(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for name, c := range map[string]struct {
			expires any
			says    []string
		}{
			"none":    {nil, []string{"x-expires) none", "remove Config.QueueExpiry"}},
			"shorter": {60000, []string{"x-expires) 1m0s (60000)", "set Config.QueueExpiry to 1m0s"}},
		} {
			t.Run(name, func(t *testing.T) {
				arguments := amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 100000}
				if c.expires != nil {
					arguments["x-expires"] = c.expires
				}
				queue := "orders-" + name
				s.queue(t, queue, arguments)
				err := s.open(t, rabbitmq.Config{}).Provision(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}, QueueExpiry: time.Hour})
				saysAll(t, err, append(c.says, queue, "says 1h0m0s (3600000)", "delete it")...)
			})
		}
	})
}

func TestQueueExpiry_ThatTheBrokerCannotHaveIsRefused(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.open(t, rabbitmq.Config{})
		for _, expiry := range []time.Duration{time.Millisecond, time.Second + 1, 50 * 24 * time.Hour} {
			says := []string{"Config.QueueExpiry of the endpoint is " + expiry.String(), "after 1s to 1176h0m0s in whole milliseconds"}
			saysAll(t, transport.Provision(t.Context(), expiring(expiry)), says...)
			saysAll(t, transport.Check(t.Context(), expiring(expiry)), says...)
		}
		if all := strings.Join(s.catalogue(t), "\n"); strings.Contains(all, "orders-a") {
			t.Errorf("something was created:\n%s", all)
		}
	})
}
