package sqlserver_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A receiver that is closed gives its messages back in their order, and no delivery counts.
func TestHeldLook_OrderAndCount(t *testing.T) {
	t.Parallel()
	bothLayouts(t, func(t *testing.T, _ *testDatabase, transport *sqlserver.Transport) {
		const n = 30
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("%02d ready", i))
			send(t, transport, core.Outgoing{ID: fmt.Sprintf("%02d", i), Queue: "orders"})
		}
		for _, held := range []int{n, 10, n} {
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: held})
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]core.Delivery, held)
			for came := 0; came < held; {
				got, err := r.Receive(t.Context(), dst[came:])
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range dst[came : came+got] {
					if in := d.Incoming(); in.DeliveryCount != 1 {
						t.Errorf("message %s is delivery %d", in.ID, in.DeliveryCount)
					}
				}
				came += got
			}
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 100})
			if got := statesOf(all); !slices.Equal(got, want) {
				t.Errorf("after a look at %d messages: %q", held, got)
			}
		}
	})
}
