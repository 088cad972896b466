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

// failOperation returns an error from a settlement of one name.
func failOperation(operation string) faults {
	return faults{settle: func(other string, _ *core.Incoming) error {
		if other == operation {
			return errBoom
		}
		return nil
	}}
}

func TestSavepoint_RollbackUndoesAPart(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			doWork(ctx, "before")
			fx.noError(m.Send("shipping", beforeType.Of(nil)))
			savepoint, err := m.Savepoint(ctx)
			fx.noError(err)
			for range 2 {
				doWork(ctx, "undone")
				fx.noError(m.Send("shipping", undoneType.Of(nil)))
				fx.noError(savepoint.Rollback(ctx))
			}
			doWork(ctx, "after")
			return m.Send("shipping", afterType.Of(nil))
		})
		fx.enqueue("m1")
		synctest.Wait()
		want := []string{"after", "before"}
		if got := slices.Sorted(slices.Values(fx.broker.committed.all())); !slices.Equal(got, want) {
			fx.Errorf("written %q, want %q", got, want)
		}
		if got := fx.sentTypes("shipping"); !slices.Equal(got, want) {
			fx.Errorf("sent %q, want %q", got, want)
		}
	})
}

func TestSavepoint_OfMiddleware(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		retry := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				fx.noError(next(ctx, m))
				savepoint, err := m.Savepoint(ctx)
				fx.noError(err)
				if err := next(ctx, m); err != nil {
					fx.Error(err)
				}
				return savepoint.Rollback(ctx)
			}
		}
		run := 0
		fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(retry)}}, func(ctx context.Context, m *core.Message) error {
			run++
			name := []string{"", "first", "second"}[run]
			doWork(ctx, name)
			return m.Send("shipping", core.NewMessageType[[]byte](name).Of(nil))
		})
		fx.enqueue("m1")
		synctest.Wait()
		if got := fx.sentTypes("shipping"); !slices.Equal(got, []string{"first"}) {
			fx.Errorf("sent %q, want those of the first run, as before the savepoint", got)
		}
		if got := fx.broker.committed.all(); fx.mode == core.TransactionSendsAtomicWithReceive && !slices.Equal(got, []string{"first"}) {
			fx.Errorf("written %q, want those of the first run, as before the savepoint", got)
		}
	})
}

func TestSavepoint_RollbackThatFailsFailsTheAttempt(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.broker.setFaults(failOperation("Rollback"))
		runs := 0
		fx.runOrders(core.Config{Recoverability: immediateRetries(1)}, func(ctx context.Context, m *core.Message) error {
			runs++
			if runs == 2 {
				doWork(ctx, "second")
				return nil
			}
			savepoint, err := m.Savepoint(ctx)
			fx.noError(err)
			doWork(ctx, "first")
			if err := savepoint.Rollback(ctx); err == nil {
				fx.Error("Rollback returned nil")
			}
			return nil
		})
		fx.enqueue("m1")
		synctest.Wait()
		equal(fx, "runs", runs, 2)
		if got := fx.broker.committed.all(); !slices.Equal(got, []string{"second"}) {
			fx.Errorf("written %q, want that of the second attempt", got)
		}
	})
}

func TestSavepoint_HandleFailedWhoseRollbackFailsIsUndone(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleFailed(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte, f *core.Failed) error {
			savepoint, err := m.Savepoint(ctx)
			fx.noError(err)
			doWork(ctx, "last resort")
			fx.broker.setFaults(failOperation("Rollback"))
			_ = savepoint.Rollback(ctx)
			f.TakeOver()
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.onlyMessage("error")
		if got := fx.broker.committed.all(); len(got) > 0 {
			fx.Errorf("written %q, want nothing", got)
		}
	})
}

func TestSavepoint_NeedsTheCapabilityWhereThereIsATransaction(t *testing.T) {
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.Savepoints = false }), allModes, func(fx *fixture) {
		var got error
		fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			_, got = m.Savepoint(ctx)
			return nil
		})
		fx.enqueue("m1")
		synctest.Wait()
		equal(fx, "Savepoint is unsupported", errors.Is(got, errors.ErrUnsupported), fx.mode == core.TransactionSendsAtomicWithReceive)
	})
}

func TestSavepoint_EndsWithItsRun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var savepoint *core.Savepoint
		var message *core.Message
		fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) (err error) {
			message = m
			savepoint, err = m.Savepoint(ctx)
			return err
		})
		fx.enqueue("m1")
		synctest.Wait()
		if err := savepoint.Rollback(context.Background()); !errors.Is(err, core.ErrHandlingEnded) {
			fx.Errorf("Rollback returned %v, want ErrHandlingEnded", err)
		}
		if _, err := message.Savepoint(context.Background()); !errors.Is(err, core.ErrHandlingEnded) {
			fx.Errorf("Savepoint returned %v, want ErrHandlingEnded", err)
		}
	})
}

func TestSavepoint_OutsideOfAnEndpoint(t *testing.T) {
	in, _, sent := coretest.Message(orderStringType, "body")
	savepoint, err := in.Savepoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Send("shipping", shipByteType.Of(nil)), savepoint.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := sent.Sent(); len(got) > 0 {
		t.Errorf("collected %v, want nothing", got)
	}
}

func TestSavepoint_OfInvoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fx := newFixture(t, inmemory.Config{}, core.TransactionSendsAtomicWithReceive)
		ep := fx.newEndpoint("orders", core.Config{})
		fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			savepoint, err := m.Savepoint(ctx)
			fx.noError(err)
			fx.noError(m.Send("shipping", undoneType.Of(nil)))
			fx.noError(savepoint.Rollback(ctx))
			return m.Send("shipping", afterType.Of(nil))
		})
		fx.noError(ep.Invoke(t.Context(), orderType.Of([]byte("body"))))
		if got := fx.sentTypes("shipping"); !slices.Equal(got, []string{"after"}) {
			fx.Errorf("sent %q", got)
		}
	})
}
