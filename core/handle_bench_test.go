package core_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// BenchmarkHandle is a message from Transport.Send to its settlement by a handler without
// middleware, in memory.
func BenchmarkHandle(b *testing.B) {
	for _, mode := range allModes {
		b.Run(mode.String(), func(b *testing.B) {
			send := runHandler(b, mode)
			b.ReportAllocs()
			for b.Loop() {
				send()
			}
		})
	}
}

// runHandler runs an endpoint with such a handler. Each call of the function sends it a
// message and waits for its handler.
func runHandler(t testing.TB, mode core.TransactionMode) (send func()) {
	transport := inmemory.Open()
	ep, err := core.New("orders", transport, core.Config{Transactions: mode, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan struct{})
	core.Handle(ep, orderType, func(context.Context, *core.Message, []byte) error {
		handled <- struct{}{}
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	<-ep.Ready()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, transport.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	msg := order("m1")
	return func() {
		if err := transport.Send(ctx, msg); err != nil {
			t.Fatal(err)
		}
		<-handled
	}
}
