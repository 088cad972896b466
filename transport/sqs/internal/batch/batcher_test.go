package batch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

const requestTime = time.Second

// recorded returns a batcher whose requests take requestTime, and the sizes of its requests in the order in which they
// left. It may change while no request leaves.
func recorded(t *testing.T) (*Batcher[string], *[]int) {
	life := transport.NewLifecycle()
	t.Cleanup(func() { life.Close(context.Background(), nil) })
	var sizes []int
	b := &Batcher[string]{Life: life, Runners: NewRunners(life), Partly: 1, MaxConcurrent: 8, Timeout: time.Minute}
	b.Added = func(*Entry[string]) {}
	b.Do = func(_ context.Context, entries []*Entry[string]) {
		b.mu.Lock()
		sizes = append(sizes, len(entries))
		b.mu.Unlock()
		time.Sleep(requestTime)
	}
	return b, &sizes
}

// entries returns n entries of some bytes each.
func entries(n, bytes int) []*Entry[string] {
	all := make([]*Entry[string], n)
	for i := range all {
		all[i] = &Entry[string]{Bytes: bytes}
	}
	return all
}

func TestBatcher_SizesOfRequests(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Batcher[string])
		entries []*Entry[string]
		want    []int
	}{
		"one leaves at once":           {entries: entries(1, 1), want: []int{1}},
		"full ones leave at once":      {entries: entries(25, 1), want: []int{10, 10, 5}},
		"no more than Most":            {change: func(b *Batcher[string]) { b.MaxConcurrent = 1 }, entries: entries(25, 1), want: []int{10}},
		"bytes fill a request":         {change: func(b *Batcher[string]) { b.MaxBytes = 100 }, entries: entries(5, 40), want: []int{2, 2, 1}},
		"a large one leaves alone":     {change: func(b *Batcher[string]) { b.MaxBytes = 100 }, entries: entries(2, 200), want: []int{1, 1}},
		"a worthwhile one waits":       {change: func(b *Batcher[string]) { b.Linger, b.Worthwhile = time.Hour, func(int) bool { return true } }, entries: entries(13, 1), want: []int{10}},
		"without others none waits":    {change: func(b *Batcher[string]) { b.Linger, b.Worthwhile = time.Hour, func(int) bool { return false } }, entries: entries(3, 1), want: []int{3}},
		"the end of Linger ends it":    {change: func(b *Batcher[string]) { b.Linger, b.Worthwhile = requestTime/4, func(int) bool { return true } }, entries: entries(3, 1), want: []int{3}},
		"Partly bounds those not full": {change: func(b *Batcher[string]) { b.Partly = 0 }, entries: entries(12, 1), want: []int{10}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, sizes := recorded(t)
				if c.change != nil {
					c.change(b)
				}
				b.Add(c.entries...)
				time.Sleep(requestTime / 2)
				synctest.Wait()
				b.mu.Lock()
				got := slices.Sorted(slices.Values(*sizes))
				b.stopTimerLocked()
				b.mu.Unlock()
				slices.Sort(c.want)
				if !slices.Equal(got, c.want) {
					t.Errorf("requests of %v entries, want %v", got, c.want)
				}
			})
		})
	}
}

func TestAwait_OutcomeOfAnEntry(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		queued  bool // behind another request
		err     error
		timeout time.Duration // of the caller
		grace   time.Duration
		want    error
		begun   bool
	}{
		"succeeds":                         {timeout: time.Minute, begun: true},
		"is refused":                       {err: refused, timeout: time.Minute, want: refused, begun: true},
		"the caller leaves before it":      {queued: true, timeout: requestTime / 2, grace: time.Minute, want: context.DeadlineExceeded},
		"the caller leaves after it":       {timeout: requestTime / 2, want: context.DeadlineExceeded, begun: true},
		"it ends within the time of grace": {err: refused, timeout: requestTime / 2, grace: time.Minute, want: refused, begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := recorded(t)
				do := b.Do
				b.Do = func(ctx context.Context, all []*Entry[string]) {
					do(ctx, all)
					for _, e := range all {
						e.Err = c.err
					}
				}
				if c.queued {
					b.Add(entries(1, 1)...)
				}
				e := &Entry[string]{}
				b.Add(e)
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				if err, begun := b.Await(ctx, e, c.grace); !errors.Is(err, c.want) || begun != c.begun {
					t.Errorf("%v, begun: %t, want %v, %t", err, begun, c.want, c.begun)
				}
			})
		})
	}
}

func TestAdd_AfterCloseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := recorded(t)
		b.Life.Close(context.Background(), nil)
		e := &Entry[string]{}
		b.Add(e)
		if err, _ := b.Await(t.Context(), e, 0); !errors.Is(err, core.ErrClosed) {
			t.Errorf("%v, want %v", err, core.ErrClosed)
		}
	})
}

// A request goes on for a caller that still waits, and ends when none does.
func TestCancel_EndsTheRequestWithItsLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := recorded(t)
		b.Do = func(ctx context.Context, all []*Entry[string]) {
			<-ctx.Done()
			for _, e := range all {
				e.Err = ctx.Err()
			}
		}
		b.Timeout = time.Hour
		both := entries(2, 1)
		b.Add(both...)
		synctest.Wait()
		for i, e := range both {
			b.Cancel(e)
			synctest.Wait()
			select {
			case <-e.done:
				if i == 0 || !errors.Is(e.Err, context.Canceled) {
					t.Errorf("after caller %d has left the request ended: %v", i+1, e.Err)
				}
			default:
				if i == 1 {
					t.Error("the request goes on for no caller")
				}
			}
		}
	})
}
