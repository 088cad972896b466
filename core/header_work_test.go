package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/headerwork"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// orderWithHeaders is an order with n more headers, half of which have the names of failure
// headers.
func orderWithHeaders(n int) core.Outgoing {
	out := order("m1")
	all := out.Headers.Map()
	for i := range n {
		key := fmt.Sprintf("Key.%d", i)
		if i%2 == 0 {
			key = "NServiceBus.ExceptionInfo." + key
		}
		all[key] = "value"
	}
	out.Headers = core.HeadersFromMap(all)
	return out
}

// headerWork is a way of a message with many headers through an endpoint.
type headerWork struct {
	config  core.Config
	caps    func(*core.Capabilities)
	faults  faults
	handler core.HandlerFunc
	in      string // the queue that has the message in the end
}

func failing(context.Context, *core.Message) error { return errBoom }

var headerWorks = map[string]headerWork{
	"handled and audited": {
		config:  core.Config{AuditQueue: "shipping"},
		handler: func(context.Context, *core.Message) error { return nil }, in: "shipping",
	},
	"forwarded": {handler: func(_ context.Context, m *core.Message) error { return m.Forward("shipping") }, in: "shipping"},
	"deferred and retried": {
		config: core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}}},
		handler: func(_ context.Context, m *core.Message) error {
			if m.Deferrals == 0 {
				return core.Defer(errBoom, time.Second)
			}
			return errBoom
		}, in: "error",
	},
	"moved without headers that do not fit": {
		config: core.Config{Recoverability: noRetries}, handler: failing, in: "error",
		caps: func(c *core.Capabilities) { c.MaxHeaderBytes = 1000 },
	},
	"moved without headers that are refused": {
		config: core.Config{Recoverability: noRetries}, handler: failing, in: "error", faults: faults{send: refuseSender},
	},
	"moved with invalid headers": {
		config: core.Config{Recoverability: noRetries}, handler: failing, in: "error",
		faults: faults{
			send: func(out []core.Outgoing) error {
				if out[0].Headers.Get("Sender") == "\xff" {
					return core.ErrInvalidHeader
				}
				return nil
			},
			onReceive: func(in *core.Incoming) { in.Headers.Set("Sender", "\xff") },
		},
	},
	"edited": {
		config: core.Config{Recoverability: core.Recoverability{Immediate: noRetries.Immediate, Delayed: noRetries.Delayed, EditFailed: func(_ context.Context, _ core.ErrorContext, h *core.Headers) {
			all := h.Map()
			for key := range all {
				all[key] += " and more"
			}
			*h = core.HeadersFromMap(all)
		}}},
		handler: failing, in: "error", faults: faults{send: refuseSender},
		caps: func(c *core.Capabilities) { c.MaxHeaderBytes = 1000 },
	},
}

// countHeaders returns how many headers were compared or copied while a message with n
// headers went its way.
func (w *headerWork) countHeaders(t *testing.T, n int) (count int64) {
	caps := inmemory.Everything()
	if w.caps != nil {
		w.caps(&caps)
	}
	bubbleWith(t, inmemory.Config{Capabilities: &caps}, func(fx *fixture) {
		fx.broker.setFaults(w.faults)
		out := orderWithHeaders(n)
		out.Reason = core.ReasonNewCopy // so that the limits of the transport do not apply
		c := w.config
		c.Logger = slog.New(slog.DiscardHandler)
		counted, stop := headerwork.Count()
		defer stop()
		fx.runOrders(c, w.handler)
		fx.send(out)
		fx.advance(time.Hour)
		count = counted.Load()
		fx.onlyMessage(w.in)
	})
	return count
}

// A sender decides how many headers a message has.
func TestHeaderWork_IsLinear(t *testing.T) {
	for name, work := range headerWorks {
		t.Run(name, func(t *testing.T) {
			const few = 1000
			first := float64(work.countHeaders(t, few)) / few
			for _, n := range []int{10_000, 80_000} {
				if count := float64(work.countHeaders(t, n)) / float64(n); count > 1.2*first {
					t.Errorf("of %d headers each is compared or copied %.0f times, of %d each %.0f times", n, count, few, first)
				}
			}
			t.Logf("each header is compared or copied %.0f times", first)
		})
	}
}

// An application may remove all headers of a message in one call.
func TestHeaderWork_DelOfManyKeys(t *testing.T) {
	h := orderWithHeaders(10_000).Headers
	var keys []string
	for key := range h.All() {
		keys = append(keys, key)
	}
	count, stop := headerwork.Count()
	defer stop()
	h.Del(append(keys, "missing")...)
	if n := count.Load(); h.Len() != 0 || n > 4*int64(len(keys)) {
		t.Errorf("%d headers are left after %d were compared or copied", h.Len(), n)
	}
}

// BenchmarkHeaders moves a message to the error queue. The time for each header is the same
// with any number of them, apart from the work for the message.
func BenchmarkHeaders(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			transport := inmemory.Open()
			moved := make(chan struct{}, 1)
			ep, err := core.New("orders", transport, core.Config{
				Concurrency: 1, Logger: slog.New(slog.DiscardHandler), Recoverability: noRetries,
				Observers: []core.Observer{{Recovered: func(context.Context, core.Recovery) { moved <- struct{}{} }}},
			})
			if err != nil {
				b.Fatal(err)
			}
			core.Handle(ep, orderType, func(context.Context, *core.Message, []byte) error { return errBoom })
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- ep.Run(ctx) }()
			<-ep.Ready()
			out := orderWithHeaders(n)
			b.ReportAllocs()
			for b.Loop() {
				if err := transport.Send(ctx, out); err != nil {
					b.Fatal(err)
				}
				<-moved
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/header")
			stop()
			if err := errors.Join(<-ended, transport.Close(context.Background())); err != nil {
				b.Error(err)
			}
		})
	}
}
