package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

var placesMutants = []mutant{
	{rule: "C3", name: "keeps the place of a delivery whose lock has ended", on: withLocks, breaks: keepsLostPlaces},
	{rule: "C6", name: "keeps the places of what it held when its connection was lost", onServer: true, breaks: keepsLostPlaces},
	{rule: "C6", name: "has more places after an outage than before", onServer: true, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrLockLost) {
				d.receiver.Receiver.SetMaxInFlight(d.receiver.cfg.MaxInFlight + 1)
			}
			return err
		}}
	}},
	{rule: "C3", name: "frees the place of a lost delivery once more when it is settled late", on: withLocks, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrLockLost) {
				d.receiver.Receiver.SetMaxInFlight(d.receiver.cfg.MaxInFlight + 1)
			}
			return err
		}}
	}},
}

// keepsLostPlaces frees the place of a delivery by its settlement alone.
func keepsLostPlaces() changes {
	var mu sync.Mutex
	taken := map[*brokenReceiver]int{}
	places := map[*brokenReceiver]int{}
	closed := map[*brokenReceiver]bool{}
	free := func(r *brokenReceiver) (n int, is bool) {
		mu.Lock()
		defer mu.Unlock()
		if _, set := places[r]; !set {
			places[r] = r.cfg.MaxInFlight
		}
		n = places[r] - taken[r]
		return n, n > 0 || closed[r] || r.cfg.Mode == core.TransactionNone
	}
	return changes{
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			for {
				if _, is := free(r); is {
					break
				}
				select {
				case <-ctx.Done():
					return 0, ctx.Err()
				case <-time.After(10 * time.Millisecond):
				}
			}
			n, err := next(ctx, dst)
			mu.Lock()
			defer mu.Unlock()
			taken[r] += n
			return n, err
		},
		maxInFlight: func(r *brokenReceiver, n int, next func(int)) {
			mu.Lock()
			places[r] = n
			mu.Unlock()
			next(n)
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if err == nil && operation != "Renew" && operation != "Reset" {
				mu.Lock()
				taken[d.receiver]--
				mu.Unlock()
			}
			return err
		},
		closeReceiver: func(r *brokenReceiver, next func() error) error {
			mu.Lock()
			closed[r] = true
			mu.Unlock()
			return next()
		},
	}
}
