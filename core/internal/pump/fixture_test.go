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

// shelf is a receiver with messages on a shelf. It hands out no more than its MaxInFlight,
// until messages are handled or released.
type shelf struct {
	most int // of one Receive; 0: no limit

	mu        sync.Mutex
	stock     []*message
	out       int
	limit     int
	limits    []int // all that it was told
	waiting   int   // calls of Receive that wait
	mostAsked int   // the largest dst
	changed   chan struct{}
	answer    func(dst []*message) (int, error) // if not nil, Receive calls it
	asked     int                               // calls of answer
}

func (s *shelf) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shelf) SetMaxInFlight(n int) {
	s.change(func() { s.limit, s.limits = n, append(s.limits, n) })
}

func (s *shelf) Receive(ctx context.Context, dst []*message) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mostAsked = max(s.mostAsked, len(dst))
	if s.answer != nil {
		s.asked++
		return s.answer(dst)
	}
	for {
		n := min(len(dst), len(s.stock), max(s.limit-s.out, 0))
		if s.most > 0 {
			n = min(n, s.most)
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

func (s *shelf) newest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits[len(s.limits)-1]
}

// bench is a pump, its receiver, and a record of its calls.
type bench struct {
	*Pump[*message, attempt]
	t     *testing.T
	shelf *shelf
	stop  context.CancelFunc // ends the context of fetching

	// before is called in each handler, which ends when it returns, and between the end of
	// the handler and of its settlement.
	handler, settlement func(*Worker[*message, attempt], *message)

	mu        sync.Mutex
	started   []int
	handled   []int
	released  []int
	errs      []error
	slow      []int
	isolating []bool
	running   int
	most      int // the largest running
}

// newBench returns a pump without slots. The test must run in a bubble of synctest.
func newBench(t *testing.T, rules Rules, stock ...*message) *bench {
	t.Helper()
	b := &bench{t: t, shelf: &shelf{stock: stock, most: rules.MaxBatch, changed: make(chan struct{})}}
	ctx, cancel := context.WithCancel(t.Context())
	b.stop = cancel
	b.Pump = New(ctx, b.shelf, rules, Calls[*message, attempt]{
		Fetched: func(m *message) Item[*message] { return Item[*message]{Delivery: m} },
		Handle:  b.handle,
		Release: func(item Item[*message]) {
			b.note(func() { b.released = append(b.released, item.Delivery.number) })
			b.shelf.change(func() { b.shelf.out-- })
		},
		OnError:         func(err error) { b.note(func() { b.errs = append(b.errs, err) }) },
		OnSlow:          func(a *attempt, _ time.Duration) { b.note(func() { b.slow = append(b.slow, a.number) }) },
		Bytes:           func(*message) int { return 100 },
		IsSuspect:       func(m *message) bool { return m.deliveries > 1 },
		TotalDeliveries: func(m *message) int { return m.deliveries },
		OnIsolate:       func(isolating bool, _ *message) { b.note(func() { b.isolating = append(b.isolating, isolating) }) },
	})
	return b
}

func (b *bench) note(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *bench) handle(w *Worker[*message, attempt], item Item[*message]) {
	m := item.Delivery
	w.Current.Store(&attempt{m.number})
	defer w.Current.Store(nil)
	b.note(func() {
		b.started = append(b.started, m.number)
		b.running++
		b.most = max(b.most, b.running)
	})
	if b.handler != nil {
		b.handler(w, m)
	}
	b.note(func() { b.running-- })
	if b.settlement != nil {
		w.ReleaseSlotEarly()
		b.settlement(w, m)
	}
	b.note(func() { b.handled = append(b.handled, m.number) })
	b.shelf.change(func() { b.shelf.out-- })
}

// pass waits for a time, and for everything that happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// end stops the pump and waits for it.
func (b *bench) end() {
	b.Stop()
	b.stop()
	b.Wait()
	synctest.Wait()
}

// copy returns the numbers so far.
func (b *bench) copy(numbers *[]int) []int {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(*numbers)
}

// want compares the numbers of messages in any order.
func (b *bench) want(what string, numbers *[]int, want ...int) {
	b.t.Helper()
	if got := b.copy(numbers); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		b.t.Errorf("%s are %v, want %v", what, got, want)
	}
}

// count is how many of them there are.
func (b *bench) count(numbers *[]int) int { return len(b.copy(numbers)) }

// numbers returns n numbers from first on.
func numbers(first, n int) (all []int) {
	for i := range n {
		all = append(all, first+i)
	}
	return all
}
