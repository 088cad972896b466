package core_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// watched is a transport whose receivers' observer is known.
type watched struct {
	*faulty
	observer core.ConnectionObserver
}

func (w *watched) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	w.observer, _ = cfg.Observer.(core.ConnectionObserver)
	return w.faulty.OpenReceiver(ctx, cfg)
}

func TestHealthForgetsTheOutageOfAnEarlierRun(t *testing.T) {
	bubble(t, func(b *bed) {
		transport := &watched{faulty: b.broker}
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		first := b.run(ep)
		transport.observer.ConnectionChanged(core.ConnectionChange{Err: errBoom})
		equal(b, "connected in the outage", ep.Health().Connected, false)
		_ = first.stop()
		b.run(ep)
		equal(b, "connected by another Run", ep.Health().Connected, true)
	})
}
