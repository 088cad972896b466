package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

var errForgotten = errors.New("no such cursor")

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

	{rule: "C32", name: "accepts the Next of another queue", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		if n, _, is := strings.Cut(r.After, "/"); is && !strings.HasSuffix(r.After, "x") && !strings.HasPrefix(r.After, "x") {
			r.After = n + "/" + r.Queue
		}
		return next(r)
	})},
	{rule: "C32", name: "takes an unknown After for the first page", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		page, err := next(r)
		if err != nil && r.After != "" {
			r.After = ""
			return next(r)
		}
		return page, err
	})},
	{rule: "C32", name: "ends a look when the message of its cursor has left", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		if r.After != "" {
			if found, err := next(queues.Request{Queue: r.Queue, Limit: 1, Keys: []string{number(r.After)}}); err == nil && len(found.Messages) == 0 {
				return queues.Page{}, nil
			}
		}
		return next(r)
	})},
	{rule: "C32", name: "keeps its cursors in the process", breaks: func() changes {
		var known sync.Map
		return changes{browse: func(t *brokenTransport, r queues.Request, next func(queues.Request) (queues.Page, error)) (queues.Page, error) {
			type cursor struct {
				t    *brokenTransport
				next string
			}
			if _, has := known.Load(cursor{t, r.After}); !has && r.After != "" {
				return queues.Page{}, errForgotten
			}
			page, err := next(r)
			known.Store(cursor{t, page.Next}, true)
			return page, err
		}}
	}},
	{rule: "C32", name: "forgets its cursors when the broker restarts", onServer: true, harness: func(h *Harness) {
		var mu sync.Mutex
		restarts := map[string]int{} // at which a cursor was given
		now := 0
		h.Broker.(*server).faults.killed = func(*server) {
			mu.Lock()
			defer mu.Unlock()
			now++
		}
		open := h.Open
		h.Open = func(t testing.TB) core.Transport {
			transport := open(t).(*brokenTransport)
			c := *transport.changes
			c.browse = func(_ *brokenTransport, r queues.Request, next func(queues.Request) (queues.Page, error)) (queues.Page, error) {
				mu.Lock()
				defer mu.Unlock()
				if r.After != "" && restarts[r.After] != now {
					return queues.Page{}, errForgotten
				}
				page, err := next(r)
				restarts[page.Next] = now
				return page, err
			}
			transport.changes = &c
			return transport
		}
	}},
	{rule: "C32", name: "shows more messages than Limit", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		if len(r.Keys) == 0 && r.Limit > 0 {
			r.Limit++
		}
		return next(r)
	})},
	{rule: "C32", name: "takes a Limit below 1 for 100", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		if r.Limit < 1 {
			r.Limit = 100
		}
		return next(r)
	})},
	{rule: "C32", name: "has a Next for ever", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		page, err := next(r)
		if n := len(page.Messages); err == nil && page.Next == "" && len(r.Keys) == 0 {
			page.Next = r.After
			if n > 0 {
				page.Next = page.Messages[n-1].Key + "/" + r.Queue
			}
		}
		return page, err
	})},
	{rule: "C32", name: "ignores MaxBytes", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		r.MaxBytes = math.MaxInt
		return next(r)
	})},
	{rule: "C32", name: "shows no message that is larger than MaxBytes", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		page, err := next(r)
		page.Messages = slices.DeleteFunc(page.Messages, func(m queues.Message) bool { return r.MaxBytes > 0 && m.BodyBytes > r.MaxBytes })
		return page, err
	})},
	{rule: "C32", name: "ignores WithoutBody", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		r.WithoutBody = false
		return next(r)
	})},
	{rule: "C32", name: "does not tell the size of a body that it leaves out", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		page, err := next(r)
		for i := range page.Messages {
			page.Messages[i].BodyBytes = len(page.Messages[i].Body)
		}
		return page, err
	})},
	{rule: "C32", name: "ignores Keys", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		if len(r.Keys) <= r.Limit {
			r.Keys = nil
		}
		page, err := next(r)
		page.Next = ""
		return page, err
	})},
	{rule: "C32", name: "refuses keys of which one has left the queue", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		page, err := next(r)
		if err == nil && len(page.Messages) < len(r.Keys) {
			return queues.Page{}, errForgotten
		}
		return page, err
	})},
	{rule: "C32", name: "refuses a text that is no key", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		if slices.Contains(r.Keys, "no key of any message") {
			return queues.Page{}, errForgotten
		}
		return next(r)
	})},
	{rule: "C32", name: "ignores MaxBytes with Keys", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		if r.Keys != nil {
			r.MaxBytes = math.MaxInt
		}
		return next(r)
	})},
	{rule: "C32", name: "takes more Keys than Limit", breaks: onBrowse(func(_ *brokenTransport, r queues.Request, next nextPage) (queues.Page, error) {
		r.Keys = r.Keys[:min(len(r.Keys), r.Limit)]
		return next(r)
	})},

	{rule: "C33", name: "shows no group", breaks: showing(func(m *queues.Message) { m.GroupKey = "" })},
	{rule: "C33", name: "shows its own headers", breaks: showing(func(m *queues.Message) {
		if m.Malformed == nil {
			m.Headers.Set("x-queue-seq", m.Key)
		}
	})},
	{rule: "C33", name: "shows a malformed message as a sound one", breaks: showing(func(m *queues.Message) { m.Malformed = nil })},
	{rule: "C33", name: "shows another native id than receivers get", breaks: showing(func(m *queues.Message) { m.NativeID = "seq-" + m.NativeID })},
	{rule: "C33", name: "shows the count of the next delivery", breaks: showing(func(m *queues.Message) { m.DeliveryCount++ })},
	{rule: "C33", name: "shows the count of a message as 0", breaks: showing(func(m *queues.Message) { m.DeliveryCount = 0 })},
	{rule: "C33", name: "shows a count although it keeps none", config: able(func(c *core.Capabilities) { c.NativeDeliveryCount = false }), breaks: showing(func(m *queues.Message) { m.DeliveryCount = 1 })},
	{rule: "C33", name: "does not show the last error", breaks: showing(func(m *queues.Message) { m.LastError = "" })},
	{rule: "C33", name: "does not show when a message expires", breaks: showing(func(m *queues.Message) { m.ExpiresAt = time.Time{} })},
	{rule: "C33", name: "shows the time of the look as that of sending", breaks: showing(func(m *queues.Message) { m.EnqueuedAt = time.Now().Add(time.Second) })},
	{rule: "C33", name: "does not show native properties", breaks: showing(func(m *queues.Message) { m.Native = nil })},
	{rule: "C33", name: "shows every message as ready", breaks: showing(func(m *queues.Message) { m.State = queues.Ready })},
	{rule: "C33", name: "does not show when a message is due", breaks: showing(func(m *queues.Message) { m.DueAt = time.Time{} })},
	{rule: "C33", name: "shows a due time of messages that are not delayed", breaks: showing(func(m *queues.Message) { m.DueAt = time.Now() })},
	{rule: "C33", name: "shows the same body at each look", breaks: func() changes {
		var bodies sync.Map
		return showing(func(m *queues.Message) {
			body, _ := bodies.LoadOrStore(m.Key, m.Body)
			m.Body = body.([]byte)
		})()
	}},
}
