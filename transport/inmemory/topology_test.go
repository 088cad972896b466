package inmemory_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Rule C18.
func TestProvision_IsIdempotentAndConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q", "other")
		send(t, transport, message("q", "a"))
		var instances sync.WaitGroup
		for i := range 20 {
			instances.Go(func() {
				if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"q", fmt.Sprint("own", i), "q"}}); err != nil {
					t.Error(err)
				}
			})
			instances.Go(func() { // and another transport sends at the same time
				if err := transport.Send(t.Context(), message("other", "a")); err != nil {
					t.Error(err)
				}
			})
		}
		instances.Wait()
		if n := len(transport.Queues()); n != 22 {
			t.Errorf("%d queues, want 22: %v", n, transport.Queues())
		}
		depth(t, transport, "q", inmemory.Depth{Ready: 1}) // existing queues are not changed
	})
}

// Rule C18.
func TestProvision_CreatesAllOrNothing(t *testing.T) {
	transport := open(t, inmemory.Config{})
	for _, bad := range []string{"", "\xff", inmemory.DeadLetterQueue("q")} {
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"q", bad}}); err == nil {
			t.Errorf("Provision accepted the name %q", bad)
		}
	}
	if queues := transport.Queues(); len(queues) != 0 {
		t.Errorf("queues were created: %v", queues)
	}
}

func TestAddress_IsIdempotentAndAsStrictAsProvision(t *testing.T) {
	transport := inmemory.Open()
	for _, name := range []string{"billing", "a/b c", "線"} {
		first, err := transport.Address(name)
		succeed(t, err)
		second, err := transport.Address(first)
		if err != nil || first != second {
			t.Errorf("Address(%q) = %q, then %q, %v", name, first, second, err)
		}
	}
	for _, bad := range []string{"", "\xff"} {
		if _, err := transport.Address(bad); err == nil {
			t.Errorf("Address accepted %q", bad)
		}
	}
}

// Rule C19.
func TestSubscribe_EachSubscriberReceivesOneCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "a", "b", "c")
		event := func(topic string) core.Outgoing { return core.Outgoing{ID: "e", Topic: topic, Body: []byte(topic)} }
		send(t, transport, event("orders")) // without subscribers: no error, no copy
		succeed(t, transport.Subscribe(t.Context(), "a", "orders", "invoices", "orders"))
		succeed(t, transport.Subscribe(t.Context(), "a", "orders")) // again
		succeed(t, transport.Subscribe(t.Context(), "b", "orders"))
		send(t, transport, event("orders"), event("invoices"))
		depth(t, transport, "a", inmemory.Depth{Ready: 2})
		depth(t, transport, "b", inmemory.Depth{Ready: 1})
		depth(t, transport, "c", inmemory.Depth{})

		ra, rb := peekLock(t, transport, "a"), peekLock(t, transport, "b")
		da, db := receive(t, ra, "orders"), receive(t, rb, "orders")
		if da.Incoming().NativeID == db.Incoming().NativeID {
			t.Error("two copies share a NativeID")
		}
		succeed(t, da.Complete(t.Context()))
		succeed(t, db.Abandon(t.Context(), nil)) // copies are independent
		succeed(t, receive(t, ra, "invoices").Complete(t.Context()))
		counts(t, receive(t, rb, "orders"), 2, "")

		succeed(t, transport.Unsubscribe(t.Context(), "a", "orders", "never subscribed"))
		send(t, transport, event("orders"), event("invoices"))
		depth(t, transport, "a", inmemory.Depth{Ready: 1})
		receive(t, ra, "invoices")
		receive(t, rb, "orders")
	})
}

// Rule C19.
func TestSubscribe_NeedsAQueueAndATopic(t *testing.T) {
	transport := open(t, inmemory.Config{}, "q")
	failWith(t, transport.Subscribe(t.Context(), "missing", "t"), core.ErrQueueNotFound)
	if err := transport.Subscribe(t.Context(), "q", "t", ""); err == nil {
		t.Error("a topic without a name was accepted")
	}
	send(t, transport, core.Outgoing{ID: "1", Topic: "t"})
	depth(t, transport, "q", inmemory.Depth{})
}

// Rule C19.
func TestSubscribe_WhileOthersPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "always", "sometimes")
		succeed(t, transport.Subscribe(t.Context(), "always", "t"))
		var publishers sync.WaitGroup
		for range 4 {
			publishers.Go(func() {
				for range 500 {
					if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Topic: "t"}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 200 {
			succeed(t, transport.Subscribe(t.Context(), "sometimes", "t"))
			succeed(t, transport.Unsubscribe(t.Context(), "sometimes", "t"))
		}
		publishers.Wait()
		depth(t, transport, "always", inmemory.Depth{Ready: 2000})
	})
}

func TestInspect_DepthsAndMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "b", "a")
		if got := transport.Queues(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("Queues = %v", got)
		}
		send(t, transport, message("a", "1"), message("a", "2"), message("a", "3"), delayed(message("a", "4"), 1, 0))
		d := receive(t, peekLock(t, transport, "a"), "1")
		depth(t, transport, "a", inmemory.Depth{Ready: 2, Delayed: 1, InFlight: 1})
		if all, _ := transport.Depth("a"); all.Total() != 4 {
			t.Errorf("Total = %d, want 4", all.Total())
		}
		succeed(t, d.Abandon(t.Context(), fmt.Errorf("no")))
		messages, err := transport.Peek("a")
		succeed(t, err)
		var bodies []string
		for _, in := range messages {
			bodies = append(bodies, string(in.Body))
		}
		if !slices.Equal(bodies, []string{"2", "3", "1"}) {
			t.Errorf("Peek shows %v", bodies)
		}
		if last := messages[2]; last.DeliveryCount != 2 || last.LastError != "no" || last.ID != "id-1" {
			t.Errorf("Peek shows %+v", last)
		}
		_, err = transport.Peek("missing")
		failWith(t, err, core.ErrQueueNotFound)
		_, err = transport.Depth("missing")
		failWith(t, err, core.ErrQueueNotFound)
		if queues := inmemory.Open().Queues(); len(queues) > 0 {
			t.Errorf("another transport without a Broker has the queues %v", queues)
		}
	})
}
