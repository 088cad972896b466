package transport_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// closingReceiver is a receiver whose Close takes a second.
type closingReceiver struct {
	core.Receiver
	life   *transport.Lifecycle
	closed atomic.Int32
	alive  bool // the Lifecycle's context had not ended at the end of Close
}

func (r *closingReceiver) Close(context.Context) error {
	time.Sleep(time.Second)
	r.alive = r.life.Context().Err() == nil
	r.closed.Add(1)
	r.life.Remove(r)
	return nil
}

func TestLifecycle_CloseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := transport.NewLifecycle()
		receivers := []*closingReceiver{{life: life}, {life: life}, {life: life}}
		for _, r := range receivers {
			if err := life.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		life.Remove(receivers[2]) // its owner has closed it
		var ended atomic.Bool
		disconnected := make(chan struct{})
		if !life.Go(func() { <-life.Context().Done(); <-disconnected; ended.Store(true) }) {
			t.Fatal("Go did not run while the transport was open")
		}
		if err := life.Err(t.Context()); err != nil {
			t.Fatalf("Err is %v while the transport is open", err)
		}
		began := time.Now()
		others := make(chan bool, 2)
		for range cap(others) {
			go func() {
				time.Sleep(time.Millisecond)
				others <- life.Close(t.Context(), nil)
			}()
		}
		first := life.Close(t.Context(), func() {
			if n := receivers[0].closed.Load() + receivers[1].closed.Load(); n != 2 {
				t.Errorf("disconnect is called when %d of 2 receivers are closed", n)
			}
			if life.Context().Err() == nil {
				t.Error("disconnect is called while the context lives")
			}
			select {
			case <-others:
				t.Error("another Close returned before the first one")
			default:
			}
			close(disconnected)
		})
		if took := time.Since(began); !first || took != time.Second {
			t.Errorf("Close is the first: %t, and took %v; want true and 1s, because receivers are closed at the same time", first, took)
		}
		if !ended.Load() {
			t.Error("Close did not wait for the goroutine")
		}
		for i, r := range receivers[:2] {
			if !r.alive {
				t.Errorf("the context ended before receiver %d was closed", i)
			}
		}
		if receivers[2].closed.Load() != 0 {
			t.Error("a removed receiver was closed")
		}
		for range cap(others) {
			if <-others {
				t.Error("two calls of Close are the first")
			}
		}
	})
}

func TestLifecycle_AfterClose(t *testing.T) {
	life := transport.NewLifecycle()
	if !life.Close(t.Context(), nil) {
		t.Error("the only Close is not the first")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), ended} {
		if err := life.Err(ctx); !errors.Is(err, core.ErrClosed) {
			t.Errorf("Err is %v", err)
		}
	}
	if err := life.Add(&closingReceiver{life: life}); !errors.Is(err, core.ErrClosed) {
		t.Errorf("Add returns %v", err)
	}
	if n := len(life.Receivers()); n != 0 {
		t.Errorf("%d receivers are open", n)
	}
	if life.Go(func() { t.Error("it runs") }) {
		t.Error("Go reports that it runs")
	}
}

func TestLifecycle_ErrOfTheContext(t *testing.T) {
	life := transport.NewLifecycle()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := life.Err(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Err is %v", err)
	}
}
