package suite

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// Benchmark is conformance.Benchmark.
func Benchmark(b *testing.B, h Harness) {
	b.Helper()
	h.Synctest = false
	h, err := h.complete()
	if err != nil {
		b.Fatal(err)
	}
	transport := h.Open(b)
	caps := transport.Capabilities()
	if err := transport.Close(context.WithoutCancel(b.Context())); err != nil {
		b.Fatal(err)
	}
	for _, m := range measurements(caps) {
		b.Run(m.name, func(b *testing.B) {
			run := newBench(b, h)
			m.run(run)
		})
	}
}

// measurement is one sub-benchmark.
type measurement struct {
	name string
	run  func(b *bench)
}

func measurements(caps core.Capabilities) []measurement {
	all := []measurement{
		{"Send/one", (*bench).sendOne},
		{"Send/batch-100", (*bench).sendBatches},
		{"Send/concurrent", (*bench).sendConcurrently},
	}
	for _, kind := range []struct {
		name string
		run  func(b *bench, mode core.TransactionMode)
	}{
		{"Receive", (*bench).receiveEach},
		{"Receive-batches", (*bench).receiveBatches},
		{"Endpoint", func(b *bench, mode core.TransactionMode) { b.endToEnd(mode, false) }},
		{"Failing-once", func(b *bench, mode core.TransactionMode) { b.endToEnd(mode, true) }},
		{"Latency", (*bench).latency},
	} {
		for _, mode := range slices.Sorted(slices.Values(caps.Transactions)) {
			if kind.name != "Failing-once" || mode != core.TransactionNone {
				all = append(all, measurement{kind.name + "/" + mode.String(), func(b *bench) { kind.run(b, mode) }})
			}
		}
	}
	return all
}

const (
	benchBatch   = 100
	benchSenders = 16
)

var benchBody = bytes.Repeat([]byte("0123456789abcdef"), 1<<10/16)

// bench is one measurement in progress.
type bench struct {
	*testing.B
	h         Harness
	ctx       context.Context
	transport core.Transport
	queue     string
}

func newBench(b *testing.B, h Harness) *bench {
	b.Helper()
	r := &bench{B: b, h: h, ctx: context.WithoutCancel(b.Context()), transport: h.Open(b)}
	b.Cleanup(func() {
		if err := r.transport.Close(r.ctx); err != nil {
			b.Error(err)
		}
	})
	r.queue = r.newQueue()
	return r
}

func (b *bench) newQueue() string {
	if b.h.Queue != nil {
		return b.h.Queue(b.B)
	}
	p, ok := b.transport.(core.Provisioner)
	if !ok {
		b.Fatalf("conformance: %T is no core.Provisioner, and Harness.Queue is nil", b.transport)
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		b.Fatal(err)
	}
	queue := "bench-" + hex.EncodeToString(id[:])
	if err := p.Provision(b.ctx, core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
		b.Fatal(err)
	}
	return queue
}

var benchIDs atomic.Int64

// messages returns n messages that share a body, which is never written.
func (b *bench) messages(n int) []core.Outgoing {
	out := make([]core.Outgoing, n)
	for i := range out {
		id := fmt.Sprintf("bench-%016x", benchIDs.Add(1))
		var h core.Headers
		h.Set(headers.MessageID, id)
		h.Set(headers.MessageTypes, "job")
		h.Set(headers.ContentType, "application/octet-stream")
		out[i] = core.Outgoing{ID: id, Queue: b.queue, Headers: h, Body: benchBody}
	}
	return out
}

// fill sends n messages in batches.
func (b *bench) fill(n int) error {
	for n > 0 {
		msgs := b.messages(min(n, benchBatch))
		if err := b.transport.Send(b.ctx, msgs...); err != nil {
			return err
		}
		n -= len(msgs)
	}
	return nil
}

// rate reports the number of messages per second of measured time.
func (b *bench) rate(messages int) {
	b.ReportMetric(float64(messages)/b.Elapsed().Seconds(), "msgs/s")
}

func (b *bench) sendOne() {
	n := 0
	for b.Loop() {
		n++
		if err := b.transport.Send(b.ctx, b.messages(1)...); err != nil {
			b.Fatal(err)
		}
	}
	b.rate(n)
	b.drain(n)
}

func (b *bench) sendBatches() {
	n := 0
	for b.Loop() {
		n += benchBatch
		if err := b.transport.Send(b.ctx, b.messages(benchBatch)...); err != nil {
			b.Fatal(err)
		}
	}
	b.rate(n)
	b.drain(n)
}

func (b *bench) sendConcurrently() {
	var next atomic.Int64
	b.ResetTimer()
	b.together(func() error {
		for next.Add(1) <= int64(b.N) {
			if err := b.transport.Send(b.ctx, b.messages(1)...); err != nil {
				return err
			}
		}
		return nil
	})
	b.StopTimer()
	b.rate(b.N)
	b.drain(b.N)
}

// together runs f in several goroutines.
func (b *bench) together(f func() error) {
	errs := make([]error, benchSenders)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = f() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

// receiver opens a receiver on a queue that is already filled.
func (b *bench) receiver(mode core.TransactionMode, maxInFlight int) core.Receiver {
	if err := b.fill(b.N); err != nil {
		b.Fatal(err)
	}
	return b.open(mode, maxInFlight)
}

func (b *bench) open(mode core.TransactionMode, maxInFlight int) core.Receiver {
	r, err := b.transport.OpenReceiver(b.ctx, core.ReceiverConfig{Queue: b.queue, Mode: mode, MaxInFlight: maxInFlight})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.Close(b.ctx); err != nil {
			b.Error(err)
		}
	})
	return r
}

func (b *bench) receiveEach(mode core.TransactionMode) {
	r := b.receiver(mode, 1)
	dst := make([]core.Delivery, 1)
	b.ResetTimer()
	for range b.N {
		b.receive(r, dst)
		if err := dst[0].Complete(b.ctx); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.rate(b.N)
}

// receive calls Receive, for Timeout at most.
func (b *bench) receive(r core.Receiver, dst []core.Delivery) int {
	ctx, cancel := context.WithTimeout(b.ctx, b.h.Timeout)
	defer cancel()
	n, err := r.Receive(ctx, dst)
	if err != nil {
		b.Fatalf("no message was received within %v: %v", b.h.Timeout, err)
	}
	return n
}

func (b *bench) receiveBatches(mode core.TransactionMode) {
	r := b.receiver(mode, benchBatch)
	b.ResetTimer()
	b.consume(r, b.N)
	b.StopTimer()
	b.rate(b.N)
}

// drain receives and completes n messages that were sent to measure sending.
func (b *bench) drain(n int) {
	mode := b.transport.Capabilities().HighestTransaction()
	b.consume(b.open(mode, benchBatch), n)
}

func (b *bench) consume(r core.Receiver, messages int) {
	dst := make([]core.Delivery, benchBatch)
	for left := messages; left > 0; {
		n := b.receive(r, dst[:min(left, benchBatch)])
		left -= n
		var next atomic.Int64
		b.together(func() error {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := dst[i].Complete(b.ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
