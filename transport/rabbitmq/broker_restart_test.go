package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The broker is killed many times while eight senders send and two endpoints handle. A
// sender repeats messages that were not accepted, so some messages arrive twice.
func testRestartLosesNoMessage(t *testing.T, b *broker, s *site) {
	transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
	sender := s.open(t, rabbitmq.Config{})

	handled := make([]atomic.Uint32, soakMessages)
	var distinct, duplicates atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var running, senders sync.WaitGroup
	defer running.Wait()
	defer stop()
	for range 2 {
		ep, err := core.New("billing", transport, core.Config{
			Concurrency: 16, Logger: slog.New(slog.DiscardHandler),
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 100}},
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, soakType, func(_ context.Context, _ *core.Message, body int) error {
			if handled[body].Add(1) == 1 {
				distinct.Add(1)
			} else {
				duplicates.Add(1)
			}
			return nil
		})
		running.Go(func() {
			if err := ep.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		<-ep.Ready()
	}

	// Sending is held up between the kills so that there is something left for each.
	var sent, repeated, unknown atomic.Int64
	var allowed atomic.Int64
	const parallel, each = 8, 50
	for part := range parallel {
		senders.Go(func() {
			for first := part * each; first < soakMessages; first += parallel * each {
				for int64(first) >= allowed.Load() && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				messages := soakBatch(first, min(each, soakMessages-first))
				for len(messages) > 0 && ctx.Err() == nil {
					err := sender.Send(ctx, messages...)
					sent.Add(int64(len(messages)))
					if err == nil {
						break
					}
					failed, ok := errors.AsType[*core.SendError](err)
					if !ok {
						t.Error(err)
						return
					}
					var rest []core.Outgoing
					for i, result := range failed.Results {
						if result.State == core.SendUnknown {
							unknown.Add(1)
						}
						if result.State != core.SendAccepted {
							rest = append(rest, messages[i])
						}
					}
					messages = rest
					repeated.Add(int64(len(rest)))
					select {
					case <-ctx.Done():
					case <-time.After(200 * time.Millisecond):
					}
				}
			}
		})
	}
	for kill := range kills {
		allowed.Store(int64(soakMessages * (kill + 1) / (kills + 1)))
		// Somewhere in the middle of the allowed range.
		reached := int64(soakMessages * (2*kill + 1) / (2 * (kills + 1)))
		awaitTrue(t, "messages are handled between the kills", func() bool { return distinct.Load() >= reached })
		b.Kill(t)
		b.Start(t)
	}
	allowed.Store(soakMessages)
	senders.Wait()
	awaitTrue(t, "every message is handled", func() bool { return distinct.Load() == soakMessages })
	awaitTrue(t, "the queue is empty", func() bool { ready, unacked := s.depth(t, "billing"); return ready+unacked == 0 })
	if failed := s.take(t, "error"); len(failed) > 0 {
		t.Errorf("these are in the error queue: %v", failed)
	}
	stop()
	running.Wait()
	t.Logf("%d messages through %d kills: %d sent, %d of them again (%d unknown), %d handled again",
		soakMessages, kills, sent.Load(), repeated.Load(), unknown.Load(), duplicates.Load())
	if more, limit := duplicates.Load(), repeated.Load()+kills*2000; more > limit {
		t.Errorf("%d messages were handled again, which is more than were sent again or held", more)
	}
}

// soakBatch is messages whose bodies are numbers for handlers.
func soakBatch(first, n int) []core.Outgoing {
	messages := numbered("billing", first, n)
	for i := range messages {
		messages[i].Headers = core.HeadersFromMap(map[string]string{
			"NServiceBus.MessageId": messages[i].ID, "NServiceBus.EnclosedMessageTypes": "soak", "NServiceBus.ContentType": "application/json",
		})
	}
	return messages
}
