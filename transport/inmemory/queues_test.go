package inmemory_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func ofGroup(body string) core.Outgoing {
	m := message("q", body)
	m.GroupKey = "g"
	return m
}

func TestBrowse_ShowsStatesInTheOrderOfSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		send(t, transport, message("q", "1"), message("q", "2"), ofGroup("3"), ofGroup("4"), delayed(message("q", "5"), time.Hour, 0))
		r := receiver(t, transport, "q", core.TransactionReceiveOnly, 3)
		first, _, third := receive(t, r, "1"), receive(t, r, "2"), receive(t, r, "3")
		succeed(t, first.Abandon(t.Context(), errors.New("no")))
		succeed(t, third.Postpone(t.Context(), time.Minute, nil))
		var got []string
		for _, m := range browse(t, transport, "q") {
			line := fmt.Sprintf("%s %v %d %q", m.Body, m.State, m.DeliveryCount, m.LastError)
			if !m.DueAt.IsZero() {
				line += fmt.Sprint(" in ", time.Until(m.DueAt))
			}
			got = append(got, line)
		}
		want := []string{
			`1 ready 1 "no"`, `2 locked 1 ""`, `3 delayed 0 "" in 1m0s`, `4 ready 0 ""`, `5 delayed 0 "" in 1h0m0s`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("shown are %q, want %q", got, want)
		}
	})
}

// Rule C36.
func TestDepth_CountsGroupsReceiversAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		start := time.Now()
		for range 3 {
			m := ofGroup("g")
			m.Delay = time.Minute
			send(t, transport, m)
			time.Sleep(time.Minute)
		}
		receive(t, receiver(t, transport, "q", core.TransactionReceiveOnly, 3), "g")
		got, err := transport.Depth(t.Context(), "q")
		if want := (queues.Depth{Ready: 2, Locked: 1, Receivers: 1, Exact: true, Oldest: start}); err != nil || got != want {
			t.Errorf("depth is %+v, %v; want %+v", got, err, want)
		}
	})
}

// Rule C34. A message that waits for others of its group can be taken, and so can the first one.
func TestTake_FromGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		for i := range 100 {
			send(t, transport, ofGroup(fmt.Sprint(i)))
		}
		r := receiver(t, transport, "q", core.TransactionReceiveOnly, 2)
		d := receive(t, r, "0")
		var takes []queues.Take
		for i, m := range browse(t, transport, "q") {
			if i%3 != 0 {
				takes = append(takes, queues.Take{Key: m.Key})
			}
		}
		results, err := transport.Take(t.Context(), "q", takes)
		succeed(t, err)
		for i, result := range results {
			if result.State != queues.TakeDone {
				t.Fatalf("result %d is %v", i, result)
			}
		}
		depth(t, transport, "q", queues.Depth{Ready: 33, Locked: 1})
		receiveNothing(t, r)
		succeed(t, d.Complete(t.Context()))
		first := queues.Take{Key: browse(t, transport, "q")[0].Key, Out: []core.Outgoing{ofGroup("back")}}
		results, err = transport.Take(t.Context(), "q", []queues.Take{first})
		if err != nil || results[0].State != queues.TakeDone {
			t.Fatal(results, err)
		}
		for i := 6; i < 100; i += 3 {
			succeed(t, receive(t, r, fmt.Sprint(i)).Complete(t.Context()))
		}
		succeed(t, receive(t, r, "back").Complete(t.Context()))
		depth(t, transport, "q", queues.Depth{})
	})
}

func TestQueues_WithoutCapabilityAreRefused(t *testing.T) {
	transport := open(t, inmemory.LikeSQS(), "q")
	_, err := transport.Take(t.Context(), "q", nil)
	failWith(t, err, errors.ErrUnsupported)
	_, err = transport.Browse(t.Context(), queues.Request{Queue: "q", Limit: 1})
	failWith(t, err, errors.ErrUnsupported)
}

// Rules C31, C34. Looks and takes beside a sender and a receiver: each message ends once.
func TestQueues_ConcurrentLooksAndTakes(t *testing.T) {
	const total = 4000
	transport := open(t, inmemory.Config{}, "q", "taken")
	r := receiver(t, transport, "q", core.TransactionReceiveOnly, 8)
	var all sync.WaitGroup
	all.Go(func() {
		for i := range total {
			if err := transport.Send(t.Context(), message("q", fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		}
	})
	var mu sync.Mutex
	ended := map[string]int{}
	end := func(body []byte) {
		mu.Lock()
		defer mu.Unlock()
		if ended[string(body)]++; len(ended) == total {
			_ = r.Close(t.Context())
		}
	}
	finished := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ended) == total
	}
	all.Go(func() {
		dst := make([]core.Delivery, 8)
		for round := 0; ; round++ {
			n, err := r.Receive(t.Context(), dst)
			if err != nil {
				return // it was closed
			}
			for i, d := range dst[:n] {
				if (round+i)%3 == 0 {
					err = d.Abandon(t.Context(), nil)
				} else if err = d.Complete(t.Context()); err == nil {
					end(d.Incoming().Body)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
	all.Go(func() {
		for !finished() && !t.Failed() {
			seen := map[string]bool{}
			for r, more := (queues.Request{Queue: "q", Limit: 7}), true; more; more = r.After != "" {
				page, err := transport.Browse(t.Context(), r)
				if err != nil {
					t.Error(err)
				}
				var takes []queues.Take
				for i, m := range page.Messages {
					if seen[m.Key] {
						t.Errorf("a look showed %s twice", m.Body)
					}
					seen[m.Key] = true
					if i%2 == 0 {
						takes = append(takes, queues.Take{Key: m.Key, Out: []core.Outgoing{message("taken", string(m.Body))}})
					}
				}
				results, err := transport.Take(t.Context(), "q", takes)
				if err != nil {
					t.Error(err)
				}
				for i, result := range results {
					if result.State == queues.TakeDone {
						end(takes[i].Out[0].Body)
					}
				}
				r.After = page.Next
			}
		}
	})
	all.Wait()
	for body, n := range ended {
		if n != 1 {
			t.Errorf("%s ended %d times", body, n)
		}
	}
	depth(t, transport, "q", queues.Depth{})
}
