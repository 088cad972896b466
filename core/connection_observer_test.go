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

// watchedTransport is a transport that tells of outages, and warns.
type watchedTransport struct {
	*faultyTransport
	report func(core.ConnectionChange)
	warn   func(text string)
}

func (w *watchedTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	w.report, w.warn = cfg.ConnectionChanged, cfg.Warn
	return w.faultyTransport.OpenReceiver(ctx, cfg)
}

func TestHealth_ForgetsTheOutageOfAnEarlierRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		transport := &watchedTransport{faultyTransport: fx.broker}
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			fx.Fatal(err)
		}
		first := fx.run(ep)
		transport.report(core.ConnectionChange{Err: errBoom})
		equal(fx, "connected in the outage", ep.Health().Connected, false)
		_ = first.stop()
		fx.run(ep)
		equal(fx, "connected by another Run", ep.Health().Connected, true)
	})
}

// A message shows some problems only while the endpoint runs.
func TestReceiverConfig_WarnLogsAtOnce(t *testing.T) {
	bubble(t, func(fx *fixture) {
		transport := &watchedTransport{faultyTransport: fx.broker}
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(logHandler{recorder: fx.logs})})
		if err != nil {
			fx.Fatal(err)
		}
		fx.run(ep)
		const text = "a message asks for a delay of 100 years; to fix: find its sender"
		transport.warn(text)
		equal(fx, "lines", len(fx.logs.find("the transport should be configured differently", "reason", text)), 1)
	})
}

// connectionObserver returns an observer that calls f for each change of the connection.
func connectionObserver(f func(core.ConnectionChange)) core.Observer {
	return core.Observer{ConnectionChanged: f}
}

// The first thing that one writes in a connection observer. An adapter waited for it in
// Close, and so Shutdown for itself.
func TestConnectionObserver_MayShutDown(t *testing.T) {
	bubble(t, func(fx *fixture) {
		transport := &watchedTransport{faultyTransport: fx.broker}
		var ep *core.Endpoint
		shut := make(chan error, 1)
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []core.Observer{connectionObserver(func(e core.ConnectionChange) {
			shut <- ep.Shutdown(context.Background())
		})}})
		if err != nil {
			fx.Fatal(err)
		}
		run := fx.run(ep)
		start := time.Now()
		transport.report(core.ConnectionChange{Err: errBoom}) // returns at once
		if err := <-shut; err != nil {
			fx.Errorf("Shutdown: %v", err)
		}
		if err := run.wait(); err != nil {
			fx.Errorf("Run: %v", err)
		}
		equal(fx, "time to shut down", time.Since(start), 0)
	})
}

func TestConnectionObserver_BlocksNoAdapter(t *testing.T) {
	bubble(t, func(fx *fixture) {
		transport := &watchedTransport{faultyTransport: fx.broker}
		release := make(chan struct{})
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []core.Observer{connectionObserver(func(core.ConnectionChange) { <-release })}})
		if err != nil {
			fx.Fatal(err)
		}
		run := fx.run(ep)
		for range 10_000 {
			transport.report(core.ConnectionChange{Err: errBoom})
		}
		equal(fx, "connected", ep.Health().Connected, false)
		start := time.Now()
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "time to stop", time.Since(start), 4*time.Second)
		close(release)
	})
}

// A receiver of an earlier Run that is left behind marked the next one as disconnected.
func TestConnectionObserver_OfAnEarlierRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		transport := &watchedTransport{faultyTransport: fx.broker}
		told := 0
		ep, err := core.New("orders", transport, core.Config{Logger: slog.New(slog.DiscardHandler), Observers: []core.Observer{connectionObserver(func(core.ConnectionChange) { told++ })}})
		if err != nil {
			fx.Fatal(err)
		}
		if err := fx.run(ep).stop(); err != nil {
			fx.Fatal(err)
		}
		left := transport.report
		fx.run(ep)
		left(core.ConnectionChange{Err: errBoom})
		synctest.Wait()
		equal(fx, "connected", ep.Health().Connected, true)
		equal(fx, "told", told, 0)
	})
}

// The sends of a send-only endpoint are its connection: New accepted the observer and nothing was told.
func TestConnectionObserver_OfSends(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var told recorder[core.ConnectionChange]
		var ep *core.Endpoint
		first := true
		ep = fx.newEndpoint("sender", core.Config{SendOnly: true, Observers: []core.Observer{connectionObserver(func(e core.ConnectionChange) {
			told.add(e)
			if first { // an observer may send, also where it ends the goroutine
				first = false
				_ = ep.Send(context.Background(), "shipping", shipByteType.Of([]byte("x")))
				runtime.Goexit()
			}
		})}})
		send := func(err error) {
			fx.broker.setFaults(faults{send: func([]core.Outgoing) error { return err }})
			if got := ep.Send(fx.Context(), "shipping", shipByteType.Of([]byte("x"))); !errors.Is(got, err) {
				fx.Errorf("Send returned %v, want %v", got, err)
			}
			synctest.Wait()
		}
		began := time.Now()
		send(nil)
		send(core.ErrQueueNotFound)
		equal(fx, "told before an outage", told.len(), 0)
		send(errBoom)
		fx.advance(time.Minute)
		send(errUnreached)
		equal(fx, "told in the outage", told.len(), 1)
		send(nil)
		send(nil)
		fx.advance(time.Hour)
		send(errBoom)
		want := []core.ConnectionChange{{Err: errBoom, Since: began}, {Connected: true, Since: began}, {Err: errBoom, Since: began.Add(time.Hour + time.Minute)}}
		for i, e := range told.all() {
			if i >= len(want) || e.Connected != want[i].Connected || !errors.Is(e.Err, want[i].Err) || !e.Since.Equal(want[i].Since) || e.Endpoint != "sender" || e.Queue != "" {
				fx.Errorf("event %d is %+v", i+1, e)
			}
		}
		equal(fx, "events", told.len(), len(want))
	})
}

// Outages that begin and end while an observer is busy neither queue up nor leave it with an old state.
func TestConnectionObserver_OfSendsIsToldTheNewestState(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var told recorder[bool]
		release := make(chan struct{})
		ep := fx.newEndpoint("sender", core.Config{SendOnly: true, Observers: []core.Observer{connectionObserver(func(e core.ConnectionChange) {
			told.add(e.Connected)
			<-release
		})}})
		send := func(err error) {
			fx.broker.setFaults(faults{send: func([]core.Outgoing) error { return err }})
			_ = ep.Send(fx.Context(), "shipping", shipByteType.Of([]byte("x")))
			synctest.Wait()
		}
		for range 1000 {
			send(errBoom)
			send(nil)
		}
		close(release)
		synctest.Wait()
		equal(fx, "told", fmt.Sprint(told.all()), "[false true]")
	})
}
