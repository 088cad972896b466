package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// watched is a transport that tells of outages.
type watched struct {
	*faulty
	tell func(core.ConnectionChange)
}

func (w *watched) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	w.tell = cfg.ConnectionChanged
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
		transport.tell(core.ConnectionChange{Err: errBoom})
		equal(b, "connected in the outage", ep.Health().Connected, false)
		_ = first.stop()
		b.run(ep)
		equal(b, "connected by another Run", ep.Health().Connected, true)
	})
}

// hears returns an observer that calls f for each change of the connection.
func hears(f func(core.ConnectionChange)) core.Observer { return core.Observer{ConnectionChanged: f} }

// The first thing that one writes in a connection observer. An adapter waited for it in
// Close, and so Shutdown for itself.
func TestConnectionObserver_MayShutDown(t *testing.T) {
	bubble(t, func(b *bed) {
		transport := &watched{faulty: b.broker}
		var ep *core.Endpoint
		shut := make(chan error, 1)
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []core.Observer{hears(func(e core.ConnectionChange) {
			shut <- ep.Shutdown(context.Background())
		})}})
		if err != nil {
			b.Fatal(err)
		}
		run := b.run(ep)
		start := time.Now()
		transport.tell(core.ConnectionChange{Err: errBoom}) // returns at once
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
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []core.Observer{hears(func(core.ConnectionChange) { <-release })}})
		if err != nil {
			b.Fatal(err)
		}
		run := b.run(ep)
		for range 10_000 {
			transport.tell(core.ConnectionChange{Err: errBoom})
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
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []core.Observer{hears(func(core.ConnectionChange) { told++ })}})
		if err != nil {
			b.Fatal(err)
		}
		if err := b.run(ep).stop(); err != nil {
			b.Fatal(err)
		}
		left := transport.tell
		b.run(ep)
		left(core.ConnectionChange{Err: errBoom})
		synctest.Wait()
		equal(b, "connected", ep.Health().Connected, true)
		equal(b, "told", told, 0)
	})
}

// The sends of a send-only endpoint are its connection: New accepted the observer and nothing was told.
func TestConnectionObserver_OfSends(t *testing.T) {
	bubble(t, func(b *bed) {
		var told record[core.ConnectionChange]
		var ep *core.Endpoint
		first := true
		ep = b.endpoint("sender", core.Config{SendOnly: true, Observers: []core.Observer{hears(func(e core.ConnectionChange) {
			told.add(e)
			if first { // an observer may send, also where it ends the goroutine
				first = false
				_ = ep.Send(context.Background(), "shipping", "ship", []byte("x"))
				runtime.Goexit()
			}
		})}})
		send := func(err error) {
			b.broker.provoke(faults{send: func([]core.Outgoing) error { return err }})
			if got := ep.Send(b.Context(), "shipping", "ship", []byte("x")); !errors.Is(got, err) {
				b.Errorf("Send returned %v, want %v", got, err)
			}
			synctest.Wait()
		}
		began := time.Now()
		send(nil)
		send(core.ErrQueueNotFound)
		equal(b, "told before an outage", told.len(), 0)
		send(errBoom)
		b.pass(time.Minute)
		send(errUnreached)
		equal(b, "told in the outage", told.len(), 1)
		send(nil)
		send(nil)
		b.pass(time.Hour)
		send(errBoom)
		want := []core.ConnectionChange{{Err: errBoom, Since: began}, {Connected: true, Since: began}, {Err: errBoom, Since: began.Add(time.Hour + time.Minute)}}
		for i, e := range told.all() {
			if i >= len(want) || e.Connected != want[i].Connected || !errors.Is(e.Err, want[i].Err) || !e.Since.Equal(want[i].Since) || e.Endpoint != "sender" || e.Queue != "" {
				b.Errorf("event %d is %+v", i+1, e)
			}
		}
		equal(b, "events", told.len(), len(want))
	})
}

// Outages that begin and end while an observer is busy neither queue up nor leave it with an old state.
func TestConnectionObserver_OfSendsIsToldTheNewestState(t *testing.T) {
	bubble(t, func(b *bed) {
		var told record[bool]
		release := make(chan struct{})
		ep := b.endpoint("sender", core.Config{SendOnly: true, Observers: []core.Observer{hears(func(e core.ConnectionChange) {
			told.add(e.Connected)
			<-release
		})}})
		send := func(err error) {
			b.broker.provoke(faults{send: func([]core.Outgoing) error { return err }})
			_ = ep.Send(b.Context(), "shipping", "ship", []byte("x"))
			synctest.Wait()
		}
		for range 1000 {
			send(errBoom)
			send(nil)
		}
		close(release)
		synctest.Wait()
		equal(b, "told", fmt.Sprint(told.all()), "[false true]")
	})
}
