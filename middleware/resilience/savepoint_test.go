package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/middleware/resilience"
)

// table is rows that handlers write in the transaction of their message.
type table struct {
	core.Transport
	rollback func() error // fails rollbacks

	mu        sync.Mutex
	committed []string
	calls     []string
}

// rows is the transaction of one delivery.
type rows struct {
	core.Delivery
	table *table
	rows  []string
}

type rowsKey struct{}

// write adds a row in the transaction of ctx.
func write(ctx context.Context, row string) {
	r := ctx.Value(rowsKey{}).(*rows)
	r.rows = append(r.rows, row)
}

func (t *table) OpenReceiver(ctx context.Context, c core.ReceiverConfig) (core.Receiver, error) {
	r, err := t.Transport.OpenReceiver(ctx, c)
	return &rowsReceiver{r, t}, err
}

type rowsReceiver struct {
	core.Receiver
	table *table
}

func (r *rowsReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.Receiver.Receive(ctx, dst)
	for i := range n {
		dst[i] = &rows{Delivery: dst[i], table: r.table}
	}
	return n, err
}

func (t *table) note(call string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, call)
}

func (r *rows) BindContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, rowsKey{}, r)
}

func (r *rows) Savepoint(ctx context.Context) (func(context.Context) error, error) {
	r.table.note("savepoint")
	rollback, err := r.Delivery.Savepoint(ctx)
	n := len(r.rows)
	return func(ctx context.Context) error {
		r.table.note("rollback")
		if r.table.rollback != nil {
			if err := r.table.rollback(); err != nil {
				return err
			}
		}
		r.rows = r.rows[:n]
		return rollback(ctx)
	}, err
}

func (r *rows) Reset(ctx context.Context) error {
	r.rows = nil
	return r.Delivery.Reset(ctx)
}

func (r *rows) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	r.table.mu.Lock()
	r.table.committed = append(r.table.committed, r.rows...)
	r.table.mu.Unlock()
	return r.Delivery.CompleteWith(ctx, out)
}

// In SendsAtomicWithReceive a try begins where the first one did, and what failed ones did and
// sent is not there.
func TestRetry_UndoesFailedTries(t *testing.T) {
	errBroken := errors.New("connection lost")
	for _, test := range []struct {
		name      string
		succeeds  int // the number of the try
		tries     int
		rollback  error
		committed []string
		sent      int
		calls     []string
	}{
		{"at once", 1, 3, nil, []string{"before", "try 1"}, 1, []string{"savepoint"}},
		{"at the third try", 3, 3, nil, []string{"before", "try 3"}, 1, []string{"savepoint", "rollback", "rollback"}},
		{"never", 4, 3, nil, nil, 0, []string{"savepoint", "rollback", "rollback"}},
		{"where the rollback fails", 2, 3, errBroken, nil, 0, []string{"savepoint", "rollback"}},
		{"without a retry", 1, 0, nil, []string{"before", "try 1"}, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				transport := &table{Transport: b.transport, rollback: func() error { return test.rollback }}
				c := resilience.Config{Retry: resilience.Retry{Tries: test.tries}}
				if test.tries == 0 {
					c = resilience.Config{TryTimeout: time.Minute}
				}
				p := b.policy(c)
				before := func(next core.HandlerFunc) core.HandlerFunc {
					return func(ctx context.Context, m *core.Message) error {
						write(ctx, "before")
						return next(ctx, m)
					}
				}
				ep, err := core.New("orders", transport, core.Config{
					Middleware: []core.Middleware{core.MiddlewareFunc(before), p.Middleware()}, Recoverability: none, Logger: slog.New(b.logs),
				})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				core.Handle(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte) error {
					n++
					write(ctx, fmt.Sprint("try ", n))
					if err := m.Send("shipping", parcelIntType.Of(n)); err != nil {
						return err
					}
					if n != test.succeeds {
						return errUnreachable
					}
					return nil
				})
				b.run(ep)
				b.put("orders", "order", "m1")
				b.pass(time.Minute)
				if !slices.Equal(transport.committed, test.committed) || !slices.Equal(transport.calls, test.calls) {
					b.Errorf("committed %q with %q, want %q with %q", transport.committed, transport.calls, test.committed, test.calls)
				}
				b.holds("shipping", test.sent)
				b.holds("error", 1-test.sent)
				if test.rollback != nil {
					if text := b.onlyMessage("error").Headers.Get(headers.ExceptionMessage); !strings.Contains(text, "could not be undone") || !strings.Contains(text, "connection lost") || !strings.Contains(text, "503") {
						b.Errorf("it failed with %q", text)
					}
				}
				synctest.Wait()
			})
		})
	}
}
