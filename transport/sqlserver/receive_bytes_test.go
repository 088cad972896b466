package sqlserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

const mib = 1 << 20

// largeBody is a body of size bytes that PostgreSQL cannot compress much, another one for
// each id.
func largeBody(id, size int) []byte {
	body := make([]byte, size)
	x := uint64(id) + 1
	for i := range body {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		body[i] = byte(x)
	}
	return body
}

// orderBody puts a message with a body into the input queue.
func (e *business) orderBody(body []byte) {
	e.t.Helper()
	e.ordered++
	e.exec(`insert into `+inputQueue+` (headers, body) values ($1, $2)`,
		fmt.Sprintf(`{"NServiceBus.MessageId": "%d", "NServiceBus.EnclosedMessageTypes": "orders.Place", "NServiceBus.ContentType": "application/octet-stream"}`, e.ordered), body)
}

// openBounded opens a receiver whose fetches are bounded.
func openBounded(t *testing.T, transport core.Transport, maxBytes int) core.Receiver {
	t.Helper()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: inputQueue, Mode: core.TransactionReceiveOnly, MaxInFlight: 512, MaxReceiveBytes: maxBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func receiveAll(t *testing.T, r core.Receiver, places int) []core.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dst := make([]core.Delivery, places)
	n, err := r.Receive(ctx, dst)
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	return dst[:n]
}

// leased is how many messages of the input queue are leased, and their bytes.
func (e *business) leased() (messages, bytes int) {
	const from = ` from ` + inputQueue + ` where leased_until > now()`
	return e.number(`select count(*)` + from), e.number(`select coalesce(sum(octet_length(body)), 0)` + from)
}

func TestReceive_FetchesNoMoreThanMaxReceiveBytes(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, c := range []struct {
		name   string
		max    int
		claims []int // the messages that each Receive brings
	}{
		// In the order of the queue, five small ones and eight large ones.
		{"three large ones", 3 * mib, []int{5 + 3, 3, 2}},
		{"less than one", 10, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{"without bound", 0, []int{13}},
		{"all of them", 64 * mib, []int{13}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
			e.order(5)
			for i := range 8 {
				e.orderBody(largeBody(i, mib))
			}
			r := openBounded(t, open(t, e.transport), c.max)
			seen := 0
			for _, want := range c.claims {
				got := receiveAll(t, r, 64)
				if len(got) != want {
					t.Fatalf("after %d messages %d are received, want %d", seen, len(got), want)
				}
				if n, bytes := e.leased(); n != want || c.max > 0 && bytes > c.max+mib {
					t.Errorf("%d messages with %d bytes are leased, want %d and no more than %d bytes and one message", n, bytes, want, c.max)
				}
				for _, d := range got {
					in := d.Incoming()
					seen++
					body := []byte(fmt.Sprint(seen))
					if seen > 5 {
						body = largeBody(seen-6, mib)
					}
					if in.ID != fmt.Sprint(seen) || in.DeliveryCount != 1 || !bytes.Equal(in.Body, body) || in.Malformed != nil {
						t.Errorf("message %d has the id %s, the count %d and %d bytes (%v)", seen, in.ID, in.DeliveryCount, len(in.Body), in.Malformed)
					}
					complete(t, d)
				}
			}
			if n := e.waiting(); n != 0 {
				t.Errorf("%d messages are left", n)
			}
		})
	}
}

// Messages beyond a receiver's bytes are available to the others at once.
func TestReceive_ReleasesTheMessagesBeyondMaxReceiveBytes(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
	for i := range 4 {
		e.orderBody(largeBody(i, mib))
	}
	mine := openBounded(t, open(t, e.transport), 2*mib)
	theirs := openBounded(t, open(t, e.transport), 2*mib)
	first, second := receiveAll(t, mine, 64), receiveAll(t, theirs, 64)
	if len(first) != 2 || len(second) != 2 {
		t.Fatalf("the receivers have %d and %d messages, want 2 each", len(first), len(second))
	}
	for _, d := range append(first, second...) {
		if n := d.Incoming().DeliveryCount; n != 1 {
			t.Errorf("message %s has the count %d, want 1", d.Incoming().ID, n)
		}
		complete(t, d)
	}
}

// A message that failed keeps its last error, and an expired one is gone, at any size
// .
func TestReceive_LargeMessagesAreLikeOthers(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
	e.orderBody(largeBody(0, 9*mib))
	e.exec(`update ` + inputQueue + ` set expires = (now() - interval '1 minute') at time zone 'utc'`)
	e.orderBody(largeBody(1, 9*mib))
	r := openBounded(t, open(t, e.transport), 1)
	d := receiveAll(t, r, 8)[0]
	if err := d.Abandon(t.Context(), errors.New("no stock")); err != nil {
		t.Fatal(err)
	}
	redelivered := receiveAll(t, r, 8)[0]
	in := redelivered.Incoming()
	if in.ID != "2" || in.DeliveryCount != 2 || in.LastError != "no stock" || !in.Redelivered || !bytes.Equal(in.Body, largeBody(1, 9*mib)) {
		t.Errorf("message %s has the count %d, the last error %q and %d bytes", in.ID, in.DeliveryCount, in.LastError, len(in.Body))
	}
	complete(t, redelivered)
	await(t, "the expired one is removed", func() bool { return e.waiting() == 0 })
}

