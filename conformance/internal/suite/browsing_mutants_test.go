package suite

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

type nextPage func(r queues.Request) (queues.Page, error)

// onBrowse makes changes of a function that replaces Browse.
func onBrowse(browse func(t *brokenTransport, r queues.Request, next nextPage) (queues.Page, error)) func() changes {
	return func() changes {
		return changes{browse: func(t *brokenTransport, r queues.Request, next func(queues.Request) (queues.Page, error)) (queues.Page, error) {
			return browse(t, r, next)
		}}
	}
}

// afterLook does something with each message that was shown, once for each key.
func afterLook(do func(t *brokenTransport, queue string, m queues.Message)) func() changes {
	return func() changes {
		var done sync.Map
		return changes{browse: func(t *brokenTransport, r queues.Request, next func(queues.Request) (queues.Page, error)) (queues.Page, error) {
			page, err := next(r)
			for _, m := range page.Messages {
				if _, has := done.LoadOrStore(m.Key, true); !has {
					do(t, r.Queue, m)
				}
			}
			return page, err
		}}
	}
}

// resent returns a message that was shown, to be sent to its queue.
func resent(queue string, m queues.Message) core.Outgoing {
	return core.Outgoing{ID: m.ID, Queue: queue, Headers: m.Headers, Body: m.Body, GroupKey: m.GroupKey, Properties: m.Properties}
}

// showing changes the messages of each page.
func showing(change func(m *queues.Message)) func() changes {
	return onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		page, err := next(r)
		for i := range page.Messages {
			change(&page.Messages[i])
		}
		return page, err
	})
}

// allOf returns the messages of a queue.
func allOf(queue string, next nextPage) ([]queues.Message, error) {
	page, err := next(queues.Request{Queue: queue, Limit: math.MaxInt, MaxBytes: math.MaxInt})
	return page.Messages, err
}

// paging makes pages of the messages that change returns. A cursor is a position among
// them, by rank and then by key, from which includes says whether it belongs to the next page.
func paging(change func(all []queues.Message) []queues.Message, rank func(m queues.Message) int, includes bool) func() changes {
	return onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (page queues.Page, err error) {
		all, err := allOf(r.Queue, next)
		if err != nil {
			return page, err
		}
		position := func(m queues.Message) int {
			n, _ := strconv.Atoi(m.Key)
			return rank(m)<<32 + n
		}
		all = change(all)
		slices.SortFunc(all, func(a, b queues.Message) int { return position(a) - position(b) })
		after, _ := strconv.Atoi(r.After)
		for _, m := range all {
			switch at := position(m); {
			case at < after || at == after && !includes:
			case len(page.Messages) == r.Limit:
				page.Next = strconv.Itoa(position(page.Messages[r.Limit-1]))
				return page, nil
			default:
				page.Messages = append(page.Messages, m)
			}
		}
		return page, nil
	})
}

func unranked(queues.Message) int { return 0 }

// leavingOut shows some messages only.
func leavingOut(unwanted func(i int, m queues.Message) bool) func() changes {
	return paging(func(all []queues.Message) (kept []queues.Message) {
		for i, m := range all {
			if !unwanted(i, m) {
				kept = append(kept, m)
			}
		}
		return kept
	}, unranked, false)
}

type nextTake func(takes ...queues.Take) ([]queues.TakeResult, error)

// onTake makes changes of a function that replaces Take for one message.
func onTake(take func(t *brokenTransport, ctx context.Context, queue string, take queues.Take, next nextTake) queues.TakeResult) func() changes {
	return func() changes {
		return changes{take: func(t *brokenTransport, ctx context.Context, queue string, takes []queues.Take, next func(...queues.Take) ([]queues.TakeResult, error)) ([]queues.TakeResult, error) {
			if _, err := next(); err != nil { // the queue does not exist
				return nil, err
			}
			var results []queues.TakeResult
			for _, one := range takes {
				results = append(results, take(t, ctx, queue, one, next))
			}
			return results, nil
		}}
	}
}

// result returns the result of taking one message.
func (next nextTake) result(take queues.Take) queues.TakeResult {
	results, err := next(take)
	if err != nil {
		return queues.TakeResult{Err: err}
	}
	return results[0]
}

// changingResult changes results.
func changingResult(change func(t *brokenTransport, r *queues.TakeResult, take queues.Take)) func() changes {
	return onTake(func(t *brokenTransport, _ context.Context, _ string, take queues.Take, next nextTake) queues.TakeResult {
		r := next.result(take)
		change(t, &r, take)
		return r
	})
}

// counting changes the numbers of Depth.
func counting(change func(d *queues.Depth)) func() changes {
	return onDepth(func(_ *brokenTransport, _ string, next func() (queues.Depth, error)) (queues.Depth, error) {
		d, err := next()
		if err == nil {
			change(&d)
		}
		return d, err
	})
}

func onDepth(depth func(t *brokenTransport, queue string, next func() (queues.Depth, error)) (queues.Depth, error)) func() changes {
	return func() changes { return changes{depth: depth} }
}

// listing changes the result of ListQueues.
func listing(change func(names []string) []string) func() changes {
	return func() changes {
		return changes{list: func(_ *brokenTransport, next func() ([]string, error)) ([]string, error) {
			names, err := next()
			return change(names), err
		}}
	}
}

// number returns the number in a cursor of the in-memory broker, or in a key.
func number(cursor string) string {
	n, _, _ := strings.Cut(cursor, "/")
	return n
}
