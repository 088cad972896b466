package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

var browseMutants = []mutant{
	{rule: "C30", name: "counts a look as a delivery", breaks: func() changes {
		var looked sync.Map
		return changes{
			browse: func(_ *brokenTransport, r queues.Request, next func(queues.Request) (queues.Page, error)) (queues.Page, error) {
				page, err := next(r)
				for _, m := range page.Messages {
					looked.Store(m.NativeID, true)
				}
				return page, err
			},
			arrive: func(_ *brokenReceiver, in *core.Incoming) {
				if _, was := looked.Load(in.NativeID); was {
					in.DeliveryCount++
				}
			},
		}
	}},
	{rule: "C30", name: "locks the messages that it shows for a second", breaks: onBrowse(func(t *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		page, err := next(r)
		receiver, refused := t.fixture.view().OpenReceiver(ctxBackground, core.ReceiverConfig{Queue: r.Queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 100})
		if refused != nil || err != nil {
			return page, err
		}
		ended, cancel := context.WithTimeout(ctxBackground, time.Microsecond)
		defer cancel()
		_, _ = receiver.Receive(ended, make([]core.Delivery, 100))
		time.AfterFunc(time.Second, func() { _ = receiver.Close(ctxBackground) })
		return page, nil
	})},
	{rule: "C30", name: "moves the messages that it shows to the back", breaks: afterLook(func(t *brokenTransport, queue string, m queues.Message) {
		if m.State == queues.Ready {
			_, _ = t.base.Take(ctxBackground, queue, []queues.Take{{Key: m.Key, Out: []core.Outgoing{resent(queue, m)}}})
		}
	})},
	{rule: "C30", name: "drops messages that expire when it shows them", breaks: afterLook(func(t *brokenTransport, queue string, m queues.Message) {
		if !m.ExpiresAt.IsZero() {
			_, _ = t.base.Take(ctxBackground, queue, []queues.Take{{Key: m.Key}})
		}
	})},
	{rule: "C30", name: "forgets the due time of a message that it shows", breaks: afterLook(func(t *brokenTransport, queue string, m queues.Message) {
		if m.State == queues.Delayed {
			_, _ = t.base.Take(ctxBackground, queue, []queues.Take{{Key: m.Key, Out: []core.Outgoing{resent(queue, m)}}})
		}
	})},
	{rule: "C30", name: "delivers a message in flight again after a look", breaks: afterLook(func(t *brokenTransport, queue string, m queues.Message) {
		if m.State == queues.Locked {
			_ = t.base.Send(ctxBackground, resent(queue, m))
		}
	})},
	{rule: "C30", name: "creates the queue that it looks into", breaks: onBrowse(func(t *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		_ = t.base.Provision(ctxBackground, core.Topology{Queues: []string{r.Queue}})
		return next(r)
	})},
	{rule: "C30", name: "shows a queue that does not exist as an empty one", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		page, err := next(r)
		if errors.Is(err, core.ErrQueueNotFound) {
			err = nil
		}
		return page, err
	})},

	{rule: "C31", name: "has an offset as its cursor", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (page queues.Page, err error) {
		all, err := allOf(r.Queue, next)
		offset := 0
		_, _ = fmt.Sscan(r.After, &offset)
		all = all[min(offset, len(all)):]
		page.Messages = all[:min(r.Limit, len(all))]
		if len(all) > r.Limit {
			page.Next = fmt.Sprint(offset + r.Limit)
		}
		return page, err
	})},
	{rule: "C31", name: "does not show locked messages", breaks: leavingOut(func(_ int, m queues.Message) bool { return m.State == queues.Locked })},
	{rule: "C31", name: "does not show delayed messages", breaks: leavingOut(func(_ int, m queues.Message) bool { return m.State == queues.Delayed })},
	{rule: "C31", name: "ends a look at 1,000 messages", breaks: leavingOut(func(i int, _ queues.Message) bool { return i >= 1000 })},
	{rule: "C31", name: "repeats the last message of a page on the next one", breaks: func() changes {
		return paging(func(all []queues.Message) []queues.Message { return all }, unranked, true)()
	}},
	{rule: "C31", name: "shows one of the messages that are due at the same time", breaks: func() changes {
		return paging(func(all []queues.Message) (kept []queues.Message) {
			due := map[time.Time]bool{}
			for _, m := range all {
				if m.DueAt.IsZero() || !due[m.DueAt] {
					kept = append(kept, m)
				}
				due[m.DueAt] = true
			}
			return kept
		}, unranked, false)()
	}},
	{rule: "C31", name: "shows a message again when it has come back", breaks: func() changes {
		var mu sync.Mutex
		back := map[string]int{}
		c := paging(func(all []queues.Message) []queues.Message { return all }, func(m queues.Message) int {
			mu.Lock()
			defer mu.Unlock()
			return back[m.NativeID]
		}, false)()
		c.settle = func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if err == nil && (operation == "Abandon" || operation == "Release") {
				mu.Lock()
				defer mu.Unlock()
				back[d.in.NativeID] = len(back) + 1
			}
			return err
		}
		return c
	}},
}
