package sqlserver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver"
)

func TestOperation_IsCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		why      func(callerEnds, receiverCloses, transportCloses func())
		from, to time.Duration // after why
		err      error
	}{
		"some time after its caller's context has ended": {
			why:  func(callerEnds, _, _ func()) { callerEnds() },
			from: 2 * time.Second, to: 2200 * time.Millisecond, err: context.Canceled,
		},
		"some time after its receiver was closed": {
			why:  func(_, receiverCloses, _ func()) { receiverCloses() },
			from: 2 * time.Second, to: 2200 * time.Millisecond, err: context.Canceled,
		},
		"soon after its transport was closed": {
			why: func(_, _, transportCloses func()) { transportCloses() },
			to:  100 * time.Millisecond, err: context.Canceled,
		},
		"when it takes too long": {
			why:  func(_, _, _ func()) {},
			from: 30 * time.Second, to: 30200 * time.Millisecond, err: context.DeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, callerEnds := context.WithCancel(t.Context())
				closing, receiverCloses := context.WithCancel(t.Context())
				life, transportCloses := context.WithCancel(t.Context())
				defer callerEnds()
				defer receiverCloses()
				defer transportCloses()
				begin := sqlserver.Operations(life, closing)
				under, end := begin(caller)
				defer end()
				_, endOther := begin(t.Context()) // ends before
				endOther()

				child, cancel := context.WithCancel(under)
				defer cancel()
				forgotten := false
				defer context.AfterFunc(under, func() { forgotten = true })()
				stopped := context.AfterFunc(under, func() { t.Error("a callback ran after it was stopped") })()
				if !stopped {
					t.Error("a callback could not be stopped")
				}

				c.why(callerEnds, receiverCloses, transportCloses)
				start := time.Now()
				<-under.Done()
				if took := time.Since(start); took < c.from || took > c.to {
					t.Errorf("it was cut off after %v, want %v to %v", took, c.from, c.to)
				}
				if err := under.Err(); !errors.Is(err, c.err) {
					t.Errorf("its error is %v, want %v", err, c.err)
				}
				<-child.Done()
				synctest.Wait()
				if !forgotten {
					t.Error("a callback did not run")
				}
				late := make(chan struct{})
				if stop := context.AfterFunc(under, func() { close(late) }); stop() {
					t.Error("a callback of an operation that was cut off could be stopped")
				}
				<-late
			})
		})
	}
}

func TestOperation_EndedIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := sqlserver.Operations(t.Context(), t.Context())
		var ends []func()
		for range 3 {
			under, end := begin(t.Context())
			if under.Err() != nil {
				t.Fatal(under.Err())
			}
			ends = append(ends, func() {
				end()
				if under.Err() == nil {
					t.Error("an operation has no error after its end")
				}
			})
		}
		for _, i := range []int{1, 2, 0} { // from the middle, from both ends
			ends[i]()
		}
		time.Sleep(time.Second) // the watch ends: otherwise the test never would
	})
}
