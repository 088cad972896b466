package operation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
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
				operations := operation.Tracker{Life: life, Closing: closing}
				op := operations.Begin(caller)
				defer op.End()
				operations.Begin(t.Context()).End() // ends before

				child, cancel := context.WithCancel(op)
				defer cancel()
				forgotten := false
				defer context.AfterFunc(op, func() { forgotten = true })()
				stopped := context.AfterFunc(op, func() { t.Error("a callback ran after it was stopped") })()
				if !stopped {
					t.Error("a callback could not be stopped")
				}

				c.why(callerEnds, receiverCloses, transportCloses)
				start := time.Now()
				<-op.Done()
				if took := time.Since(start); took < c.from || took > c.to {
					t.Errorf("it was cut off after %v, want %v to %v", took, c.from, c.to)
				}
				if err := op.Err(); !errors.Is(err, c.err) {
					t.Errorf("its error is %v, want %v", err, c.err)
				}
				<-child.Done()
				synctest.Wait()
				if !forgotten {
					t.Error("a callback did not run")
				}
				late := make(chan struct{})
				if stop := context.AfterFunc(op, func() { close(late) }); stop() {
					t.Error("a callback of an operation that was cut off could be stopped")
				}
				<-late
			})
		})
	}
}

func TestOperation_EndedIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		operations := operation.Tracker{Life: t.Context(), Closing: t.Context()}
		var begun []*operation.Operation
		for range 3 {
			op := operations.Begin(t.Context())
			if op.Err() != nil {
				t.Fatal(op.Err())
			}
			begun = append(begun, op)
		}
		for _, i := range []int{1, 2, 0} { // from the middle, from both ends
			begun[i].End()
			if begun[i].Err() == nil {
				t.Error("an operation has no error after its end")
			}
		}
		time.Sleep(time.Second) // the watch ends: otherwise the test never would
	})
}
