package sqs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
)

// placesReceiver is a receiver without pollers that holds a number of messages, all handed out.
func placesReceiver(t *testing.T, address string, maxInFlight, held int) (*receiver, []*delivery) {
	life := transport.NewLifecycle()
	t.Cleanup(func() { life.Close(context.Background(), nil) })
	service := &Transport{cfg: &Config{VisibilityTimeout: time.Hour}, life: life, runners: batch.NewRunners(life)}
	r := newReceiver(service, address, "", core.ReceiverConfig{Queue: address, MaxInFlight: maxInFlight})
	r.wanted = 1 + maxInFlight/receiveBatch
	deliveries := make([]*delivery, held)
	for i := range deliveries {
		deliveries[i] = &delivery{r: r, lockEnd: time.Now().Add(time.Hour)}
		r.held[deliveries[i]] = struct{}{}
	}
	return r, deliveries
}

// begin begins to settle deliveries, and returns what the batcher tells the receiver about them.
func begin(r *receiver, deliveries []*delivery) []*batch.Entry[*settlement] {
	var entries []*batch.Entry[*settlement]
	for _, d := range deliveries {
		e := &batch.Entry[*settlement]{Item: &settlement{d: d}}
		r.settling(e)
		entries = append(entries, e)
	}
	return entries
}

// wantPlaces checks how many places a poller gets, for which it then asks.
func wantPlaces(t *testing.T, r *receiver, want ...int) {
	t.Helper()
	for _, n := range want {
		if got, _, retire := r.reserve(); retire || got != n {
			t.Errorf("a request asks for %d messages (the poller ends: %v), want %d", got, retire, n)
		}
	}
}

func TestReserve_WaitsForSettlementsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, deliveries := placesReceiver(t, "billing", 30, 30)
		wantPlaces(t, r, 0)
		first, second := begin(r, deliveries[:3]), begin(r, deliveries[3:13])
		r.settled(first)
		wantPlaces(t, r, 0) // ten more are free in a moment
		r.settled(second)
		wantPlaces(t, r, 10, 3, 0)
	})
}

// Handlers may run for long: nothing waits for them.
func TestReserve_WaitsForNoHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, deliveries := placesReceiver(t, "billing", 30, 30)
		r.settled(begin(r, deliveries[:3]))
		wantPlaces(t, r, 3, 0)
	})
}

func TestReserve_WaitsForHangingSettlementsBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, deliveries := placesReceiver(t, "billing", 30, 30)
		begin(r, deliveries[3:])
		r.settled(begin(r, deliveries[:3]))
		select {
		case <-r.room: // so that a poller knows of the time
		default:
			t.Fatal("no poller was told")
		}
		_, wait, retire := r.reserve()
		if retire || wait != askLinger {
			t.Fatalf("a poller looks again after %v (it ends: %v), want %v", wait, retire, askLinger)
		}
		time.Sleep(wait)
		wantPlaces(t, r, 3)
	})
}

// A settlement that failed keeps its place, and nothing waits for it.
func TestReserve_SettlementsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			err    error
			places int
		}{
			"outage":           {&entryError{code: "InternalFailure"}, 3},
			"closed transport": {core.ErrClosed, 3},
			"withdrawn":        {batch.ErrWithdrawn, 3},
			"lost lock":        {&entryError{code: "ReceiptHandleIsInvalid", sender: true}, 4},
		} {
			r, deliveries := placesReceiver(t, "billing", 30, 30)
			failing := begin(r, deliveries[3:4])
			r.settled(begin(r, deliveries[:3]))
			wantPlaces(t, r, 0)
			r.room = transport.NewSignal()
			failing[0].Err = c.err
			r.settled(failing)
			if len(r.room) == 0 {
				t.Errorf("%s: no poller was told", name)
			}
			if got, _, _ := r.reserve(); got != c.places {
				t.Errorf("%s: there are %d places, want %d", name, got, c.places)
			}
		}
	})
}

func TestReserve_FewerSlotsThanARequestBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, deliveries := placesReceiver(t, "billing", 4, 4)
		first, second := begin(r, deliveries[:1]), begin(r, deliveries[1:])
		r.settled(first)
		wantPlaces(t, r, 0)
		r.settled(second)
		wantPlaces(t, r, 4, 0)
	})
}

// A request to a FIFO queue brings one message, so none waits for places.
func TestReserve_FIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, deliveries := placesReceiver(t, "billing.fifo", 30, 30)
		begin(r, deliveries[3:])
		r.settled(begin(r, deliveries[:3]))
		wantPlaces(t, r, 1, 1, 1, 0)
	})
}

// Of several deliveries that are settled at the same moment, the first one's request waits for the others, and the last one's
// does not.
func TestSettle_WaitsWhileMoreMayBeSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, deliveries := placesReceiver(t, "billing", 30, 5)
		for i, d := range deliveries {
			if !r.settler.moreToSettle(0) {
				t.Errorf("no delivery besides %d of %d is to be settled", i, len(deliveries))
			}
			begin(r, []*delivery{d})
		}
		if r.settler.moreToSettle(0) {
			t.Error("all deliveries are being settled, and there are more")
		}
	})
}
