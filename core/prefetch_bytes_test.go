package core_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

const kib = 1 << 10

// prefetchBytes runs an endpoint that has handled many small messages quickly, and then
// gets large ones whose handlers wait until release. It returns how many are in flight
// with four in handlers.
func prefetchBytes(fx *fixture, limit, large, body int) (inFlight int, release func()) {
	const slots = 4
	var handled atomic.Int64
	gate := make(chan struct{})
	ep := fx.newEndpoint("orders", core.Config{Concurrency: slots})
	core.LimitPrefetchBytes(ep, limit)
	fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
		if len(m.RawBody()) >= body {
			<-gate
		}
		handled.Add(1)
		return nil
	})
	fx.run(ep)
	const small = 3000
	for i := range small {
		fx.send(order(fmt.Sprint("small", i)))
	}
	fx.advance(time.Second)
	equal(fx, "small messages handled", handled.Load(), small)
	msgs := make([]core.Outgoing, large)
	all := bytes.Repeat([]byte("x"), body)
	for i := range msgs {
		msgs[i] = order(fmt.Sprint("large", i))
		msgs[i].Body = all
	}
	fx.send(msgs...)
	synctest.Wait()
	return fx.depth("orders").Locked, func() {
		close(gate)
		fx.advance(time.Second)
		equal(fx, "messages handled in the end", handled.Load(), int64(small+large))
		fx.wantDepth("orders", 0)
	}
}

func TestPrefetchBytes_BoundsLargeMessagesAfterSmallOnes(t *testing.T) {
	if testing.Short() {
		t.Skip("large messages: not in short runs")
	}
	t.Parallel()
	for _, c := range []struct {
		max, body int
		min, upTo int // messages beside those in handlers
	}{
		{max: 1024 * kib, body: 100 * kib, min: 6, upTo: 11},
		{max: 10 * kib, body: 100 * kib, min: 0, upTo: 1},
		{max: 1, body: 100 * kib, min: 0, upTo: 1},
		{max: 64 << 20, body: 100 * kib, min: 56, upTo: 56},
		{max: 0, body: 1536 * kib, min: 56, upTo: 56}, // 84 MiB
	} {
		t.Run(fmt.Sprint(c.max), func(t *testing.T) {
			inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				inFlight, release := prefetchBytes(fx, c.max, 60, c.body)
				if prefetched := inFlight - 4; prefetched < c.min || prefetched > c.upTo {
					fx.Errorf("%d messages of %d bytes are prefetched, want %d to %d", prefetched, c.body, c.min, c.upTo)
				}
				release()
			})
		})
	}
}

// One large message among small ones delays no prefetching for long.
func TestPrefetchBytes_SmallMessagesArePrefetchedAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("6,000 messages: not in short runs")
	}
	t.Parallel()
	inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		_, release := prefetchBytes(fx, 256*kib, 60, 100*kib)
		release()
		if highest := fx.newestMaxInFlight(); highest > 4+4+4 {
			fx.Errorf("MaxInFlight is %d after large messages, want no more than a few ahead of 4", highest)
		}
		for i := range 3000 {
			fx.send(order(fmt.Sprint("small again", i)))
		}
		fx.advance(time.Second)
		equal(fx, "MaxInFlight after small messages", fx.newestMaxInFlight(), 4+1024+1024)
	})
}

// A broker that delivers all available messages learns of a bound for one Receive.
func TestPrefetchBytes_IsHalvedForOneReceive(t *testing.T) {
	for _, c := range []struct {
		config     core.Config
		prefetched bool
		want       int
	}{
		{core.Config{}, true, 32 << 20},
		{core.Config{}, false, 0},
		{core.Config{Transactions: core.TransactionNone}, true, 0},
	} {
		bubbleWith(t, withCapabilities(func(caps *core.Capabilities) { caps.Prefetch = c.prefetched }), func(fx *fixture) {
			if c.config.Transactions == core.TransactionDefault {
				c.config.Transactions = core.TransactionReceiveOnly
			}
			fx.runOrders(c.config, func(context.Context, *core.Message) error { return nil })
			for _, got := range fx.broker.receiveBytes.all() {
				equal(fx, "MaxReceiveBytes", got, c.want)
			}
		})
	}
}
