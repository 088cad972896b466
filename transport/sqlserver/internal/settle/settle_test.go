package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

const lease = time.Minute

// leased is a message with a lease from now on.
type leased struct {
	transport.UnsupportedDelivery
	seq         int64
	lockedUntil time.Time
}

func (m *leased) Seq() int64                           { return m.seq }
func (m *leased) LockedUntil() time.Time               { return m.lockedUntil }
func (m *leased) Incoming() *core.Incoming             { return &core.Incoming{} }
func (m *leased) Complete(context.Context) error       { return nil }
func (m *leased) Abandon(context.Context, error) error { return nil }
func (m *leased) Release(context.Context) error        { return nil }

// table is the server: its answer to each statement, by the seqs of the messages.
type table struct {
	answer func(action Action, seqs []int64) ([]int64, error)

	mu         sync.Mutex
	statements []string
	over       []int64
}

var (
	errConnection = errors.New("the connection broke")
	errStatement  = errors.New("a constraint is violated")
)

func (s *table) config(ctx context.Context, inWork int64) Config {
	n := new(atomic.Int64)
	n.Store(inWork)
	return Config{
		Life: ctx, Lease: lease, InWork: n,
		Execute: func(_ context.Context, action Action, requests []Request, list []int) ([]int64, error) {
			seqs := make([]int64, len(list))
			for at, i := range list {
				seqs[at] = requests[i].Message.Seq()
			}
			slices.Sort(seqs)
			s.mu.Lock()
			s.statements = append(s.statements, fmt.Sprint(action, seqs))
			s.mu.Unlock()
			return s.answer(action, seqs)
		},
		Settled: func(these ...core.Delivery) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, d := range these {
				s.over = append(s.over, d.(*leased).seq)
			}
		},
		Classify: func(err error) dialect.Fault {
			if errors.Is(err, errConnection) {
				return dialect.FaultOutage
			}
			return dialect.FaultStatement
		},
		Failed: func(error) {},
	}
}

// complete completes messages at the same time, and returns their errors.
func complete(t *testing.T, s *Settler, seqs ...int64) []error {
	t.Helper()
	errs := make([]error, len(seqs))
	var all sync.WaitGroup
	for i, seq := range seqs {
		all.Go(func() {
			errs[i] = s.Do(t.Context(), Request{Action: Completion, Message: &leased{seq: seq, lockedUntil: time.Now().Add(lease)}})
		})
	}
	all.Wait()
	return errs
}

func TestSettler_Batches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &table{answer: func(_ Action, seqs []int64) ([]int64, error) { return seqs, nil }}
		s := New(on.config(t.Context(), 3))
		defer s.Close(t.Context())
		for i, err := range complete(t, s, 1, 2, 3) {
			if err != nil {
				t.Errorf("message %d: %v", i+1, err)
			}
		}
		if want := []string{"complete [1 2 3]"}; !slices.Equal(on.statements, want) {
			t.Errorf("the statements are %q, want %q", on.statements, want)
		}
		if slices.Sort(on.over); !slices.Equal(on.over, []int64{1, 2, 3}) {
			t.Errorf("%v are settled, want all", on.over)
		}
	})
}

func TestSettler_LostLeaseIsTheErrorOfItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &table{answer: func(_ Action, seqs []int64) ([]int64, error) {
			return slices.DeleteFunc(seqs, func(seq int64) bool { return seq == 2 }), nil
		}}
		s := New(on.config(t.Context(), 2))
		defer s.Close(t.Context())
		if errs := complete(t, s, 1, 2); errs[0] != nil || !errors.Is(errs[1], core.ErrLockLost) {
			t.Errorf("the errors are %v, want ErrLockLost for the second", errs)
		}
	})
}

func TestSettler_SplitsARefusedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &table{answer: func(_ Action, seqs []int64) ([]int64, error) {
			if slices.Contains(seqs, 2) {
				return nil, errStatement
			}
			return seqs, nil
		}}
		s := New(on.config(t.Context(), 3))
		defer s.Close(t.Context())
		if errs := complete(t, s, 1, 2, 3); errs[0] != nil || !errors.Is(errs[1], errStatement) || errs[2] != nil {
			t.Errorf("the errors are %v, want one for the second", errs)
		}
	})
}

func TestSettler_RepeatsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var executed atomic.Bool
		on := &table{answer: func(Action, []int64) ([]int64, error) {
			if !executed.Swap(true) {
				return nil, errConnection // after the statement was executed
			}
			return nil, nil // the row is gone
		}}
		s := New(on.config(t.Context(), 1))
		defer s.Close(t.Context())
		if errs := complete(t, s, 1); errs[0] != nil {
			t.Errorf("the lease is valid, so that the first attempt must have succeeded: %v", errs[0])
		}
		if len(on.statements) != 2 {
			t.Errorf("the statements are %q, want two", on.statements)
		}
	})
}

func TestSettler_GivesUpWhenTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := &table{answer: func(Action, []int64) ([]int64, error) { return nil, errConnection }}
		s := New(on.config(t.Context(), 1))
		defer s.Close(t.Context())
		began := time.Now()
		if errs := complete(t, s, 1); !errors.Is(errs[0], errConnection) {
			t.Errorf("the error is %v, want %v", errs[0], errConnection)
		}
		if took := time.Since(began); took > lease {
			t.Errorf("it took %v, longer than the lease", took)
		}
		s.Close(t.Context())
		if err := s.Do(t.Context(), Request{Action: Completion, Message: &leased{}}); !errors.Is(err, core.ErrLockLost) {
			t.Errorf("after Close: %v, want ErrLockLost", err)
		}
	})
}