// The endpoint has handled small messages fast, so that it fetches hundreds, and then
// large ones come, whose handlers take their time.
func TestPrefetchBytes_BoundsLeasedMessages(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const slots, small, large, limit = 4, 3000, 100, 64 * mib // most is fixed in core
	e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
	e.config.Concurrency = slots
	var handled, waiting atomic.Int64
	gate := make(chan struct{})
	e.handle = func(ctx context.Context, _ *core.Message, body []byte) error {
		if len(body) == mib {
			waiting.Add(1)
			defer waiting.Add(-1)
			select {
			case <-gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		handled.Add(1)
		return nil
	}
	e.order(small)
	e.run()
	await(t, "the small messages are handled", func() bool { return handled.Load() == small })
	// All at once: the endpoint meets them in one fetch.
	e.exec(`insert into `+inputQueue+` (headers, body)
select '{"NServiceBus.MessageId": "large ' || i || '", "NServiceBus.EnclosedMessageTypes": "orders.Place", "NServiceBus.ContentType": "application/octet-stream"}', $2
from generate_series(1, $1::int) as i`, large, largeBody(0, mib))
	await(t, "all handlers have a large message", func() bool { return waiting.Load() == slots })
	prefetched := 0
	for range 100 { // whenever one looks
		_, bytes := e.leased()
		prefetched = max(prefetched, bytes-slots*mib)
	}
	if prefetched > limit+mib {
		t.Errorf("%d bytes are prefetched, want at most %d and one message of %d", prefetched, limit, mib)
	}
	close(gate)
	e.awaitDone()
	if n := handled.Load(); n != small+large {
		t.Errorf("%d messages were handled, want %d", n, small+large)
	}
	if n := e.number(`select count(*) from ` + errorQueue); n != 0 {
		t.Errorf("%d messages were moved to the error queue", n)
	}
}

// A message takes longer to arrive than a lease lasts. The lease is renewed while it does,
// with those of the messages that came with it.
func TestReceive_RenewsLeasesDuringALongTransfer(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const lease = 24 * time.Second
	e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
	e.order(1)
	e.orderBody(largeBody(1, 56*mib))
	e.transport.Lease = lease
	r := openBounded(t, open(t, e.transport), 64*mib)
	other := openBounded(t, open(t, sqlserver.Config{URL: e.broker.server.PasswordURL(e.broker.database)}), 64*mib)
	e.broker.proxy.Throttle(3 * mib / 2) // more than a connection must transfer
	began := time.Now()
	got := make(chan []core.Delivery, 1)
	go func() {
		dst := make([]core.Delivery, 8)
		n, err := r.Receive(t.Context(), dst)
		if err != nil {
			t.Error(err)
		}
		got <- dst[:n]
	}()
	await(t, "the messages are leased", func() bool { n, _ := e.leased(); return n == 2 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stolen := make(chan int, 1)
	go func() {
		n, _ := other.Receive(ctx, make([]core.Delivery, 8))
		stolen <- n
	}()
	const leasedFor = `select (extract(epoch from min(leased_until) - $1::timestamptz) * 1000)::bigint from ` + inputQueue
	await(t, "the leases are renewed before the large message has arrived", func() bool {
		if len(got) > 0 {
			t.Fatal("both have arrived, and nothing was renewed")
		}
		return time.Duration(e.number(leasedFor, began))*time.Millisecond > lease+lease/4
	})
	all := next(t, "both messages arrive", got)
	if took := time.Since(began); took < lease {
		t.Fatalf("the transfer takes %v, too short for this test", took)
	}
	if len(all) != 2 {
		t.Fatalf("%d messages are received, want 2", len(all))
	}
	e.broker.proxy.Throttle(0)
	for _, d := range all {
		complete(t, d)
	}
	cancel()
	if n := next(t, "the other receiver ends", stolen); n != 0 {
		t.Errorf("another receiver got %d of the messages", n)
	}
}

// A claim itself may take long: the leases begin when it has ended.
func TestReceive_BeginsLeasesWhenTheMessagesHaveArrived(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const lease = 12 * time.Second
	e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
	for i := range 8 {
		e.orderBody(largeBody(i, mib/2))
	}
	e.transport.Lease = lease
	r := openBounded(t, open(t, e.transport), 64*mib)
	e.broker.proxy.Throttle(mib / 4)
	began := time.Now()
	got := receiveAll(t, r, 8)
	if took := time.Since(began); took < lease || len(got) != 8 {
		t.Fatalf("%d messages take %v, want 8 in more than %v", len(got), took, lease)
	}
	e.broker.proxy.Throttle(0)
	for _, d := range got {
		complete(t, d)
	}
}
