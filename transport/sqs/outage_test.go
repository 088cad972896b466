package sqs

import (
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// told keeps the changes.
type told chan core.ConnectionChange

func (c told) add(change core.ConnectionChange) { c <- change }

// next returns the next change.
func (c told) next(t *testing.T) core.ConnectionChange {
	t.Helper()
	select {
	case change := <-c:
		return change
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing is reported")
		return core.ConnectionChange{}
	}
}

// Outages of several kinds are one to the endpoint: from the beginning of the first to the end of the last.
func TestJointOutages_OneOutageOfSeveral(t *testing.T) {
	t.Parallel()
	changes := make(told, 10)
	joint := jointOutages{tell: changes.add}
	queue, bodies := joint.part(outageOfQueue), joint.part(outageOfBodies)
	start, failure := time.Now(), errors.New("it failed")
	lost := func(changed func(core.ConnectionChange), since time.Time) {
		changed(core.ConnectionChange{Err: failure, Since: since})
	}
	restored := func(changed func(core.ConnectionChange), since time.Time) {
		changed(core.ConnectionChange{Connected: true, Since: since})
	}
	lost(bodies, start)
	lost(queue, start.Add(time.Minute))
	restored(bodies, start)
	lost(queue, start.Add(time.Minute)) // another failure
	restored(queue, start.Add(time.Minute))
	for i, want := range []struct {
		connected bool
		since     time.Time
	}{{false, start}, {false, start}, {false, start.Add(time.Minute)}, {true, start.Add(time.Minute)}} {
		if got := changes.next(t); got.Connected != want.connected || !got.Since.Equal(want.since) || got.Connected == (got.Err != nil) {
			t.Errorf("change %d is %+v, want connected: %v, since %v", i+1, got, want.connected, want.since)
		}
	}
	if len(changes) > 0 {
		t.Errorf("there is also %+v", <-changes)
	}
	if part := (&jointOutages{}).part(outageOfQueue); part != nil {
		t.Error("an outage would be told to nil")
	}
}

// The messages whose bodies could not be fetched may go to other instances. Then no fetch tells that the store is back.
func TestBodyOutages_EndWithoutFetch(t *testing.T) {
	t.Parallel()
	changes := make(told, 10)
	var o bodyOutages
	o.ConnectionChanged = changes.add
	failure := errors.New("it failed")
	for range 2 {
		o.failed(failure, time.Now(), time.Hour)
		if got := changes.next(t); got.Connected {
			t.Errorf("a failure is reported as %+v", got)
		}
		o.failed(failure, time.Now(), time.Millisecond) // no further one follows for that long
		if got := changes.next(t); got.Connected {
			t.Errorf("a failure is reported as %+v", got)
		}
		if got := changes.next(t); !got.Connected {
			t.Errorf("the end is reported as %+v", got)
		}
	}
	o.failed(failure, time.Now(), time.Hour)
	changes.next(t)
	o.ended()
	if got := changes.next(t); !got.Connected {
		t.Errorf("after a body was fetched %+v is reported", got)
	}
	o.stop()
	o.failed(failure, time.Now(), time.Millisecond) // of a receiver that closes
	changes.next(t)
	if o.forget.Stop() {
		t.Error("a timer goes on after the receiver has closed")
	}
}
