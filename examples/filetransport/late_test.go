package filetransport_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

// A lock has ended when its time has come, not only when another process took it
// over: the message is redelivered, with a higher count.
func TestSettlement_AfterTheLockChangesNothing(t *testing.T) {
	for name, settle := range settlements {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport, dir := opened(t, filetransport.Config{LockDuration: lock})
				send(t, transport, "m")
				r := receiver(t, transport, 1)
				d := receive(t, r)
				time.Sleep(lock)
				before := names(t, dir)
				if err := settle(t.Context(), d); !errors.Is(err, core.ErrLockLost) {
					t.Fatalf("late settlement: %v", err)
				}
				if after := names(t, dir); !slices.Equal(after, before) {
					t.Errorf("files %q, before %q", after, before)
				}
				equal(t, "count", receive(t, r).Incoming().DeliveryCount, 2)
			})
		})
	}
}
