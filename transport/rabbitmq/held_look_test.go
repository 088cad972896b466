package rabbitmq_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// A program looks at messages by receiving them, and gives them back by closing its receiver.
// On a quorum queue that costs each message one delivery, also if the program dies.
func TestHeldLook_OrderAndCount(t *testing.T) {
	t.Parallel()
	const n, part = 3000, 1000
	onBoth(t, func(t *testing.T, s *site) {
		b := brokerOn(t, s.Server)
		s = &site{Server: b.server, vhost: b.vhost}
		for _, kind := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
			queue := kind.String()
			transport := s.provisioned(t, rabbitmq.Config{QueueType: kind}, queue)
			mustSend(t, transport, numbered(queue, 0, n)...)
			looks := make([]int, n) // at each message
			look := func(name string, first, held int, dies bool) {
				t.Helper()
				looking := s.open(t, unheard(rabbitmq.Config{QueueType: kind, URLs: []string{b.url}}))
				r := consume(t, looking, core.ReceiverConfig{Queue: queue, MaxInFlight: held, MaxDeliveries: 50})
				for came := 0; came < held; {
					for _, d := range next(t, r, held-came) {
						in, want := d.Incoming(), (first+came)%n
						if looks[want]++; string(in.Body) != strconv.Itoa(want) || kind == rabbitmq.Quorum && in.DeliveryCount != looks[want] {
							t.Fatalf("%v queue, %s: message %s came in place of %d, delivery %d, want %d", kind, name, in.Body, want, in.DeliveryCount, looks[want])
						}
						came++
					}
				}
				ctx := t.Context()
				if dies {
					if err := b.proxy.Refuse(); err != nil {
						t.Fatal(err)
					}
					ended, cancel := context.WithCancel(ctx)
					cancel()
					ctx = ended
				}
				_ = r.Close(ctx)
				if dies {
					if err := b.proxy.Accept(); err != nil {
						t.Fatal(err)
					}
				}
				awaitTrue(t, "all messages are ready again", func() bool {
					depth, err := transport.Depth(t.Context(), queue)
					return err == nil && depth.Ready == n && depth.Receivers == 0
				})
			}
			look("at a part", 0, part, false)
			look("at all, after the part", 0, n, false)
			look("at all again", 0, n, true)
			look("at all after the program has died", 0, n, false)
			look("at a part of the returned messages", 0, part, false)
			first := part // a quorum queue appends a returned message to those that were returned before
			if kind == rabbitmq.Classic {
				first = 0
			}
			look("at all after that", first, n, false)
		}
	})
}

// A consumer can prefetch 65,535 messages: a receiver of more has several.
func TestHeldLook_AtMoreThanAConsumerPrefetches(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("66,000 messages: not in short runs")
	}
	onNewest(t, func(t *testing.T, s *site) {
		const n = 66_000
		transport := s.provisioned(t, rabbitmq.Config{}, "q")
		for chunk := range slices.Chunk(numbered("q", 0, n), 1000) {
			mustSend(t, transport, chunk...)
		}
		r := consume(t, transport, core.ReceiverConfig{Queue: "q", MaxInFlight: n, MaxDeliveries: 50})
		for came := 0; came < n; {
			came += len(next(t, r, n))
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r = consume(t, transport, core.ReceiverConfig{Queue: "q", MaxInFlight: 1000, MaxDeliveries: 50}) // by one consumer, in order
		for came := 0; came < n; {
			for _, d := range next(t, r, 1000) {
				if in := d.Incoming(); string(in.Body) != strconv.Itoa(came) || in.DeliveryCount != 2 {
					t.Fatalf("%s came in place of message %d, delivery %d, want 2", in.Body, came, in.DeliveryCount)
				}
				if err := d.Complete(t.Context()); err != nil {
					t.Fatal(err)
				}
				came++
			}
		}
	})
}

// A program that holds all of its messages may raise MaxInFlight step by step, to bound those
// that it has not seen.
func TestHeldLook_InSteps(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		const n, first = 2000, 20
		for queue, steps := range map[string]func(came int) int{
			"doubled":     func(came int) int { return 2 * came },
			"in 80 steps": func(came int) int { return came + n/80 }, // many more consumers than a channel has at a time
		} {
			s.lookInSteps(t, queue, n, first, steps)
		}
	})
}

func (s *site) lookInSteps(t *testing.T, queue string, n, first int, raise func(int) int) {
	transport := s.provisioned(t, rabbitmq.Config{}, queue)
	mustSend(t, transport, numbered(queue, 0, n)...)
	r := consume(t, transport, core.ReceiverConfig{Queue: queue, MaxInFlight: first, MaxDeliveries: 50})
	for came, limit := 0, first; came < n; {
		for _, d := range next(t, r, n) {
			if in := d.Incoming(); in.DeliveryCount != 1 {
				t.Fatalf("%s: message %s is delivery %d", queue, in.Body, in.DeliveryCount)
			}
			came++
		}
		if came == limit {
			limit = raise(came)
			r.SetMaxInFlight(limit)
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = consume(t, transport, core.ReceiverConfig{Queue: queue, MaxInFlight: n, MaxDeliveries: 50})
	var order []int
	for len(order) < n {
		for _, d := range next(t, r, n) {
			in := d.Incoming()
			if in.DeliveryCount != 2 {
				t.Fatalf("%s: message %s is delivery %d after a look", queue, in.Body, in.DeliveryCount)
			}
			i, err := strconv.Atoi(string(in.Body))
			if err != nil {
				t.Fatal(err)
			}
			order = append(order, i)
		}
	}
	if queue == "doubled" && !slices.IsSorted(order) {
		t.Errorf("the order afterwards is %v", order)
	}
}
