package core_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

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

func TestHealth_ForgetsTheOutageOfAnEarlierRun(t *testing.T) {
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

// hears calls a function for each change of the connection.
type hears func(core.ConnectionChange)

func (h hears) ConnectionChanged(e core.ConnectionChange) { h(e) }

// The first thing that one writes in a connection observer. An adapter waited for it in
// Close, and so Shutdown for itself.
func TestConnectionObserver_MayShutDown(t *testing.T) {
	bubble(t, func(b *bed) {
		transport := &watched{faulty: b.broker}
		var ep *core.Endpoint
		shut := make(chan error, 1)
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []any{hears(func(e core.ConnectionChange) {
			shut <- ep.Shutdown(context.Background())
		})}})
		if err != nil {
			b.Fatal(err)
		}
		run := b.run(ep)
		start := time.Now()
		transport.observer.ConnectionChanged(core.ConnectionChange{Err: errBoom}) // returns at once
		if err := <-shut; err != nil {
			b.Errorf("Shutdown: %v", err)
		}
		if err := run.wait(); err != nil {
			b.Errorf("Run: %v", err)
		}
		equal(b, "time to shut down", time.Since(start), 0)
	})
}

func TestConnectionObserver_HoldsUpNoAdapter(t *testing.T) {
	bubble(t, func(b *bed) {
		transport := &watched{faulty: b.broker}
		release := make(chan struct{})
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []any{hears(func(core.ConnectionChange) { <-release })}})
		if err != nil {
			b.Fatal(err)
		}
		run := b.run(ep)
		for range 10_000 {
			transport.observer.ConnectionChanged(core.ConnectionChange{Err: errBoom})
		}
		equal(b, "connected", ep.Health().Connected, false)
		start := time.Now()
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "time to stop", time.Since(start), 4*time.Second)
		close(release)
	})
}

// A receiver of an earlier Run that is left behind marked the next one as disconnected.
func TestConnectionObserver_OfAnEarlierRun(t *testing.T) {
	bubble(t, func(b *bed) {
		transport := &watched{faulty: b.broker}
		told := 0
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []any{hears(func(core.ConnectionChange) { told++ })}})
		if err != nil {
			b.Fatal(err)
		}
		if err := b.run(ep).stop(); err != nil {
			b.Fatal(err)
		}
		left := transport.observer
		b.run(ep)
		left.ConnectionChanged(core.ConnectionChange{Err: errBoom})
		synctest.Wait()
		equal(b, "connected", ep.Health().Connected, true)
		equal(b, "told", told, 0)
	})
}
