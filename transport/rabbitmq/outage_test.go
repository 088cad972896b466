package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The write ends with the connection, which receives no more heartbeats.
func TestOutage_EndsAStuckWrite(t *testing.T) {
	t.Parallel()
	b, s := through(t)
	transport := s.provisioned(t, rabbitmq.Config{URLs: beating(2*time.Second, b.url)}, "billing")
	awaitSend(t, transport, numbered("billing", 0, 1)...)
	b.proxy.Stall()
	defer b.proxy.Resume()
	large := numbered("billing", 1, 64)
	for i := range large {
		large[i].Body = make([]byte, 1<<20)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := transport.Send(ctx, large...)
	if ctx.Err() != nil {
		t.Fatalf("the write was stuck for longer than %v: %v", patience, err)
	}
	if counts := states(t, len(large), err); counts[core.SendUnknown] == 0 || counts[core.SendRefused] == 0 || counts[core.SendAccepted] > 0 {
		t.Errorf("64 MiB into a network that is stalled are %v", counts)
	}
}

// The observer is told why the broker closed the connection or the channel.
func TestOutage_SaysWhy(t *testing.T) {
	t.Parallel()
	b, s := through(t)
	transport := b.proxied(t, "billing")
	w := &watch{}
	r := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
	const rounds = 8 // the library's notifications of one end come in any order
	for round := range rounds {
		mustSend(t, s.open(t, rabbitmq.Config{}), numbered("billing", round, 1)...)
		if body := string(next(t, r, 1)[0].Incoming().Body); body == "" {
			t.Fatal("an empty message came")
		}
		before := len(w.all())
		reason := fmt.Sprintf("round %d", round)
		s.closeConnections(t, reason)
		awaitTrue(t, "the observer is told of the end", func() bool { all := w.all(); return len(all) > before && all[len(all)-1].Connected })
		if !w.said("CONNECTION_FORCED", reason) {
			t.Errorf("no outage was explained by %q: %v", reason, w.all()[before:])
		}
	}
}

// Though the connection works.
func TestOutage_DeletedQueueIsPermanent(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing"})
		mustSend(t, transport, numbered("billing", 0, 1)...)
		d := next(t, r, 1)[0]
		if _, err := s.channel(t).QueueDelete("billing", false, false, false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for range 2 { // for good
			if _, err := r.Receive(ctx, make([]core.Delivery, 1)); !errors.Is(err, core.ErrQueueNotFound) {
				t.Errorf("Receive from a queue that was deleted = %v, want ErrQueueNotFound", err)
			} else {
				saysAll(t, err, `"billing"`, "Provision")
			}
		}
		if err := d.Complete(ctx); !errors.Is(err, core.ErrLockLost) {
			t.Errorf("Complete of a delivery that was in the queue = %v, want ErrLockLost", err)
		}
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
		awaitTrue(t, "the connection of a receiver that has failed is gone", func() bool { return s.connections(t, "receive billing") == 0 })
	})
}

// It keeps the deliveries it has, and receives new messages.
func TestPurge_ReceiverContinues(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 2})
		mustSend(t, transport, numbered("billing", 0, 10)...)
		d := next(t, r, 1)[0]
		if _, err := s.channel(t).QueuePurge("billing", false); err != nil {
			t.Fatal(err)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
		for _, d := range next(t, r, 1) { // it was held, so it was not purged
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
		}
		mustSend(t, transport, numbered("billing", 10, 1)...)
		if body := string(next(t, r, 1)[0].Incoming().Body); body != "10" {
			t.Errorf("after the purge came message %s, want 10", body)
		}
	})
}

// At a start another consumer that is exclusive is an error.
func TestOpenReceiver_ExclusiveConsumerElsewhere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.queue(t, "billing", nil)
		if _, err := s.channel(t).Consume("billing", "", false, true, false, false, nil); err != nil {
			t.Fatal(err)
		}
		err := receive(t, s.open(t, rabbitmq.Config{QueueType: rabbitmq.Classic}), "billing", 0)
		saysAll(t, err, `"billing"`, "in exclusive use", "another consumer")
	})
}

// Otherwise the broker's log would be full of connections that were lost.
func TestClose_EndsTheConnectionInOrder(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{ConnectionName: "polite " + s.vhost}, "billing")
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing"})
		mustSend(t, transport, numbered("billing", 0, 1)...)
		if err := next(t, r, 1)[0].Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := transport.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		awaitTrue(t, "the broker has no connection left", func() bool { return s.connections(t, "polite "+s.vhost) == 0 })
		for line := range strings.Lines(s.Log()) {
			if strings.Contains(line, "closing AMQP connection") && strings.Contains(line, "polite "+s.vhost+":") && strings.Contains(line, "[warning]") {
				t.Errorf("the broker complains: %s", line)
			}
		}
	})
}

// connections is how many there are whose names contain a text.
func (s *site) connections(t testing.TB, name string) int {
	t.Helper()
	return s.evalNumber(t, fmt.Sprintf(`length([1 || [{_, <<"%s">>}, {_, Properties}] <- rabbit_networking:connection_info_all([vhost, client_properties]),
		"%s" == "" orelse string:find(element(3, lists:keyfind(<<"connection_name">>, 1, Properties ++ [{<<"connection_name">>, none, <<>>}])), "%[2]s") =/= nomatch]).`, s.vhost, name))
}

// closeConnections has the broker close all connections to the virtual host, and say why.
func (s *site) closeConnections(t testing.TB, reason string) {
	t.Helper()
	s.evalNumber(t, fmt.Sprintf(`length([rabbit_networking:close_connection(PID, "%s")
		|| [{_, PID}, {_, <<"%s">>}] <- rabbit_networking:connection_info_all([pid, vhost])]).`, reason, s.vhost))
}

// evalNumber has the broker evaluate an expression whose value is a number.
func (s *site) evalNumber(t testing.TB, expression string) int {
	t.Helper()
	text, err := s.Eval(t.Context(), expression)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is no number: %v", text, err)
	}
	return n
}

// It returns when its context ends.
func TestClose_DoesNotWaitForAStalledNetwork(t *testing.T) {
	t.Parallel()
	b, s := through(t)
	transport := b.proxied(t, "billing")
	r := consume(t, transport, core.ReceiverConfig{Queue: "billing"})
	other := consume(t, transport, core.ReceiverConfig{Queue: "billing"})
	mustSend(t, transport, numbered("billing", 0, 50)...)
	held := next(t, r, 10)
	b.proxy.Stall()
	defer b.proxy.Resume()
	if err := held[0].Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { // both would wait for an hour to hear of the broker
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		closed <- errors.Join(other.Close(ctx), transport.Close(ctx))
	}()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Close does not end with its context")
	}
	if _, err := r.Receive(t.Context(), make([]core.Delivery, 1)); !errors.Is(err, core.ErrClosed) {
		t.Errorf("Receive after Close = %v, want ErrClosed", err)
	}
	b.proxy.Cut()
	b.proxy.Resume()
	second := consume(t, s.open(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "billing"})
	drain(t, second, 50) // all of them, since the broker did not get the acknowledgement
}
