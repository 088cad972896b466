package suite

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// withholds gives some of what is received back to the queue, as prefetched
// messages are that no handler was free for, and has the queue count that as a
// failure.
func withholds(matches func(r *brokenReceiver) bool) changes {
	return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
		for {
			n, err := next(ctx, dst)
			if err != nil {
				return n, err
			}
			handed := dst[:0]
			for _, d := range dst[:n] {
				if !matches(r) {
					handed = append(handed, d)
				} else if err := d.(*brokenDelivery).Delivery.Abandon(context.Background(), nil); err != nil {
					return 0, err
				}
			}
			if len(handed) > 0 {
				return len(handed), nil
			}
		}
	}}
}

// eachNth is true each n-th time.
func eachNth(n int64) func() bool {
	var calls atomic.Int64
	return func() bool { return calls.Add(1)%n == 0 }
}

// withholdsWhenLowered does so with as many as MaxInFlight was lowered by.
func withholdsWhenLowered() changes {
	var mu sync.Mutex
	holds, excess := map[*brokenReceiver]int{}, map[*brokenReceiver]int{}
	c := withholds(func(r *brokenReceiver) bool {
		mu.Lock()
		defer mu.Unlock()
		excess[r]--
		return excess[r] >= 0
	})
	c.maxInFlight = func(r *brokenReceiver, n int, next func(int)) {
		mu.Lock()
		excess[r] = max(excess[r], 0) + max(holds[r]-n, 0)
		holds[r] = n
		mu.Unlock()
		next(n)
	}
	return c
}

var exactCountMutants = []mutant{
	{rule: "R1", name: "counts a prefetched message that it gave back", breaks: func() changes {
		now := eachNth(40)
		return withholds(func(*brokenReceiver) bool { return now() })
	}},
	{rule: "R1", name: "gives messages back, counted, when MaxInFlight is lowered", breaks: withholdsWhenLowered},
	{rule: "R1", name: "releases messages that are being handled when MaxInFlight is lowered", breaks: func() changes {
		var mu sync.Mutex
		held, taken := map[*brokenDelivery]bool{}, map[*brokenDelivery]bool{}
		lowest := map[*brokenReceiver]int{}
		return changes{
			bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
				mu.Lock()
				defer mu.Unlock()
				held[d] = true
				return next(ctx)
			},
			maxInFlight: func(r *brokenReceiver, n int, next func(int)) {
				mu.Lock()
				for d := range held {
					if d.receiver == r && n > 0 && n < lowest[r] {
						taken[d] = d.Delivery.Release(context.Background()) == nil
						delete(held, d)
					}
				}
				lowest[r] = n
				mu.Unlock()
				next(n)
			},
			settle: func(d *brokenDelivery, _ string, next func() error) error {
				mu.Lock()
				lost := taken[d]
				delete(held, d)
				mu.Unlock()
				if lost {
					return core.ErrLockLost
				}
				return next()
			},
		}
	}},
	{rule: "R1", name: "forgets a failure now and then", breaks: func() changes {
		now := eachNth(40)
		return settling("Abandon", func(d *brokenDelivery) error {
			if now() {
				return d.Delivery.Release(context.Background())
			}
			return d.Delivery.Abandon(context.Background(), d.cause)
		})
	}},
	{rule: "R1", name: "counts a failure twice now and then", breaks: func() changes {
		now := eachNth(40)
		var mu sync.Mutex
		surplus := map[string]int{}
		return changes{
			settle: func(d *brokenDelivery, operation string, next func() error) error {
				if operation == "Abandon" && now() {
					mu.Lock()
					surplus[d.in.NativeID]++
					mu.Unlock()
				}
				return next()
			},
			arrive: func(_ *brokenReceiver, in *core.Incoming) {
				mu.Lock()
				defer mu.Unlock()
				in.DeliveryCount += surplus[in.NativeID]
			},
		}
	}},
}
