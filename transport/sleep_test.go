package transport_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

func TestSleep(t *testing.T) {
	after := func(d time.Duration) func(parent context.Context) context.Context {
		return func(parent context.Context) context.Context {
			ctx, cancel := context.WithCancel(parent)
			time.AfterFunc(d, cancel)
			return ctx
		}
	}
	for name, c := range map[string]struct {
		ctx, life func(context.Context) context.Context
		wakeAfter time.Duration // 0: never
		err       error
		slept     time.Duration
	}{
		"to the end":      {after(time.Hour), after(time.Hour), 0, nil, time.Minute},
		"ended early":     {after(time.Hour), after(time.Hour), time.Second, nil, time.Second},
		"context ended":   {after(time.Second), after(time.Hour), 0, context.Canceled, time.Second},
		"transport ended": {after(time.Hour), after(time.Second), 0, core.ErrClosed, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wake chan struct{}
				if c.wakeAfter > 0 {
					wake = make(chan struct{})
					time.AfterFunc(c.wakeAfter, func() { close(wake) })
				}
				began := time.Now()
				err := transport.Sleep(c.ctx(t.Context()), c.life(t.Context()), time.Minute, wake)
				if slept := time.Since(began); !errors.Is(err, c.err) || slept != c.slept {
					t.Errorf("Sleep returned %v after %v, want %v after %v", err, slept, c.err, c.slept)
				}
			})
		})
	}
}

func TestSignal_RemembersOneWakeUp(t *testing.T) {
	s := transport.NewSignal()
	woken := func() bool {
		select {
		case <-s:
			return true
		default:
			return false
		}
	}
	if woken() {
		t.Error("a new Signal wakes")
	}
	for range 3 {
		s.Notify()
	}
	if !woken() {
		t.Error("Notify does not wake a later receive")
	}
	if woken() {
		t.Error("several Notify wake twice")
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		group.Go(func() { time.Sleep(time.Minute) })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		transport.Await(ctx, &group)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it waited for %v, and its context ended after a second", waited)
		}
		transport.Await(t.Context(), &group)
		if waited := time.Since(began); waited != time.Minute {
			t.Errorf("it waited for %v in all, and the group for a minute", waited)
		}
	})
}
