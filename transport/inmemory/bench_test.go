package inmemory_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// The benchmarks measure the cost of one message: 256 bytes, 4 headers.

func benchmarkMessage(queue string) core.Outgoing {
	var h core.Headers
	h.Set(headers.MessageID, "0d2a7b6e-6f3e-4f0c-9d55-8f0f3f0c1a11")
	h.Set(headers.MessageTypes, "orders.placed")
	h.Set(headers.ContentType, "application/json")
	h.Set(headers.ConversationID, "5bd6c6ae-4a39-4a0e-8d6a-1f1c8d7f2b7a")
	return core.Outgoing{ID: h.Get(headers.MessageID), Queue: queue, Headers: h, Body: make([]byte, 256)}
}

func benchmarkReceiver(b *testing.B, mode core.TransactionMode, cfg inmemory.Config) (*inmemory.Transport, core.Receiver) {
	b.Helper()
	t, err := inmemory.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { t.Close(b.Context()) })
	if err := t.Provision(b.Context(), core.Topology{Queues: []string{"work"}}); err != nil {
		b.Fatal(err)
	}
	r, err := t.OpenReceiver(b.Context(), core.ReceiverConfig{Queue: "work", Mode: mode, MaxInFlight: 1024})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return t, r
}

// One goroutine, one message at a time: the cost without any contention.
func BenchmarkSendReceiveComplete(b *testing.B) {
	for name, cfg := range map[string]inmemory.Config{
		"everything": {},
		"sqs":        inmemory.LikeSQS(),
		"postgresql": inmemory.LikePostgreSQL(),
	} {
		b.Run(name, func(b *testing.B) {
			t, r := benchmarkReceiver(b, core.TransactionReceiveOnly, cfg)
			out := []core.Outgoing{benchmarkMessage("work")}
			dst := make([]core.Delivery, 1)
			for b.Loop() {
				if err := t.Send(b.Context(), out...); err != nil {
					b.Fatal(err)
				}
				if _, err := r.Receive(b.Context(), dst); err != nil {
					b.Fatal(err)
				}
				if err := dst[0].Complete(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSend(b *testing.B) {
	t, _ := benchmarkReceiver(b, core.TransactionReceiveOnly, inmemory.Config{})
	out := []core.Outgoing{benchmarkMessage("work")}
	for b.Loop() {
		if err := t.Send(b.Context(), out...); err != nil {
			b.Fatal(err)
		}
	}
}

// A free-running sender against a receiver that takes batches, as the engine
// does. The backlog is bounded by tokens.
func BenchmarkPipeline(b *testing.B) {
	t, r := benchmarkReceiver(b, core.TransactionReceiveOnly, inmemory.Config{})
	out := []core.Outgoing{benchmarkMessage("work")}
	n := b.N
	var done sync.WaitGroup
	done.Go(func() {
		dst := make([]core.Delivery, 64)
		for got := 0; got < n; {
			k, err := r.Receive(b.Context(), dst)
			if err != nil {
				b.Error(err)
				return
			}
			for _, d := range dst[:k] {
				if err := d.Complete(b.Context()); err != nil {
					b.Error(err)
				}
			}
			got += k
		}
	})
	for range n {
		if err := t.Send(b.Context(), out...); err != nil {
			b.Fatal(err)
		}
	}
	done.Wait()
}

// Many workers, each with its own Receive of one, as transactional receivers
// are read.
func BenchmarkCompetingWorkers(b *testing.B) {
	t, r := benchmarkReceiver(b, core.TransactionSendsAtomicWithReceive, inmemory.Config{})
	out := []core.Outgoing{benchmarkMessage("work")}
	n := b.N
	var left sync.WaitGroup
	left.Add(n)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			dst := make([]core.Delivery, 1)
			for {
				if _, err := r.Receive(b.Context(), dst); err != nil {
					return
				}
				if err := dst[0].CompleteWith(b.Context(), nil); err != nil {
					b.Error(err)
				}
				left.Done()
			}
		})
	}
	for range n {
		if err := t.Send(b.Context(), out...); err != nil {
			b.Fatal(err)
		}
	}
	left.Wait()
	r.Close(b.Context())
	workers.Wait()
}

// Pages of 100 of a long queue, from the first to the last. The time per page does not depend on
// the length of the queue.
func BenchmarkBrowse(b *testing.B) {
	for _, length := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			t := inmemory.Open()
			defer t.Close(b.Context())
			if err := t.Provision(b.Context(), core.Topology{Queues: []string{"q"}}); err != nil {
				b.Fatal(err)
			}
			out := slices.Repeat([]core.Outgoing{benchmarkMessage("q")}, 1000)
			for i := range out {
				out[i].Queue = "q"
			}
			for range length / len(out) {
				if err := t.Send(b.Context(), out...); err != nil {
					b.Fatal(err)
				}
			}
			r := queues.Request{Queue: "q", Limit: 100}
			for b.Loop() {
				page, err := t.Browse(b.Context(), r)
				if err != nil || len(page.Messages) != 100 {
					b.Fatal(len(page.Messages), err)
				}
				r.After = page.Next
			}
		})
	}
}
