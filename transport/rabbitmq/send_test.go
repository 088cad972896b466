package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The other messages of the call are accepted.
func TestSend_UnknownQueueFailsItsMessageOnly(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing"})
		const senders, each = 8, 100
		var wg sync.WaitGroup
		for sender := range senders {
			wg.Go(func() {
				messages := numbered("billing", sender*each, each)
				bad := 7 * sender
				messages[bad].Queue = "nowhere"
				failed, ok := errors.AsType[*core.SendError](transport.Send(t.Context(), messages...))
				if !ok {
					t.Errorf("Send to an unknown queue is no SendError")
					return
				}
				for i, result := range failed.Results {
					switch {
					case i != bad && result.State != core.SendAccepted:
						t.Errorf("message %d of sender %d is %v: %v", i, sender, result.State, result.Err)
					case i == bad && (result.State != core.SendRefused || !errors.Is(result.Err, core.ErrQueueNotFound)):
						t.Errorf("the message to nowhere is %v: %v", result.State, result.Err)
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for body, n := range drain(t, r, senders*(each-1)) {
			if n != 1 {
				t.Errorf("message %s came %d times", body, n)
			}
		}
	})
}

// More than can be in flight on a channel.
func TestSend_ManyUnroutableMessages(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		const n = 5_000
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		counts := states(t, n, transport.Send(ctx, numbered("nowhere", 0, n)...))
		if counts[core.SendRefused] != n {
			t.Errorf("%d messages to an unknown queue are %v, want all refused", n, counts)
		}
	})
}

// More than can be in flight on a channel.
func TestSend_ManyMessages(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 500})
		const n = 5_000
		mustSend(t, transport, numbered("billing", 0, n)...)
		for body, times := range drain(t, r, n) {
			if times != 1 {
				t.Errorf("message %s came %d times", body, times)
			}
		}
	})
}

// The broker refuses what exceeds x-max-length.
func TestSend_FullQueueRefuses(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for _, kind := range []string{"quorum", "classic"} {
			s.queue(t, kind, amqp.Table{"x-queue-type": kind, "x-max-length": 10, "x-overflow": "reject-publish"})
			transport := s.open(t, rabbitmq.Config{})
			// The limit of a quorum queue is checked after the messages in transit.
			var refused error
			accepted := 0
			for i := 0; i < 1000 && refused == nil; i++ {
				if refused = transport.Send(t.Context(), numbered(kind, i, 1)...); refused == nil {
					accepted++
				}
			}
			if accepted < 10 || accepted == 1000 {
				t.Errorf("%d messages fit into a %s queue for 10", accepted, kind)
			}
			if counts := states(t, 1, refused); counts[core.SendRefused] != 1 {
				t.Errorf("what does not fit into a %s queue is %v: %v", kind, counts, refused)
			}
			saysAll(t, refused, "x-max-length")
			// It is of that queue alone.
			provision(t, transport, "roomy-"+kind)
			mixed := append(numbered("roomy-"+kind, 0, 5), numbered(kind, 5, 5)...)
			if counts := states(t, 10, transport.Send(t.Context(), mixed...)); counts[core.SendAccepted] != 5 || counts[core.SendRefused] != 5 {
				t.Errorf("half to a full %s queue is %v", kind, counts)
			}
		}
	})
}

// Whether the message is returned or confirmed after that.
func TestSend_CanceledLeavesNoReturnBehind(t *testing.T) {
	t.Parallel()
	b, _ := through(t)
	transport := b.proxied(t, "billing")
	mustSend(t, transport, numbered("billing", 0, 1)...)
	messages := append(numbered("nowhere", 1, 50), numbered("billing", 51, 50)...)
	for wait, unknown := 50*time.Millisecond, 0; unknown < len(messages); wait *= 2 { // until there is time to write them all
		b.proxy.Stall()
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		err := transport.Send(ctx, messages...)
		cancel()
		b.proxy.Resume()
		counts := states(t, len(messages), err)
		if unknown = counts[core.SendUnknown]; unknown+counts[core.SendRefused] != len(messages) {
			t.Fatalf("unconfirmed messages are %v: %v", counts, err)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Send = %v, which does not say that its context ended", err)
		}
		awaitSend(t, transport, numbered("billing", 101, 1)...)
	}
	for i := range 3 { // the first is confirmed after everything before, the others have the publisher look
		mustSend(t, transport, numbered("billing", 200+i, 1)...)
	}
	if err := transport.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := rabbitmq.Returned(transport); n > 0 {
		t.Errorf("%d returns are remembered that nobody asks for", n)
	}
}

// Wherever it waits.
func TestSend_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	b, _ := through(t)
	transport := b.proxied(t, "billing")
	mustSend(t, transport, numbered("billing", 0, 1)...)
	b.proxy.Stall()
	defer b.proxy.Resume()
	// More than the network takes: it is still being written when the first gives up.
	large := numbered("billing", 1, 64)
	for i := range large {
		large[i].Body = make([]byte, 1<<20)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			err := transport.Send(ctx, large...)
			counts := states(t, len(large), err)
			if counts[core.SendAccepted] > 0 {
				t.Errorf("messages are accepted though nothing arrives: %v", counts)
			}
			if i == 0 && counts[core.SendRefused] == 0 {
				t.Errorf("64 MiB were written to a network that is stalled: %v", counts)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Send = %v, which does not say that its context ended", err)
			}
		})
	}
	wg.Wait()
}

