package rabbitmq_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

const unroutableQueue, undeliveredQueue = "reprise.unroutable", "reprise.undelivered"

// bindingKey returns the key of a queue's bindings for delayed messages.
func bindingKey(queue string) string { return strings.Repeat("*.", 28) + queue }

// unbound removes bindings of a queue for delayed messages, as while a broker that starts
// has not restored them, sends delayed messages to it, and restores the bindings when the
// messages have been passed on.
func (s *site) unbound(t *testing.T, transport *rabbitmq.Transport, queue string, messages int, exchanges ...string) {
	t.Helper()
	sendDelayed(t, transport, queue, messages)
	ch := s.channel(t)
	for _, exchange := range exchanges {
		if err := ch.QueueUnbind(queue, bindingKey(queue), exchange, nil); err != nil {
			t.Fatal(err)
		}
	}
	awaitTrue(t, "the messages are passed on", func() bool { return s.ready(t, ch, unroutableQueue) == messages })
	for _, exchange := range exchanges {
		if err := ch.QueueBind(queue, bindingKey(queue), exchange, false, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// moving returns a transport that looks for unroutable messages often, once it receives.
func (s *site) moving(t *testing.T, cfg rabbitmq.Config) *rabbitmq.Transport {
	t.Helper()
	transport := s.open(t, cfg)
	transport.PollUndelivered(20 * time.Millisecond)
	return transport
}

// nothingIsLeft fails the test unless all messages have left the queues of unroutable and
// of undelivered messages.
func (s *site) nothingIsLeft(t *testing.T) {
	t.Helper()
	ch := s.channel(t)
	awaitTrue(t, "no message is unroutable", func() bool {
		if s.ready(t, ch, unroutableQueue) > 0 {
			return false
		}
		ready, unacked := s.depth(t, unroutableQueue)
		return ready+unacked == 0
	})
	if ready, unacked := s.depth(t, undeliveredQueue); ready+unacked != 0 {
		t.Errorf("%d messages are undelivered", ready+unacked)
	}
}

// TestUnroutable_MessageOfAQueueThatIsBoundIsDelivered, as often as it missed the queue.
func TestUnroutable_MessageOfAQueueThatIsBoundIsDelivered(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	for name, c := range map[string]struct {
		unbound []string
		copies  int
	}{
		"the only copy":       {[]string{"nsb.v2.delay-delivery", "reprise.delay-delivery"}, 1},
		"a copy of delivered": {[]string{"reprise.delay-delivery"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *site) {
				s.withDelays()
				const messages = 40
				transport := s.provisioned(t, rabbitmq.Config{}, "orders")
				s.unbound(t, transport, "orders", messages, c.unbound...)
				r := consume(t, s.moving(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "orders"})
				came, all := map[string]int{}, 0
				for all < c.copies*messages {
					for _, d := range next(t, r, 100) {
						in := d.Incoming()
						if in.Headers.Get(headers.MessageTypes) != "t" || in.ID != string(in.Body) {
							t.Errorf("message %s has the body %s and the headers %v", in.ID, in.Body, in.Headers)
						}
						came[in.ID]++
						all++
						if err := d.Complete(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				for id, n := range came {
					if n != c.copies {
						t.Errorf("%s came %d times, want %d", id, n, c.copies)
					}
				}
				s.nothingIsLeft(t)
				awaitTrue(t, "none is left", func() bool { ready, unacked := s.depth(t, "orders"); return ready+unacked == 0 })
			})
		})
	}
}

// TestUnroutable_SeveralEndpointsDeliverOnce: each takes other messages.
func TestUnroutable_SeveralEndpointsDeliverOnce(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		const messages, endpoints = 200, 4
		transport := s.provisioned(t, rabbitmq.Config{}, "orders", "others")
		s.unbound(t, transport, "orders", messages, "nsb.v2.delay-delivery", "reprise.delay-delivery")
		for range endpoints {
			consume(t, s.moving(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "others"})
		}
		s.nothingIsLeft(t)
		came := s.take(t, "orders")
		for id, n := range came {
			if n != 1 {
				t.Errorf("%s came %d times", id, n)
			}
		}
		if len(came) != messages {
			t.Errorf("%d of %d messages came", len(came), messages)
		}
	})
}

// TestUnroutable_LostConnectionsLoseNoMessage: what was published and not acknowledged is
// published again.
func TestUnroutable_LostConnectionsLoseNoMessage(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		const messages = 100
		transport := s.provisioned(t, rabbitmq.Config{}, "orders", "others")
		s.unbound(t, transport, "orders", messages, "nsb.v2.delay-delivery", "reprise.delay-delivery")
		consume(t, s.moving(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "others"})
		for left := messages; left > 0; {
			was, ch := left, s.channel(t)
			awaitTrue(t, "some messages are moved", func() bool { left = s.ready(t, ch, unroutableQueue); return left < was })
			// Connections of other tests may end at the same time.
			if _, err := s.Eval(t.Context(), fmt.Sprintf(`[catch rabbit_networking:close_connection(P, "by the test") || P <- rabbit_networking:connections(),
				(catch rabbit_networking:connection_info(P, [vhost])) =:= [{vhost, <<"%s">>}]].`, s.vhost)); err != nil {
				t.Fatal(err)
			}
		}
		s.nothingIsLeft(t)
		if came := s.take(t, "orders"); len(came) != messages {
			t.Errorf("%d of %d messages came", len(came), messages)
		}
	})
}

