package sqlserver

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// The trigger of a queue's table wakes its receivers for messages of senders that do not
// notify: NServiceBus, or a person with an SQL client. Without the trigger such a message
// waits for the next poll of the queue.

// triggerPatience is how long, in milliseconds, Provision waits for the lock that it
// needs to add the trigger to a table: senders wait behind it.
const triggerPatience = 2000

// addNotifyTriggers adds the trigger to tables that an older version of this package
// created without it. If that is not possible, Provision does not fail: a warning gives
// the reason.
func (t *Transport) addNotifyTriggers(ctx context.Context, queues []*queues.Queue) error {
	for _, q := range queues {
		lacks, err := t.lacksNotifyTrigger(ctx, q)
		if err != nil {
			return err
		}
		if !lacks {
			continue
		}
		err = t.addNotifyTrigger(ctx, q)
		switch {
		case err == nil:
		case t.server.Fault(err) == dialect.FaultRefused, t.server.Fault(err) == dialect.FaultBusy:
			t.warnOfNotifyTrigger(q, err)
		default:
			return fmt.Errorf("add the trigger %s to the table %s: %w", postgres.NotifyTrigger, q.Table.Quoted, err)
		}
	}
	return nil
}

func (t *Transport) addNotifyTrigger(ctx context.Context, q *queues.Queue) error {
	tx, err := t.db.Begin(ctx, t.dialect.LockSchema()) // it waits for the lock as long as others take
	if err != nil {
		return err
	}
	patience := sqlexec.Command(fmt.Sprintf("set local lock_timeout = %d", triggerPatience))
	for _, s := range []*sqlexec.Statement{patience, t.dialect.NotifyTrigger(q.Table)} {
		if err := tx.Run(ctx, s); err != nil {
			tx.Rollback(ctx)
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		tx.Rollback(ctx)
		return err
	}
	return nil
}

// lacksNotifyTrigger reports whether a queue should have the trigger, and has none.
func (t *Transport) lacksNotifyTrigger(ctx context.Context, q *queues.Queue) (bool, error) {
	s := t.dialect.HasNotifyTrigger(q.Table)
	if s == nil || q.Kind() != queues.Reprise {
		return false, nil
	}
	lacks := true
	s.Row = func(scan sqlexec.Scanner) error {
		var one int
		lacks = false
		return scan(&one)
	}
	err := t.server.Read(ctx, s)
	return lacks, err
}

// warnOfNotifyTrigger warns, once for each table, and says how another role adds the
// trigger. The cause may be nil.
func (t *Transport) warnOfNotifyTrigger(q *queues.Queue, cause error) {
	if _, warned := t.warnedOf.LoadOrStore(q.Table.Address, true); warned {
		return
	}
	because := "it was made by an older version"
	if cause != nil {
		because += fmt.Sprintf(", and this role cannot add it now (%v)", cause)
	}
	t.warnings.Add(fmt.Sprintf("the table %s has no trigger %s: %s. A message of a sender that does not notify, such as NServiceBus, waits up to a second in an empty queue. "+
		"To fix: let the owner of the table carry out the statements that DDL returns, or Provision", q.Table.Quoted, postgres.NotifyTrigger, because))
}
