package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// One of two instances handles all messages, in order and with their retries, and the other
// one goes on when it ends.
func TestSingleActiveConsumer_KeepsOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for _, queueType := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
			t.Run(queueType.String(), func(t *testing.T) {
				s := newSite(t, s.Server)
				cfg := rabbitmq.Config{QueueType: queueType, SingleActiveConsumers: []string{"billing"}}
				sender := s.provisioned(t, cfg, "billing", "error")
				provision(t, sender, "billing", "error") // it is as it was declared
				const half = 50
				var mu sync.Mutex
				var seen, want []string
				failed := map[int]bool{}
				run := func(name string) (stop func()) {
					ep, err := core.New("billing", s.open(t, cfg), core.Config{Logger: slog.New(slog.DiscardHandler), Concurrency: 4,
						Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: core.Off}}})
					if err != nil {
						t.Fatal(err)
					}
					core.Handle(ep, askedType, func(_ context.Context, _ *core.Message, body order) error {
						mu.Lock()
						defer mu.Unlock()
						if body.Number%10 == 3 && !failed[body.Number] {
							failed[body.Number] = true
							return fmt.Errorf("%d fails once", body.Number)
						}
						seen = append(seen, fmt.Sprint(name, " ", body.Number))
						return nil
					})
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- ep.Run(ctx) }()
					<-ep.Ready()
					return sync.OnceFunc(func() {
						cancel()
						if err := <-ended; err != nil {
							t.Error(err)
						}
					})
				}
				stopFirst := run("first")
				defer stopFirst()
				defer run("second")()
				ch := s.channel(t)
				awaitAll := func(name string, from int) {
					for i := range half {
						ask(t, ch, "", fmt.Sprintf(`{"Number":%d}`, from+i))
						want = append(want, fmt.Sprint(name, " ", from+i))
					}
					awaitTrue(t, "all are handled", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) >= len(want) })
				}
				awaitAll("first", 0)
				stopFirst()
				awaitAll("second", half)
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(seen, want) {
					t.Errorf("handled were %q", seen)
				}
			})
		}
	})
}

func TestSingleActiveConsumer_OfAnotherQueue(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "billing")
		err := s.open(t, rabbitmq.Config{SingleActiveConsumers: []string{"billing"}}).Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}})
		saysAll(t, err, `"billing"`, "x-single-active-consumer", "Config.SingleActiveConsumers")
		if _, err := rabbitmq.New(rabbitmq.Config{URLs: []string{s.PasswordURL(s.vhost)}, Topology: rabbitmq.NServiceBus, SingleActiveConsumers: []string{"billing"}}); err == nil {
			t.Error("the topology of NServiceBus has such queues")
		}
	})
}