// TestUnroutable_QueueMadeByNServiceBusGetsNoSecondCopy: where a queue was deleted and made
// again by NServiceBus's installer, a delayed message of NServiceBus's is delivered, and a
// copy of it is unroutable.
func TestUnroutable_QueueMadeByNServiceBusGetsNoSecondCopy(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		const messages = 20
		s.provisioned(t, rabbitmq.Config{}, "theirs", "others")
		ch := s.channel(t)
		if _, err := ch.QueueDelete("theirs", false, false, false); err != nil {
			t.Fatal(err)
		}
		declareLikeNServiceBus(t, ch, "theirs")
		told := &undeliveredCount{}
		consume(t, s.moving(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "others", MessageUndeliverable: told.MessageUndeliverable})
		for range messages {
			if err := ch.PublishWithContext(t.Context(), "nsb.v2.delay-level-00", strings.Repeat("0.", 27)+"1.theirs", false, false, amqp.Publishing{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		awaitTrue(t, "it is told", func() bool { return told.messages.Load() >= messages })
		if came := s.take(t, "theirs"); came["x"] != messages {
			t.Errorf("%d messages came, want %d", came["x"], messages)
		}
	})
}

// TestUnroutable_MessageThatCannotBeRepeatedIsKept as it is.
func TestUnroutable_MessageThatCannotBeRepeatedIsKept(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	key := strings.Repeat("0.", 28) + "others"
	for name, c := range map[string]struct {
		key     string
		message amqp.Publishing
	}{
		"key of no delayed message": {"others", amqp.Publishing{}},
		"key without a queue":       {strings.TrimSuffix(key, "others"), amqp.Publishing{}},
		"of another user":           {key, amqp.Publishing{UserId: "guest"}},
		"with further keys":         {key, amqp.Publishing{Headers: amqp.Table{"CC": []any{"others"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onNewest(t, func(t *testing.T, s *site) {
				s.withDelays()
				s.provisioned(t, rabbitmq.Config{}, "others")
				c.message.Body = []byte("x")
				if err := s.channel(t).PublishWithContext(t.Context(), unroutableQueue, c.key, true, false, c.message); err != nil {
					t.Fatal(err)
				}
				told := &undeliveredCount{}
				consume(t, s.moving(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "others", MessageUndeliverable: told.MessageUndeliverable})
				awaitTrue(t, "it is told", func() bool { return told.messages.Load() >= 1 })
				m, ok, err := s.channel(t).Get(undeliveredQueue, true)
				if err != nil || !ok {
					t.Fatalf("Get = %v, %v", ok, err)
				}
				if m.RoutingKey != c.key || m.UserId != c.message.UserId || string(m.Body) != "x" || (m.Headers["CC"] != nil) != (c.message.Headers != nil) {
					t.Errorf("undelivered is %+v", m)
				}
			})
		})
	}
}

// undeliverables is an observer that records the queues that it is told of.
type undeliverables struct {
	mu     sync.Mutex
	queues map[string]int
	why    error
}

// MessageUndeliverable is that of a core.ReceiverConfig.
func (o *undeliverables) MessageUndeliverable(e core.Undeliverable) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queues == nil {
		o.queues = map[string]int{}
	}
	o.queues[e.MovedTo] += e.Messages
	o.why = e.Err
}

func (o *undeliverables) forQueue(queue string) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queues[queue], o.why
}

// TestUnroutable_EndpointWithoutTheRightsTells and leaves the messages to another one.
func TestUnroutable_EndpointWithoutTheRightsTells(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	for name, read := range map[string]string{"to read the queue": "orders", "to write to the exchange": `(orders|reprise\.unroutable)`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onNewest(t, func(t *testing.T, s *site) {
				s.withDelays()
				const messages = 3
				transport := s.provisioned(t, rabbitmq.Config{}, "orders")
				s.unbound(t, transport, "orders", messages, "nsb.v2.delay-delivery", "reprise.delay-delivery")
				o := &undeliverables{}
				restricted := s.moving(t, rabbitmq.Config{URLs: []string{s.user(t, "app", "^orders$", "^orders$", "^"+read+"$")}})
				consume(t, restricted, core.ReceiverConfig{Queue: "orders", MessageUndeliverable: o.MessageUndeliverable})
				awaitTrue(t, "it is told", func() bool { n, _ := o.forQueue(unroutableQueue); return n >= messages })
				_, err := o.forQueue(unroutableQueue)
				saysAll(t, err, unroutableQueue, "reprise.delay-delivery", "rabbitmqctl set_permissions")
				consume(t, s.moving(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "orders"})
				s.nothingIsLeft(t)
			})
		})
	}
}

