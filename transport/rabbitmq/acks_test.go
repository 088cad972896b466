package rabbitmq_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// Frames as they are on the wire: a method's class and number, without arguments.
var (
	basicAck     = []byte{0, 60, 0, 80}
	basicPublish = []byte{0, 60, 0, 40}
)

// No message is lost, and the receiver continues.
func TestComplete_ConnectionCutAroundTheAck(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*broker) <-chan struct{}{
		"before the broker gets it": func(b *broker) <-chan struct{} { return b.proxy.LoseRequest(basicAck) },
		"after the broker got it":   func(b *broker) <-chan struct{} { return b.proxy.CutAfter(basicAck) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := through(t)
			transport := b.proxied(t, "billing")
			sender := s.open(t, rabbitmq.Config{})
			r := consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 10})
			const n = 200
			mustSend(t, sender, numbered("billing", 0, n)...)
			came := map[string]int{}
			cuts := 0
			struck := cut(b)
			lost := 0
			for len(came) < n {
				for _, d := range next(t, r, 10) {
					came[string(d.Incoming().Body)]++
					switch err := d.Complete(t.Context()); {
					case errors.Is(err, core.ErrLockLost):
						lost++
					case err != nil:
						t.Fatal(err)
					}
				}
				select {
				case <-struck:
					if cuts++; cuts < 10 {
						struck = cut(b)
					} else {
						struck = nil
					}
				default:
				}
			}
			if cuts == 0 {
				t.Error("no connection was cut")
			}
			awaitTrue(t, "nothing is left", func() bool { // redelivered messages among it
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				dst := make([]core.Delivery, 10)
				got, _ := r.Receive(ctx, dst)
				for _, d := range dst[:got] {
					came[string(d.Incoming().Body)]++
					_ = d.Complete(t.Context())
				}
				ready, unacked := s.depth(t, "billing")
				return got == 0 && ready+unacked == 0
			})
			redelivered := 0
			for i := range n {
				times := came[strconv.Itoa(i)]
				if times == 0 {
					t.Errorf("message %d was lost", i)
				}
				redelivered += times - 1
			}
			if limit := 11 * 10; redelivered > limit { // held at each of the cuts
				t.Errorf("%d messages came again in %d cuts", redelivered, cuts)
			}
			t.Logf("%d cuts: %d came again, %d settlements found their lock lost", cuts, redelivered, lost)
		})
	}
}

// An unconfirmed message is unknown and may be in the queue; one that never reached the
// broker is not.
func TestSend_ConnectionCutAroundThePublication(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut   func(b *broker, body []byte) <-chan struct{}
		there []int // how often the message may be in the queue
		raced bool  // the confirm may arrive before the cut
	}{
		"before the broker gets it": {func(b *broker, body []byte) <-chan struct{} { return b.proxy.LoseRequest(body) }, []int{0}, false},
		"after the broker got it":   {func(b *broker, body []byte) <-chan struct{} { return b.proxy.CutAfter(body) }, []int{0, 1}, true},
		"before its confirm comes":  {func(b *broker, body []byte) <-chan struct{} { return b.proxy.LoseReply(body, basicAck) }, []int{1}, false},
		"at the publication itself": {func(b *broker, _ []byte) <-chan struct{} { return b.proxy.LoseRequest(basicPublish) }, []int{0}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := through(t)
			transport := b.proxied(t, "billing")
			mustSend(t, transport, core.Outgoing{ID: "first", Queue: "billing", Body: []byte("first")})
			struck := c.cut(b, []byte("the body that is cut"))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := transport.Send(ctx, core.Outgoing{ID: "cut", Queue: "billing", Body: []byte("the body that is cut")})
			there := c.there
			switch counts := states(t, 1, err); {
			case counts[core.SendUnknown] == 1:
			case c.raced && counts[core.SendAccepted] == 1:
				there = []int{1}
			default:
				t.Errorf("a message whose connection was cut is %v: %v", counts, err)
			}
			if ctx.Err() != nil {
				t.Error("Send waited for its context, though the connection was cut")
			}
			select {
			case <-struck:
			case <-time.After(patience):
				t.Error("the connection was not cut")
			}
			awaitSend(t, transport, core.Outgoing{ID: "last", Queue: "billing", Body: []byte("last")})
			got := s.take(t, "billing")
			if got["first"] != 1 || got["last"] != 1 || !slices.Contains(there, got["the body that is cut"]) {
				t.Errorf("the queue has %v, want the message %v times", got, there)
			}
		})
	}
}

// Closing the receiver or its transport first writes the acknowledgements of completed
// deliveries.
func TestClose_WritesCompletions(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		sender := s.provisioned(t, rabbitmq.Config{}, "billing")
		for round := range 20 {
			transport := s.open(t, rabbitmq.Config{})
			r := consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 20})
			mustSend(t, sender, numbered("billing", 0, 20)...)
			completed, left := 0, 20
			for left > 0 {
				for _, d := range next(t, r, 20) {
					if left--; left%2 == 0 {
						if err := d.Complete(t.Context()); err != nil {
							t.Fatal(err)
						}
						completed++
					}
				}
			}
			if round%2 == 0 {
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := transport.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, times := range s.take(t, "billing") {
				n += times
			}
			if n != 20-completed {
				t.Fatalf("round %d: %d of 20 messages were completed, and %d are in the queue", round, completed, n)
			}
		}
	})
}
