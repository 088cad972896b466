package concepts_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: web
// Web is one instance of a website, which answers requests when the replies to its commands
// have arrived.
type Web struct {
	web     *core.Endpoint // receives from the queue that all instances share
	replies *core.Endpoint // receives the replies to this instance
	waiting sync.Map       // a chan Accepted by the id of the command
}

func newWeb(transport core.Transport) (*Web, error) {
	w := &Web{}
	var err error
	if w.web, err = core.New("web", transport, core.Config{}); err != nil {
		return nil, err
	}
	pod := os.Getenv("POD_NAME") // of a StatefulSet: it stays
	w.replies, err = core.New("web-replies", transport, core.Config{
		Instance:    pod,
		InputQueue:  "web-replies-" + pod,
		Provision:   core.ProvisionAlways,
		QueueExpiry: 7 * 24 * time.Hour, // the broker deletes the queue of a pod that does not return
	})
	if err != nil {
		return nil, err
	}
	core.Handle(w.replies, accepted, w.accepted) // Handle, not HandleEvent
	return w, nil
}

func (w *Web) run(ctx context.Context) error { return core.RunAll(ctx, w.web, w.replies) }

// place sends a command, and returns the reply to it.
func (w *Web) place(ctx context.Context, order PlaceOrder) (Accepted, error) {
	reply, id := make(chan Accepted, 1), "place-"+order.ID
	w.waiting.Store(id, reply)
	defer w.waiting.Delete(id)
	err := w.web.Send(ctx, "orders", place.Of(order).With(core.SendOptions{
		ID:      id,
		ReplyTo: w.replies.Config().InputQueue, // the reply comes to this process
	}))
	if err != nil {
		return Accepted{}, err
	}
	select {
	case accepted := <-reply:
		return accepted, nil
	case <-ctx.Done():
		return Accepted{}, ctx.Err()
	}
}

func (w *Web) accepted(ctx context.Context, m *core.Message, body Accepted) error {
	reply, ok := w.waiting.LoadAndDelete(m.Headers.Get(headers.RelatedTo))
	if !ok { // the request has ended, or this process has started since
		return tellByMail(ctx, body)
	}
	reply.(chan Accepted) <- body
	return nil
}

// end

// mailed has the orders that tellByMail was called with.
var mailed struct {
	sync.Mutex
	orders []string
}

func tellByMail(_ context.Context, a Accepted) error {
	mailed.Lock()
	defer mailed.Unlock()
	mailed.orders = append(mailed.orders, a.ID)
	return nil
}

// takeMailed returns the orders that tellByMail was called with since the last call.
func takeMailed() []string {
	mailed.Lock()
	defer mailed.Unlock()
	orders := mailed.orders
	mailed.orders = nil
	return orders
}

// startWeb runs an instance until stop is called.
func startWeb(t *testing.T, transport core.Transport, pod string) (w *Web, stop func()) {
	t.Helper()
	t.Setenv("POD_NAME", pod)
	w, err := newWeb(transport)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- w.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	<-w.replies.Ready()
	<-w.web.Ready()
	return w, stop
}

func TestReplies_ReachTheInstanceThatAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		t.Cleanup(func() { transport.Close(context.Background()) })
		start(t, "orders", transport, core.Config{}, registerOrders)
		takeMailed()
		var all sync.WaitGroup
		for _, pod := range []string{"pod-0", "pod-1"} {
			w, _ := startWeb(t, transport, pod)
			for i := range 50 {
				all.Go(func() {
					order := PlaceOrder{ID: fmt.Sprint(pod, " ", i)}
					if got, err := w.place(t.Context(), order); err != nil || got.ID != order.ID {
						t.Errorf("the reply to %v is %v, %v", order, got, err)
					}
				})
			}
		}
		all.Wait()
		if orders := takeMailed(); len(orders) > 0 {
			t.Errorf("replies without a request: %q", orders)
		}
	})
}

func TestReplies_WaitForTheInstanceThatRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		transport := inmemory.Open()
		t.Cleanup(func() { transport.Close(context.Background()) })
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"orders"}}); err != nil {
			t.Fatal(err)
		}
		takeMailed()
		startWeb(t, transport, "pod-1")
		w, stop := startWeb(t, transport, "pod-0")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if _, err := w.place(ctx, PlaceOrder{ID: fmt.Sprint(i)}); err == nil {
					t.Error("there is a reply, although no handler has run")
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		stop()
		start(t, "orders", transport, core.Config{}, registerOrders)
		synctest.Wait()
		if waiting, err := transport.Depth(t.Context(), "web-replies-pod-0"); err != nil || waiting.Ready != n {
			t.Fatalf("%d replies wait for pod-0, %v", waiting.Ready, err)
		}
		if orders := takeMailed(); len(orders) > 0 {
			t.Errorf("another instance got the replies %q", orders)
		}
		startWeb(t, transport, "pod-0")
		synctest.Wait()
		orders := takeMailed()
		slices.Sort(orders)
		if len(orders) != n || len(slices.Compact(orders)) != n {
			t.Errorf("pod-0 got the replies %q when it ran again, want %d", orders, n)
		}
	})
}