// Messages in flight are not accepted, and later ones are sent on another connection.
func TestSend_CutConnectionAcceptsNothingUnconfirmed(t *testing.T) {
	t.Parallel()
	b, s := through(t)
	transport := b.proxied(t, "billing")
	accepted := map[string]bool{}
	first := 0
	const rounds, each = 10, 200
	for round := range rounds {
		messages := numbered("billing", first, each)
		first += len(messages)
		at := round * each / rounds // somewhere among them
		messages[at].Body = fmt.Appendf(nil, "number %d", at)
		struck := b.proxy.CutAfter(messages[at].Body)
		err := transport.Send(t.Context(), messages...)
		failed, _ := errors.AsType[*core.SendError](err)
		for i := range messages {
			if failed == nil || failed.Results[i].State == core.SendAccepted {
				accepted[string(messages[i].Body)] = true
			}
		}
		select {
		case <-struck:
		case <-time.After(patience):
			t.Fatal("the connection was not cut")
		}
		if failed == nil {
			t.Errorf("round %d: all messages are accepted, though the connection was cut", round)
		}
	}
	came := s.take(t, "billing")
	for body := range accepted {
		if came[body] == 0 {
			t.Errorf("message %s was accepted and lost", body)
		}
	}
}

// After a channel whose broker confirmed nothing in time, the next channel waits for
// longer.
func TestSend_SlowQueueIsWaitedForLonger(t *testing.T) {
	if testing.Short() {
		t.Skip("channels time out: not in short runs")
	}
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		mustSend(t, transport, numbered("billing", 0, 1)...)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { s.suspendQueue(t, "billing", 16*time.Second) })
		send := func() core.SendState {
			err := transport.Send(t.Context(), numbered("billing", 1, 1)...)
			for state := range states(t, 1, err) {
				return state
			}
			return core.SendAccepted
		}
		awaitTrue(t, "a channel is given up", func() bool { return send() == core.SendUnknown })
		// Channels wait for 5 s, 10 s and 20 s. None ends with the one before it, whose end the
		// broker does not answer.
		unknown := 1
		for send() != core.SendAccepted {
			unknown++
		}
		if unknown > 2 {
			t.Errorf("%d messages were given up, want 2 at most", unknown)
		}
	})
}

// A broker that is slow, but confirms, is waited for however long the whole takes.
func TestSend_TakesAsLongAsConfirmsArrive(t *testing.T) {
	if testing.Short() {
		t.Skip("a queue is slow for seconds: not in short runs")
	}
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		mustSend(t, transport, numbered("billing", 0, 1)...)
		s.eval(t, "billing", `F = fun F(0) -> ok; F(N) ->
			sys:suspend(Name), timer:sleep(700), sys:resume(Name), timer:sleep(5), F(N - 1) end, spawn(fun() -> F(10) end)`)
		if err := transport.Send(t.Context(), numbered("billing", 1, 20_000)...); err != nil {
			t.Errorf("%.300v", err)
		}
	})
}

// Though the window is not wide.
func TestSend_SilentQueueDelaysNoOther(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "stuck", "billing")
		// The first message of a channel to a queue is one that the broker's channel waits for.
		mustSend(t, transport, append(numbered("billing", 0, 1), numbered("stuck", 0, 1)...)...)
		s.eval(t, "stuck", "sys:suspend(Name)")
		defer s.eval(t, "stuck", "sys:resume(Name)")
		// The stuck message ends its channel after 5 s, the next one after 10 s and so on: long
		// enough, sooner or later, for more messages than can be in flight.
		const batch, want = 50, 2_500
		for round := 0; ; round++ {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if counts := states(t, 1, transport.Send(t.Context(), numbered("stuck", 0, 1)...)); counts[core.SendUnknown] != 1 {
					t.Errorf("a message that its queue does not confirm is %v", counts)
				}
			}()
			var accepted atomic.Int64
			var senders sync.WaitGroup
			for range 16 {
				senders.Go(func() {
					for accepted.Load() < want {
						select {
						case <-ended:
							return
						default:
						}
						if transport.Send(t.Context(), numbered("billing", 0, batch)...) == nil {
							accepted.Add(batch)
						}
					}
				})
			}
			senders.Wait()
			n := accepted.Load()
			if <-ended; t.Failed() || n >= want {
				break
			}
			if round == 3 {
				t.Fatalf("while one message was stuck, only %d others were accepted", n)
			}
		}
	})
}

// Where no connection is to be had the next send does not begin to wait when the one before
// it has failed.
func TestSend_WaitingSendsFailTogether(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	var attempts atomic.Int64
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			attempts.Add(1)
		}
	}()
	transport, err := rabbitmq.Open("amqp://" + silent.Addr().String() + "?connection_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = transport.Close(t.Context()) }()
	const senders = 20
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			if counts := states(t, 1, transport.Send(t.Context(), numbered("billing", i, 1)...)); counts[core.SendRefused] != 1 {
				t.Errorf("what could not be sent is %v", counts)
			}
		})
	}
	wg.Wait()
	if n := attempts.Load(); n > senders/4 {
		t.Errorf("%d sends that waited together made %d attempts to connect", senders, n)
	}
}

// suspendQueue has a quorum queue do nothing for some time.
func (s *site) suspendQueue(t *testing.T, queue string, d time.Duration) {
	s.eval(t, queue, fmt.Sprintf(`sys:suspend(Name), spawn(fun() -> timer:sleep(%d), sys:resume(Name) end)`, d.Milliseconds()))
}

// eval has the broker evaluate an expression in which Name is the process of a quorum queue.
func (s *site) eval(t *testing.T, queue, expression string) {
	_, err := s.Eval(t.Context(), fmt.Sprintf(`
		{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)),
		{Name, _} = amqqueue:get_pid(Q),
		%s.`, s.vhost, queue, expression))
	if err != nil {
		t.Error(err)
	}
}
