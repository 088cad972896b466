//go:build darwin || linux

package asb_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// A program looks at messages by receiving them, and gives them back by closing its receiver.
func TestHeldLook_OrderAndCount(t *testing.T) {
	t.Parallel()
	const n = 300 // more than one request brings
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	send(t, transport, "q", bodies...)
	look := func(held int) {
		t.Helper()
		r := openReceiver(t, s.open(t, asb.Config{}), "q", held)
		var came []string
		for _, d := range take(t, r, held) {
			in := d.Incoming()
			came = append(came, string(in.Body))
			if in.DeliveryCount != 1 {
				t.Fatalf("message %s is delivery %d", in.Body, in.DeliveryCount)
			}
		}
		slices.SortFunc(came, func(a, b string) int { return slices.Index(bodies, a) - slices.Index(bodies, b) }) // several requests bring them
		if !slices.Equal(came, bodies[:held]) {
			t.Fatalf("a look at %d messages brings %q", held, came)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look(n)
	look(50)
	look(n)
	all, _ := browse(t, transport, wholeQueue("q"))
	if got := bodiesOf(all); !slices.Equal(got, bodies) {
		t.Errorf("the order afterwards is %q", got)
	}
	for i, m := range all {
		want := 2 // by the service, for MaxDeliveryCount
		if i < 50 {
			want = 3
		}
		if counted := counted(&m.Incoming); counted != want || m.DeliveryCount != 0 {
			t.Fatalf("message %d was delivered %d times by the service's count, which leaves %d; want %d and 0", i, counted, m.DeliveryCount, want)
		}
	}
}

// In a dead-letter queue neither the service nor the adapter counts a look.
func TestHeldLook_AtDeadLetters(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	send(t, transport, "q", "a", "b", "c")
	for _, d := range take(t, openReceiver(t, transport, "q", 3), 3) {
		if err := d.DeadLetter(t.Context(), core.DeadLetter{Reason: "a reason"}); err != nil {
			t.Fatal(err)
		}
	}
	const dead = "q/$deadletterqueue"
	before, _ := browse(t, transport, wholeQueue(dead))
	for range 30 {
		r := openReceiver(t, transport, dead, 3)
		take(t, r, 3)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	after, _ := browse(t, transport, wholeQueue(dead))
	if !slices.Equal(bodiesOf(after), bodiesOf(before)) {
		t.Fatalf("%q are there, and %q were", bodiesOf(after), bodiesOf(before))
	}
	for i := range after {
		if counted(&after[i].Incoming) != counted(&before[i].Incoming) || after[i].DeliveryCount != before[i].DeliveryCount {
			t.Errorf("the count of %q has changed", after[i].Body)
		}
	}
}