// holdBinding keeps a broker that was stopped from restoring the binding of a queue to the
// second exchange when it starts, by a lock in its database, until the function that it
// returns is called. The process that locks the binding runs before those of the broker, and
// only the worker that restores the binding waits for it: the broker needs others to elect
// the leaders of its queues.
func (s *site) holdBinding(t *testing.T, queue string) (release func()) {
	t.Helper()
	s.evaluate(t, fmt.Sprintf(`
		Binding = {binding, {resource, <<"%[1]s">>, exchange, <<"reprise.delay-delivery">>}, <<"%[2]s">>, {resource, <<"%[1]s">>, queue, <<"%[3]s">>}, []},
		Hold = fun() ->
			mnesia:lock({record, rabbit_route, Binding}, write),
			receive release -> ok end
		end,
		Try = fun Again() ->
			case catch lists:member(rabbit_route, mnesia:system_info(tables)) andalso mnesia:wait_for_tables([rabbit_route], 1000) of
				ok -> mnesia:transaction(Hold);
				_ -> timer:sleep(1), Again()
			end
		end,
		ok = application:set_env(rabbit, default_worker_pool_size, 8, [{persistent, true}]),
		register(test_holds_binding, spawn_opt(Try, [{priority, max}])).`, s.vhost, bindingKey(queue), queue))
	return func() { s.evaluate(t, "test_holds_binding ! release.") }
}

// evaluate has the server evaluate an Erlang expression.
func (s *site) evaluate(t *testing.T, expression string) {
	t.Helper()
	if _, err := s.Eval(t.Context(), expression); err != nil {
		t.Fatal(err)
	}
}

// connectable reports whether the broker accepts a client.
func (s *site) connectable() bool {
	conn, err := amqp.Dial(s.URL(s.vhost))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// missed returns how many messages are unroutable, also while the broker starts, and -1
// where that is not known yet. It has levels of delay pass on what they could not route when
// it was due, for which they take 3 minutes otherwise.
func (s *site) missed(t *testing.T) int {
	t.Helper()
	text, err := s.Eval(t.Context(), fmt.Sprintf(`
		[gen_server:cast(Pid, settle_timeout) || {_, Pid, _, _} <- supervisor:which_children(rabbit_fifo_dlx_sup), is_pid(Pid)],
		{ok, Queue} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)),
		{ok, N, _} = ra:consistent_query(amqqueue:get_pid(Queue), fun rabbit_fifo:query_messages_ready/1),
		N.`, s.vhost, unroutableQueue))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// missAtStart sends a message with a delay that ends while the broker starts, before it has
// restored the binding of the queue "orders", and reports whether the message has missed
// the queue. On a busy machine it may not: it is due before the broker stops, or the broker
// restores the binding before that can be held up.
func (s *site) missAtStart(t *testing.T, transport *rabbitmq.Transport, delay time.Duration) bool {
	t.Helper()
	message := typed("orders", "t", "delayed")
	message.Delay = delay
	due := time.Now().Add(delay)
	awaitSend(t, transport, message)
	// It has one way, as if the broker had not restored its other binding either.
	if err := s.channel(t).QueueUnbind("orders", bindingKey("orders"), "nsb.v2.delay-delivery", nil); err != nil {
		t.Fatal(err)
	}
	s.evaluate(t, "rabbit:stop().")
	if !time.Now().Before(due) {
		s.evaluate(t, "rabbit:start().")
		return false
	}
	release := s.holdBinding(t, "orders")
	s.evaluate(t, "spawn(fun rabbit:start/0).")
	missed := false
	awaitTrue(t, "the message has missed its queue, or the broker has started", func() bool {
		missed = s.missed(t) == 1
		return missed || s.connectable()
	})
	release()
	awaitTrue(t, "the broker has started", s.connectable)
	return missed
}

// TestUnroutable_RestartOfTheBroker: a message that is due while a broker that starts has
// not restored the binding of its queue misses the queue, and is delivered later.
func TestUnroutable_RestartOfTheBroker(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("restarts servers of its own: not in short runs")
	}
	for _, release := range []testserver.Release{testserver.V3, testserver.V4} {
		t.Run(fmt.Sprint(release), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, testserver.StartFor(t, testserver.Config{Release: release})).withDelays()
			if on, err := s.Eval(t.Context(), "rabbit_khepri:is_enabled()."); err == nil && on == "true" {
				t.Log("with Khepri the broker has all bindings before it starts queues")
				return
			}
			transport := s.provisioned(t, rabbitmq.Config{}, "orders")
			for delay := 8 * time.Second; !s.missAtStart(t, transport, delay); delay *= 2 {
				if delay > time.Minute {
					t.Fatal("the message did not miss its queue in four attempts")
				}
				s.take(t, "orders")
			}
			r := consume(t, s.moving(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "orders"})
			if came := drain(t, r, 1); came["delayed"] != 1 {
				t.Errorf("this came: %v", came)
			}
			s.nothingIsLeft(t)
		})
	}
}
