//go:build darwin || linux

package sbserver_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
)

// benchmark starts a server on the machine's clock and a client.
func benchmark(b *testing.B) *azservicebus.Client {
	s, err := sbserver.Start(sbserver.Config{Broker: broker.Config{AutoCreate: true}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	c, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// fill sends n messages of 200 bytes to q in batches.
func fill(b *testing.B, c *azservicebus.Client, n int) {
	ctx := context.Background()
	s, err := c.NewSender("q", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(ctx)
	m := &azservicebus.Message{Body: make([]byte, 200), ApplicationProperties: map[string]any{"a": "b", "c": "d"}}
	for n > 0 {
		batch, err := s.NewMessageBatch(ctx, nil)
		if err != nil {
			b.Fatal(err)
		}
		for ; n > 0 && batch.NumMessages() < 500; n-- {
			if err := batch.AddMessage(m, nil); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.SendMessageBatch(ctx, batch, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSendBatch(b *testing.B) {
	c := benchmark(b)
	b.ResetTimer()
	fill(b, c, b.N)
}

func BenchmarkSend(b *testing.B) {
	c := benchmark(b)
	ctx := context.Background()
	s, err := c.NewSender("q", nil)
	if err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := s.SendMessage(ctx, &azservicebus.Message{Body: make([]byte, 200)}, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkReceiveComplete(b *testing.B) {
	c := benchmark(b)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	fill(b, c, b.N)
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	for range 2 {
		r, err := c.NewReceiverForQueue("q", nil)
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			for {
				ms, err := r.ReceiveMessages(ctx, 200, nil)
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				var settled sync.WaitGroup
				for _, m := range ms {
					settled.Go(func() {
						if err := r.CompleteMessage(context.Background(), m, nil); err != nil {
							b.Error(err)
						}
						if left.Add(-1) == 0 {
							stop()
						}
					})
				}
				settled.Wait()
			}
		})
	}
	all.Wait()
}
