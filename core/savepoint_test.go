package core_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// fails returns an error from a settlement of one name.
func fails(operation string) faults {
	return faults{settle: func(other string, _ *core.Incoming) error {
		if other == operation {
			return errBoom
		}
		return nil
	}}
}

func TestSavepoint_RollbackUndoesAPart(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			work(ctx, "before")
			b.must(m.Send("shipping", "before", nil))
			savepoint, err := m.Savepoint(ctx)
			b.must(err)
			for range 2 {
				work(ctx, "undone")
				b.must(m.Send("shipping", "undone", nil))
				b.must(savepoint.Rollback(ctx))
			}
			work(ctx, "after")
			return m.Send("shipping", "after", nil)
		})
		b.put("m1")
		synctest.Wait()
		want := []string{"after", "before"}
		if got := slices.Sorted(slices.Values(b.broker.committed.all())); !slices.Equal(got, want) {
			b.Errorf("written %q, want %q", got, want)
		}
		if got := b.sentTypes("shipping"); !slices.Equal(got, want) {
			b.Errorf("sent %q, want %q", got, want)
		}
	})
}

func TestSavepoint_OfMiddleware(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		again := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				b.must(next(ctx, m))
				savepoint, err := m.Savepoint(ctx)
				b.must(err)
				if err := next(ctx, m); err != nil {
					b.Error(err)
				}
				return savepoint.Rollback(ctx)
			}
		}
		run := 0
		b.orders(core.Config{Middleware: []core.Middleware{again}}, func(ctx context.Context, m *core.Message) error {
			run++
			name := []string{"", "first", "second"}[run]
			work(ctx, name)
			return m.Send("shipping", name, nil)
		})
		b.put("m1")
		synctest.Wait()
		if got := b.sentTypes("shipping"); !slices.Equal(got, []string{"first"}) {
			b.Errorf("sent %q, want those of the first run, as before the savepoint", got)
		}
		if got := b.broker.committed.all(); b.mode == core.TransactionSendsAtomicWithReceive && !slices.Equal(got, []string{"first"}) {
			b.Errorf("written %q, want those of the first run, as before the savepoint", got)
		}
	})
}

func TestSavepoint_RollbackThatFailsFailsTheAttempt(t *testing.T) {
	bubble(t, func(b *bed) {
		b.broker.provoke(fails("Rollback"))
		runs := 0
		b.orders(core.Config{Recoverability: immediate(1)}, func(ctx context.Context, m *core.Message) error {
			runs++
			if runs == 2 {
				work(ctx, "second")
				return nil
			}
			savepoint, err := m.Savepoint(ctx)
			b.must(err)
			work(ctx, "first")
			if err := savepoint.Rollback(ctx); err == nil {
				b.Error("Rollback returned nil")
			}
			return nil
		})
		b.put("m1")
		synctest.Wait()
		equal(b, "runs", runs, 2)
		if got := b.broker.committed.all(); !slices.Equal(got, []string{"second"}) {
			b.Errorf("written %q, want that of the second attempt", got)
		}
	})
}

func TestSavepoint_HandleFailedWhoseRollbackFailsIsUndone(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.endpoint("orders", core.Config{Recoverability: noRetries})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleFailed(ep, "order", func(ctx context.Context, m *core.TypedMessage[[]byte], f *core.Failed) error {
			savepoint, err := m.Savepoint(ctx)
			b.must(err)
			work(ctx, "last resort")
			b.broker.provoke(fails("Rollback"))
			_ = savepoint.Rollback(ctx)
			f.TakeOver()
			return nil
		})
		b.run(ep)
		b.put("m1")
		b.only("error")
		if got := b.broker.committed.all(); len(got) > 0 {
			b.Errorf("written %q, want nothing", got)
		}
	})
}

func TestSavepoint_NeedsTheCapabilityWhereThereIsATransaction(t *testing.T) {
	inModesOn(t, able(func(c *core.Capabilities) { c.Savepoints = false }), everyMode, func(b *bed) {
		var got error
		b.orders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			_, got = m.Savepoint(ctx)
			return nil
		})
		b.put("m1")
		synctest.Wait()
		equal(b, "Savepoint is unsupported", errors.Is(got, errors.ErrUnsupported), b.mode == core.TransactionSendsAtomicWithReceive)
	})
}

func TestSavepoint_EndsWithItsRun(t *testing.T) {
	bubble(t, func(b *bed) {
		var savepoint *core.Savepoint
		var message *core.Message
		b.orders(core.Config{}, func(ctx context.Context, m *core.Message) (err error) {
			message = m
			savepoint, err = m.Savepoint(ctx)
			return err
		})
		b.put("m1")
		synctest.Wait()
		if err := savepoint.Rollback(context.Background()); !errors.Is(err, core.ErrHandlingEnded) {
			b.Errorf("Rollback returned %v, want ErrHandlingEnded", err)
		}
		if _, err := message.Savepoint(context.Background()); !errors.Is(err, core.ErrHandlingEnded) {
			b.Errorf("Savepoint returned %v, want ErrHandlingEnded", err)
		}
	})
}

func TestSavepoint_OutsideOfAnEndpoint(t *testing.T) {
	in, sent := coretest.Message("order", "body")
	savepoint, err := in.Savepoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Send("shipping", "ship", nil), savepoint.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := sent.Sent(); len(got) > 0 {
		t.Errorf("collected %v, want nothing", got)
	}
}

func TestSavepoint_OfInvoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inmemory.Config{}, core.TransactionSendsAtomicWithReceive)
		ep := b.endpoint("orders", core.Config{})
		b.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			savepoint, err := m.Savepoint(ctx)
			b.must(err)
			b.must(m.Send("shipping", "undone", nil))
			b.must(savepoint.Rollback(ctx))
			return m.Send("shipping", "after", nil)
		})
		b.must(ep.Invoke(t.Context(), "order", []byte("body")))
		if got := b.sentTypes("shipping"); !slices.Equal(got, []string{"after"}) {
			b.Errorf("sent %q", got)
		}
	})
}
