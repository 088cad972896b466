package suite

import (
	"errors"
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

var pageMutants = []mutant{
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
