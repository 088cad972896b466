package resilience_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/resilience"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// BenchmarkPolicy is the price of a policy for a message whose handler succeeds at once.
func BenchmarkPolicy(b *testing.B) {
	const many = 100_000_000
	breaker := resilience.Breaker{Failures: 5}
	for _, bench := range []struct {
		name   string
		config resilience.Config
	}{
		{"none", resilience.Config{}},
		{"breaker", resilience.Config{Breaker: breaker}},
		{"rate limit", resilience.Config{RateLimit: resilience.RateLimit{Messages: many, MaxWait: time.Hour}}},
		{"bulkhead", resilience.Config{Bulkhead: resilience.Bulkhead{Concurrency: 1000}}},
		{"time-out", resilience.Config{TryTimeout: time.Minute}},
		{"retry", resilience.Config{Retry: resilience.Retry{Tries: 3}}},
		{"nest", resilience.Config{
			Breaker: breaker, RateLimit: resilience.RateLimit{Messages: many, MaxWait: time.Hour}, Bulkhead: resilience.Bulkhead{Concurrency: 1000},
			Timeout: time.Hour, Retry: resilience.Retry{Tries: 3}, TryTimeout: time.Minute,
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			c := core.Config{Transactions: core.TransactionReceiveOnly, Logger: slog.New(slog.DiscardHandler)}
			if bench.name != "none" {
				bench.config.Name = "bench"
				p, err := resilience.New(bench.config)
				if err != nil {
					b.Fatal(err)
				}
				c.Middleware = []core.Middleware{p.Middleware()}
			}
			ep, err := core.New("orders", inmemory.Open(), c)
			if err != nil {
				b.Fatal(err)
			}
			core.Handle(ep, orderType, func(context.Context, *core.Message, []byte) error { return nil })
			body := []byte("x")
			b.ReportAllocs()
			for b.Loop() {
				if err := ep.Invoke(b.Context(), orderType.Of(body)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
