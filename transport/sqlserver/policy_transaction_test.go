package sqlserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// What a policy writes in the transaction of its message is committed with the action, and the
// work of the failed handler is not.
func TestPolicy_WritesInTheTransactionOfTheMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		actions []core.Action // by the number of attempts so far
		written int           // rows of the policy in the end
		failed  int           // messages in the error queue
	}{
		"a move to the error queue":       {[]core.Action{core.MoveToError("")}, 1, 1},
		"a discard":                       {[]core.Action{core.DiscardMessage()}, 1, 0},
		"a delayed retry, then a move":    {[]core.Action{core.DelayedRetry(time.Millisecond), core.MoveToError("")}, 2, 1},
		"an immediate retry, then a move": {[]core.Action{core.ImmediateRetry(), core.MoveToError("")}, 1, 1}, // given back with all work undone
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
			e.exec(`create table decided (key text not null)`)
			e.exec(`grant all on decided to public`)
			e.config.Recoverability.Policy = func(ctx context.Context, _ core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
				tx, err := sqlserver.Tx(ctx)
				if err != nil {
					t.Error(err)
					return core.Action{}, nil
				}
				if _, err := tx.Exec(ctx, `insert into decided values ($1)`, failure.Message.ID); err != nil {
					t.Error(err)
				}
				return test.actions[min(failure.DelayedDeliveriesPerformed+failure.ImmediateProcessingFailures-1, len(test.actions)-1)], nil
			}
			e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
				if err := e.work(ctx, m, body); err != nil {
					return err
				}
				return errors.New("failed after its work")
			}
			e.order(1)
			e.run()
			await(t, "the message is dealt with", func() bool {
				return e.waiting() == 0 && e.number(`select count(*) from decided`) == test.written && e.number(`select count(*) from `+errorQueue) == test.failed
			})
			if n := e.written(); n != 0 {
				t.Errorf("%d rows of the failed handler were committed", n)
			}
			if n := e.number(`select count(*) from ` + outputQueue); n != 0 {
				t.Errorf("%d messages of the failed handler were sent", n)
			}
		})
	}
}
