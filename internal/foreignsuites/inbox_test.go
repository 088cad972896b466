package foreignsuites

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type order struct{ ID string }

var (
	place = core.NewMessageType[order]("orders.place")
	ship  = core.NewMessageType[order]("orders.ship")
)

// database stands for tables: it survives the processes that use it.
type database struct {
	mu      sync.Mutex
	handled map[string][]core.Outgoing // by id of a message: the messages of its handler that are not known to be sent
	placed  []string                   // the handler's own rows
}

// inbox is the middleware of an inbox as another project can write it, on messagekit alone.
type inbox struct{ db *database }

func (i inbox) middleware(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		id, sent := messagekit.SentID(m)
		if !sent {
			return core.GiveUp(errors.New("the message has no id of its sender"))
		}
		i.db.mu.Lock() // the transaction of the handler, in which it is alone
		defer i.db.mu.Unlock()
		unsent, duplicate := i.db.handled[id]
		if duplicate {
			messagekit.MarkDuplicate(m)
			if err := messagekit.Resend(m, unsent...); err != nil {
				return err
			}
		} else {
			if err := next(ctx, m); err != nil {
				return err
			}
			i.db.handled[id] = messagekit.Collected(m)
		}
		return messagekit.Commit(m, messagekit.Collected(m), func() {
			i.db.mu.Lock()
			defer i.db.mu.Unlock()
			i.db.handled[id] = nil
		})
	}
}

// handle runs a process with an endpoint "orders" until done is closed, which it does itself
// when it has handled count messages. It returns which of them were duplicates.
func (db *database) handle(t *testing.T, on core.Transport, done chan struct{}, count int) (duplicates []bool) {
	t.Helper()
	ep, err := core.New("orders", on, core.Config{
		Transactions:   core.TransactionReceiveOnly,
		Logger:         slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}},
		Middleware:     []core.Middleware{core.MiddlewareFunc(inbox{db}.middleware)},
		Concurrency:    1,
		Observers: []core.Observer{{Succeeded: func(_ context.Context, e core.Handling) {
			if duplicates = append(duplicates, e.Duplicate); len(duplicates) == count {
				close(done)
			}
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, place, func(_ context.Context, m *core.Message, body order) error {
		db.placed = append(db.placed, body.ID)
		return m.Send("shipping", ship.Of(body))
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	select {
	case <-done:
	case err := <-ended:
		t.Fatalf("the endpoint ended before it was done: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return duplicates
}

// prepareOrders returns a transport with the queues, a database, and a function that sends
// the order with one id.
func prepareOrders(t *testing.T) (broker *inmemory.Transport, db *database, send func()) {
	broker = inmemory.Open()
	closed(t, broker, nil)
	if err := broker.Provision(t.Context(), core.Topology{Queues: []string{"orders", "shipping", "error"}}); err != nil {
		t.Fatal(err)
	}
	shop, err := core.New("shop", broker, core.Config{SendOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return broker, &database{handled: map[string][]core.Outgoing{}}, func() {
		t.Helper()
		if err := shop.Send(t.Context(), "orders", place.Of(order{"7"}).With(core.SendOptions{ID: "place-7"})); err != nil {
			t.Fatal(err)
		}
	}
}

// checkShipped checks that the order was placed once, and shipped by this number of messages
// with the same id and body.
func checkShipped(t *testing.T, broker *inmemory.Transport, db *database, messages int) {
	t.Helper()
	if !slices.Equal(db.placed, []string{"7"}) {
		t.Errorf("orders were placed %q, want one, once", db.placed)
	}
	page, err := broker.Browse(t.Context(), queues.Request{Queue: "shipping", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	shipped := page.Messages
	if len(shipped) != messages {
		t.Fatalf("%d messages were sent to shipping, want %d", len(shipped), messages)
	}
	for _, m := range shipped {
		if m.ID != shipped[0].ID || string(m.Body) != `{"ID":"7"}` {
			t.Errorf("message %q with body %s was sent, want %q with that of the order", m.ID, m.Body, shipped[0].ID)
		}
	}
}

func TestForeignInbox_DuplicateIsNotHandledAgain(t *testing.T) {
	broker, db, send := prepareOrders(t)
	send()
	send()
	if duplicates := db.handle(t, broker, make(chan struct{}), 2); !slices.Equal(duplicates, []bool{false, true}) {
		t.Errorf("messages are duplicates: %v, want the second one alone", duplicates)
	}
	checkShipped(t, broker, db, 1)
}

func TestForeignInbox_CrashBeforeSettlementSendsAgain(t *testing.T) {
	broker, db, send := prepareOrders(t)
	send()
	dying := &dyingTransport{Transport: broker, died: make(chan struct{})}
	if duplicates := db.handle(t, dying, dying.died, 0); duplicates != nil {
		t.Errorf("the process has handled messages: %v", duplicates)
	}
	checkShipped(t, broker, db, 1)
	if duplicates := db.handle(t, broker, make(chan struct{}), 1); !slices.Equal(duplicates, []bool{true}) {
		t.Errorf("messages are duplicates: %v, want the redelivered one", duplicates)
	}
	checkShipped(t, broker, db, 2)
}

// dyingTransport is that of a process that dies when the broker has accepted its first send:
// the process never knows it, and settles nothing.
type dyingTransport struct {
	*inmemory.Transport
	once sync.Once
	died chan struct{}
}

func (d *dyingTransport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	err := core.ErrUnavailable
	d.once.Do(func() {
		if failed := d.Transport.Send(ctx, msgs...); failed != nil {
			err = failed
		}
		close(d.died)
	})
	return err
}

func (d *dyingTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := d.Transport.OpenReceiver(ctx, cfg)
	return dyingReceiver{r}, err
}

type dyingReceiver struct{ core.Receiver }

func (d dyingReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := d.Receiver.Receive(ctx, dst)
	for i, delivery := range dst[:n] {
		dst[i] = dyingDelivery{delivery}
	}
	return n, err
}

// dyingDelivery is redelivered when its receiver is closed.
type dyingDelivery struct{ core.Delivery }

func (dyingDelivery) Complete(context.Context) error       { return core.ErrLockLost }
func (dyingDelivery) Abandon(context.Context, error) error { return core.ErrLockLost }
func (dyingDelivery) Release(context.Context) error        { return core.ErrLockLost }
