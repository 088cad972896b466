package inmemory_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
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
		if all := names(t, transport); len(all) != 22 {
			t.Errorf("%d queues, want 22: %v", len(all), all)
		}
		depth(t, transport, "q", queues.Depth{Ready: 1}) // existing queues are not changed
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
	if all := names(t, transport); len(all) != 0 {
		t.Errorf("queues were created: %v", all)
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
		depth(t, transport, "a", queues.Depth{Ready: 2})
		depth(t, transport, "b", queues.Depth{Ready: 1})
		depth(t, transport, "c", queues.Depth{})

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
		depth(t, transport, "a", queues.Depth{Ready: 1})
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
	depth(t, transport, "q", queues.Depth{})
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
		depth(t, transport, "always", queues.Depth{Ready: 2000})
	})
}
