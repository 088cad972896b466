package rabbitmq

import (
	"context"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/acks"
)

// unconnected is a transport that reaches no broker.
func unconnected(t *testing.T) *Transport {
	t.Helper()
	transport, err := Open("amqp://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := transport.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// A message wakes up one of several calls of Receive, and the next one if that call has
// just been canceled.
func TestReceive_OneOfSeveralWakesUp(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	r := newReceiver(transport, "billing", core.ReceiverConfig{Queue: "billing", MaxInFlight: 1 << 20})
	c := &consumerChannel{r: r, acks: acks.New()}
	r.channel = c
	consumer := &consumer{}
	arrived := uint64(0)
	arrive := func() {
		arrived++
		r.addDelivery(c, consumer, &amqp.Delivery{DeliveryTag: arrived, Body: []byte("x")})
	}
	for round := range 5_000 {
		ctx, cancel := context.WithCancel(t.Context())
		var fickle int
		var patient error
		var first, second sync.WaitGroup
		first.Go(func() { fickle, _ = r.Receive(ctx, make([]core.Delivery, 1)) })
		second.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			_, patient = r.Receive(ctx, make([]core.Delivery, 1))
		})
		first.Go(cancel)
		arrive()
		if first.Wait(); fickle > 0 {
			arrive()
		}
		if second.Wait(); patient != nil {
			t.Fatalf("round %d: a message arrived and no receiver was woken: %v", round, patient)
		}
	}
}

// SetUser makes a transport take a name for that of its user.
func SetUser(t *Transport, name string) { t.format.SetUser(name) }
