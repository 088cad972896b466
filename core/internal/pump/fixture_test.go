package pump

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// message is the delivery of these tests.
type message struct {
	number     int
	deliveries int // more than one: a suspect
}

// attempt is an attempt at one.
type attempt struct{ number int }

// messages returns n messages, numbered from first on.
func messages(first, n int) (all []*message) {
	for i := range n {
		all = append(all, &message{number: first + i})
	}
	return all
}

// fakeSource is a receiver with a stock of messages. It returns no more than its MaxInFlight,
// until messages are handled or released.
type fakeSource struct {
	max int // of one Receive; 0: no limit

	mu           sync.Mutex
	stock        []*message
	fetched      []*message // prefetched by the receiver: they are returned at any MaxInFlight
	out          int        // returned, and neither handled nor released
	limit        int
	limits       []int // all that it was told
	waiting      int   // calls of Receive that wait
	maxRequested int   // the largest dst
	changed      chan struct{}
	answer       func(dst []*message) (int, error) // if not nil, Receive calls it
	asked        int                               // calls of answer
}

func (s *fakeSource) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fakeSource) SetMaxInFlight(n int) {
	s.change(func() { s.limit, s.limits = n, append(s.limits, n) })
}

func (s *fakeSource) Receive(ctx context.Context, dst []*message) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxRequested = max(s.maxRequested, len(dst))
	if s.answer != nil {
		s.asked++
		return s.answer(dst)
	}
	for {
		if n := copy(dst, s.fetched); n > 0 {
			s.fetched = s.fetched[n:]
			s.out += n
			return n, nil
		}
		n := min(len(dst), len(s.stock), max(s.limit-s.out, 0))
		if s.max > 0 {
			n = min(n, s.max)
		}
		if n > 0 {
			copy(dst, s.stock[:n])
			s.stock = s.stock[n:]
			s.out += n
			return n, nil
		}
		changed := s.changed
		s.waiting++
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.waiting--
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

func (s *fakeSource) newest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits[len(s.limits)-1]
}

// harness is a pump, its receiver, and a record of its calls.
type harness struct {
	*Pump[*message, attempt]
	t      *testing.T
	source *fakeSource
	stop   context.CancelFunc // ends the context of fetching

	// handler is called in each handler, and settlement after it, when the slot is released
	// early. nil does nothing.
	handler, settlement func(*Worker[*message, attempt], *message)

	mu        sync.Mutex
	started   []int
	handled   []int
	released  []int
	errs      []error
	slow      []int
	isolating []bool
	running   int
	max       int // the largest running
}

// endWait ends the wait for a reason, as SetRateLimited does.
func (h *harness) endWait(reason WaitReason) {
	h.Pump.mu.Lock()
	defer h.Pump.mu.Unlock()
	h.endWaitLocked(reason)
	h.applyLimitsLocked()
}

// newHarness returns a pump without slots. The test must run in a bubble of synctest.
func newHarness(t *testing.T, rules Rules, stock ...*message) *harness {
	t.Helper()
	h := &harness{t: t, source: &fakeSource{stock: stock, max: rules.MaxBatch, changed: make(chan struct{})}}
	ctx, cancel := context.WithCancel(t.Context())
	h.stop = cancel
	h.Pump = New(ctx, h.source, rules, Calls[*message, attempt]{
		Fetched: func(m *message) Item[*message] { return Item[*message]{Delivery: m} },
		Handle:  h.handle,
		Release: func(item Item[*message]) {
			h.note(func() { h.released = append(h.released, item.Delivery.number) })
			h.source.change(func() { h.source.out-- })
		},
		OnError:         func(err error) { h.note(func() { h.errs = append(h.errs, err) }) },
		OnSlow:          func(a *attempt, _ time.Duration) { h.note(func() { h.slow = append(h.slow, a.number) }) },
		Bytes:           func(*message) int { return 100 },
		IsSuspect:       func(m *message) bool { return m.deliveries > 1 },
		TotalDeliveries: func(m *message) int { return m.deliveries },
		OnIsolate:       func(isolating bool, _ *message) { h.note(func() { h.isolating = append(h.isolating, isolating) }) },
	})
	return h
}

func (h *harness) note(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *harness) handle(w *Worker[*message, attempt], item Item[*message]) {
	m := item.Delivery
	w.Current.Store(&attempt{m.number})
	defer w.Current.Store(nil)
	h.note(func() {
		h.started = append(h.started, m.number)
		h.running++
		h.max = max(h.max, h.running)
	})
	if h.handler != nil {
		h.handler(w, m)
	}
	h.note(func() { h.running-- })
	if h.settlement != nil {
		w.ReleaseSlotEarly()
		h.settlement(w, m)
	}
	h.note(func() { h.handled = append(h.handled, m.number) })
	h.source.change(func() { h.source.out-- })
}

// pass waits for a time, and for everything that happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// end stops the pump and waits for it.
func (h *harness) end() {
	h.Stop()
	h.stop()
	h.Wait()
	synctest.Wait()
}

// copy returns the numbers so far.
func (h *harness) copy(numbers *[]int) []int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(*numbers)
}

// want compares the numbers of messages in any order.
func (h *harness) want(subject string, numbers *[]int, want ...int) {
	h.t.Helper()
	if got := h.copy(numbers); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		h.t.Errorf("%s are %v, want %v", subject, got, want)
	}
}

// count is how many of them there are.
func (h *harness) count(numbers *[]int) int { return len(h.copy(numbers)) }

// numbers returns n numbers from first on.
func numbers(first, n int) (all []int) {
	for i := range n {
		all = append(all, first+i)
	}
	return all
}
