package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/leaks"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// hostile are headers of which a copy, to be retried or moved, could be refused.
func hostile() map[string]amqp.Table {
	return map[string]amqp.Table{
		"a priority that is none":         {"Reprise.Properties": `{"rabbitmq.priority":"abc"}`},
		"a delivery mode that is none":    {"Reprise.Properties": `{"rabbitmq.delivery-mode":"abc"}`},
		"a property that does not exist":  {"Reprise.Properties": `{"rabbitmq.nothing":"abc"}`},
		"properties that are no JSON":     {"Reprise.Properties": `{`},
		"properties of a number":          {"Reprise.Properties": int64(1)},
		"an empty name of a property":     {"Reprise.Properties": `{"":"x"}`},
		"a long name, escaped":            {"Reprise.Header." + strings.Repeat("x", 240): "1"},
		"a long name of the broker's own": {"x-first-death-" + strings.Repeat("x", 241): "1"},
		"an escaped name that is empty":   {"Reprise.Header.": "1"},
		"the mark of undecodable headers": {"Reprise.Undecodable": "why"},
		"a mark of another type":          {"Reprise.Undecodable": int64(1)},
		"raw headers":                     {"Reprise.RawHeaders": "x"},
		"a copy id of another type":       {"Reprise.CopyID": int64(1)},
		"a copy id of nothing":            {"Reprise.CopyID": "@billing"},
		"a long copy id":                  {"Reprise.CopyID": strings.Repeat("x", 60_000) + "@billing"},
		"a time to be received":           {"NServiceBus.TimeToBeReceived": "yesterday"},
		"a delay":                         {"NServiceBus.Transport.RabbitMQ.DelayInSeconds": int32(-1)},
		"an endless id":                   {"NServiceBus.MessageId": strings.Repeat("x", 50_000)},
	}
}

// At once, or after a delayed retry.
func TestHostileHeaders_ReachTheErrorQueue(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
		ep, err := core.New("billing", transport, core.Config{
			Logger:         slog.New(slog.DiscardHandler),
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, Delays: []time.Duration{time.Second}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, textType, func(context.Context, *core.Message, []byte) error { return errors.New("failed") })
		ch := s.channel(t)
		missing := map[string]bool{}
		for name, headers := range hostile() {
			for _, kind := range []string{"text", "unknown"} {
				body := name + ", " + kind
				missing[body] = true
				if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, amqp.Publishing{Headers: headers, Type: kind, Body: []byte(body)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		runs(t, ep)
		defer func() {
			if t.Failed() {
				t.Logf("these are not there: %q", slices.Sorted(maps.Keys(missing)))
			}
		}()
		awaitTrue(t, "all are in the error queue", func() bool {
			for body := range s.take(t, "error") {
				delete(missing, body)
			}
			return len(missing) == 0
		})
	})
}

// Nothing of them is kept, while the endpoint runs and after it.
func TestHostileHeaders_LongCopyIDsKeepNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it sends 60 MB: not in short runs")
	}
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
		const messages = 600
		handled := make(chan struct{}, messages)
		ep, err := core.New("billing", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Concurrency: 4})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, textType, func(context.Context, *core.Message, []byte) error {
			handled <- struct{}{}
			return nil
		})
		ch := s.channel(t)
		growth := leaks.HeapGrowth(func() {
			for i := range messages {
				headers := amqp.Table{"Reprise.CopyID": fmt.Sprint(i) + strings.Repeat("x", 100_000) + "@billing"}
				if err := ch.PublishWithContext(t.Context(), "", "billing", false, false, amqp.Publishing{Type: "text", ContentType: "application/octet-stream", Headers: headers}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- ep.Run(ctx) }()
			for i := range messages {
				select {
				case <-handled:
				case <-time.After(time.Minute):
					t.Errorf("%d messages were handled", i)
				}
				if t.Failed() {
					break
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		if growth > 20<<20 {
			t.Errorf("%d messages with long copy ids, all handled, keep %d MiB", messages, growth>>20)
		}
	})
}
