package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// It goes up and down and to 0 while messages are handled. The receiver never hands out
// more than the limit allowed at the time, holds nothing but running messages in a pause,
// and no message is stuck or redelivered without having been released.
func TestMaxInFlight_UnderLoad(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 10})
		const n, limit = 2_000, 64
		mustSend(t, transport, numbered("billing", 0, n)...)

		var held, pauses atomic.Int64
		var mu sync.Mutex
		completed := map[string]int{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var handlers sync.WaitGroup
		handle := func(d core.Delivery) {
			if d == nil {
				return
			}
			if rand.IntN(20) == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			held.Add(-1)
			var err error
			switch rand.IntN(10) {
			case 0:
				err = d.Release(t.Context())
			case 1:
				err = d.Abandon(t.Context(), errors.New("once more"))
			default:
				if err = d.Complete(t.Context()); err == nil {
					mu.Lock()
					completed[string(d.Incoming().Body)]++
					mu.Unlock()
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
		work := make(chan core.Delivery, limit)
		for range 16 {
			handlers.Go(func() {
				for d := range work {
					handle(d)
				}
			})
		}
		var receivers sync.WaitGroup
		for range 3 {
			receivers.Go(func() {
				dst := make([]core.Delivery, 16)
				for {
					got, err := r.Receive(ctx, dst)
					if err != nil {
						return
					}
					if h := held.Add(int64(got)); h > limit {
						t.Errorf("%d are held, where never more than %d were allowed", h, limit)
					}
					for _, d := range dst[:got] {
						work <- d
					}
				}
			})
		}
		done := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(completed)
		}
		end := time.Now().Add(patience)
		for round := 0; done() < n; round++ {
			if time.Now().After(end) {
				ready, unacked := s.depth(t, "billing")
				t.Fatalf("%d of %d messages were completed; %d are ready and %d held", done(), n, ready, unacked)
			}
			if round%100 != 9 { // the messages may be done before the hundredth round
				r.SetMaxInFlight(1 + rand.IntN(limit))
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				continue
			}
			r.SetMaxInFlight(0)
			pauses.Add(1)
			awaitTrue(t, "a pause holds nothing", func() bool { _, unacked := s.depth(t, "billing"); return held.Load() == 0 && unacked == 0 })
			r.SetMaxInFlight(limit)
		}
		stop()
		receivers.Wait()
		close(work)
		handlers.Wait()
		if pauses.Load() == 0 {
			t.Error("there was no pause")
		}
		for body, times := range completed {
			if times != 1 {
				t.Errorf("message %s was completed %d times", body, times)
			}
		}
		awaitTrue(t, "the queue is empty", func() bool { ready, unacked := s.depth(t, "billing"); return ready+unacked == 0 })
	})
}

// Where the broker does not count a release as an attempt.
func TestMaxInFlight_LoweredReleasesExcess(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{QueueType: rabbitmq.Classic}, "billing")
		mustSend(t, transport, numbered("billing", 0, 100)...)
		ch := s.channel(t)
		for range 5 {
			r := consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 50})
			awaitTrue(t, "as many are fetched as may be", func() bool { return s.ready(t, ch, "billing") == 50 })
			r.SetMaxInFlight(5)
			takeExactly(t, r, 5)
			awaitTrue(t, "surplus messages go back", func() bool { return s.ready(t, ch, "billing") == 95 })
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Where the broker would count each release as an attempt.
func TestMaxInFlight_LoweredHandsOutPrefetched(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		mustSend(t, transport, numbered("billing", 0, 100)...)
		ch := s.channel(t)
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 50})
		awaitTrue(t, "as many are fetched as may be", func() bool { return s.ready(t, ch, "billing") == 50 })
		r.SetMaxInFlight(5)
		deliveries := takeExactly(t, r, 5)
		r.SetMaxInFlight(0) // nothing more is fetched
		for {
			if ready, _ := s.depth(t, "billing"); len(deliveries)+ready >= 100 {
				break
			}
			deliveries = append(deliveries, next(t, r, 50)...)
		}
		for _, d := range deliveries {
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
		}
		r.SetMaxInFlight(100)
		rest := takeExactly(t, r, 100-len(deliveries))
		for _, d := range append(deliveries, rest...) {
			if count := d.Incoming().DeliveryCount; count != 1 {
				t.Errorf("delivery %s has the count %d, want 1", d.Incoming().ID, count)
			}
		}
	})
}

// takeExactly returns n deliveries, and checks that no more are handed out.
func takeExactly(t testing.TB, r core.Receiver, n int) []core.Delivery {
	t.Helper()
	var all []core.Delivery
	for len(all) < n {
		all = append(all, next(t, r, 50)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	more, err := r.Receive(ctx, make([]core.Delivery, 50))
	if err == nil || len(all) > n {
		t.Errorf("%d deliveries were handed out, want %d", len(all)+more, n)
	}
	return all
}

// Neither a goroutine nor a connection, and no message unsettled.
func TestClose_LeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	// Goroutines have the label of the goroutine that starts them.
	b, s := through(t)
	mustSend(t, s.provisioned(t, rabbitmq.Config{}, "billing"), numbered("billing", 0, 1000)...)
	pprof.Do(t.Context(), pprof.Labels("test", t.Name()), func(context.Context) { closeLeavesNoGoroutine(t, b, s) })
}

func closeLeavesNoGoroutine(t *testing.T, b *broker, s *site) {
	for round := range 10 {
		transport, err := rabbitmq.New(unheard(rabbitmq.Config{URLs: []string{b.url}, ConnectionName: "leaving"}))
		if err != nil {
			t.Fatal(err)
		}
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 100})
		next(t, r, 10)
		awaitTrue(t, "the broker has two connections of a transport with one receiver", func() bool { return s.connections(t, "leaving") == 2 })
		var senders sync.WaitGroup
		senders.Go(func() { _ = transport.Send(t.Context(), numbered("billing", 1000, 100)...) })
		switch round % 4 {
		case 1:
			b.proxy.Cut()
		case 2:
			senders.Wait()
		case 3:
			b.proxy.Cut()
			_, _ = transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
		}
		if err := transport.Close(t.Context()); err != nil {
			t.Error(err)
		}
		senders.Wait()
	}
	awaitTrue(t, "no connection is left", func() bool { return s.connections(t, "leaving") == 0 })
	awaitTrue(t, "no message is held", func() bool { _, unacked := s.depth(t, "billing"); return unacked == 0 })
	awaitTrue(t, "no goroutine but this one is left", func() bool { return labelled(t) == 1 })
}

// labelled counts the goroutines that have the test's label.
func labelled(t *testing.T) (n int) {
	t.Helper()
	var profile strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	// Goroutines with the same stack and labels are one paragraph, which begins with their number.
	_, paragraphs, _ := strings.Cut(profile.String(), "\n")
	for paragraph := range strings.SplitSeq(paragraphs, "\n\n") {
		if strings.Contains(paragraph, fmt.Sprintf("%q:%q", "test", t.Name())) {
			var same int
			if _, err := fmt.Sscanf(paragraph, "%d @", &same); err != nil {
				t.Fatalf("%v: %s", err, paragraph)
			}
			n += same
		}
	}
	return n
}
