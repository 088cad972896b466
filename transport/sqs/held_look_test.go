//go:build darwin || linux

package sqs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// A program looks at messages by receiving them, and gives them back by closing its receiver:
// each counts once more, and all are visible at once.
func TestHeldLook_OfAStandardQueue(t *testing.T) {
	t.Parallel()
	const n = 45
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{VisibilityTimeout: time.Hour}, "q")
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("%02d", i))
		if err := transport.Send(t.Context(), core.Outgoing{ID: want[i], Queue: "q", Body: []byte(want[i])}); err != nil {
			t.Fatal(err)
		}
	}
	for looks := 1; looks <= 3; looks++ {
		r := openReceiver(t, s.open(t, sqs.Config{VisibilityTimeout: time.Hour}), "q", n)
		var came []string
		for _, d := range take(t, r, n) {
			in := d.Incoming()
			came = append(came, string(in.Body))
			if in.DeliveryCount != looks {
				t.Errorf("message %s is delivery %d at look %d", in.Body, in.DeliveryCount, looks)
			}
		}
		if slices.Sort(came); !slices.Equal(came, want) { // the order of a standard queue is any
			t.Fatalf("look %d brings %q", looks, came)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if depth, err := transport.Depth(t.Context(), "q"); err != nil || depth != (queues.Depth{Ready: n, Receivers: -1}) {
			t.Errorf("after look %d: %+v, %v", looks, depth, err)
		}
	}
}

// A look at a FIFO queue has one message of each group, and the group is blocked until it ends.
func TestHeldLook_OfAFIFOQueue(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{VisibilityTimeout: time.Hour}, "q.fifo")
	for _, group := range []string{"a", "b"} {
		for i := range 3 {
			id := fmt.Sprint(group, i)
			if err := transport.Send(t.Context(), core.Outgoing{ID: id, Queue: "q.fifo", Body: []byte(id), GroupKey: group}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for looks := 1; looks <= 2; looks++ {
		r := openReceiver(t, s.open(t, sqs.Config{VisibilityTimeout: time.Hour}), "q.fifo", 6)
		var came []string
		for _, d := range take(t, r, 2) {
			came = append(came, string(d.Incoming().Body))
			if count := d.Incoming().DeliveryCount; count != looks {
				t.Errorf("message %s is delivery %d at look %d", d.Incoming().Body, count, looks)
			}
		}
		if slices.Sort(came); !slices.Equal(came, []string{"a0", "b0"}) {
			t.Errorf("look %d brings %q", looks, came)
		}
		if c, _ := s.Contents("q.fifo"); len(c.InFlight) != 2 {
			t.Errorf("%d messages are in flight, want one of each group", len(c.InFlight))
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	next := map[string]int{}
	r := openReceiver(t, transport, "q.fifo", 1)
	for range 6 {
		d := take(t, r, 1)[0]
		group := d.Incoming().GroupKey
		if got, want := string(d.Incoming().Body), fmt.Sprint(group, next[group]); got != want {
			t.Errorf("%s came in place of %s", got, want)
		}
		next[group]++
		if err := d.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
