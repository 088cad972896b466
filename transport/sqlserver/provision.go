package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Provision creates missing tables: those of the topology's queues, the table of
// subscriptions, and the table of messages that are delayed on their way to queues that
// NServiceBus created. It needs the right to create tables only if one is missing. It
// does not change existing tables, except for the trigger that wakes receivers, which
// older versions did not create: if the role may not add it, or the table is in use for
// too long, Warnings says how to add it. For a queue whose table is not as Reprise needs
// it, the error names the column and both types. A database deletes no table by
// itself, so Provision and Check refuse a Topology with QueueExpiry.
func (t *Transport) Provision(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		ctx, done := t.server.Bound(ctx)
		defer done()
		err = t.provision(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("sqlserver: provision: %w", t.server.Unavailable(ctx, err))
	}
	return nil
}

// refuseExpiry refuses a Topology whose input queue is to be deleted when it is not used.
func refuseExpiry(topology core.Topology) error {
	if topology.QueueExpiry == 0 {
		return nil
	}
	return transport.Permanent(fmt.Errorf("Config.QueueExpiry of the endpoint is %v, but a database deletes no table by itself; remove it, and drop the table of %q when its instance is gone for good", topology.QueueExpiry, topology.InputQueue))
}

func (t *Transport) provision(ctx context.Context, topology core.Topology) error {
	if err := refuseExpiry(topology); err != nil {
		return err
	}
	var create []string
	var made, found []*queues.Queue
	for _, name := range topology.Queues {
		q, err := t.queues.Get(name)
		if err != nil {
			return err
		}
		err = t.server.Verify(ctx, q)
		if errors.Is(err, core.ErrQueueNotFound) {
			create = append(create, t.dialect.CreateQueue(q.Table, t.nserviceBusTables)...)
			made = append(made, q)
		} else if err != nil {
			return err
		} else {
			found = append(found, q)
		}
	}
	for _, other := range []struct {
		table  dialect.Table
		create []string
	}{
		{t.subscriptions.Table, t.dialect.CreateSubscriptions(t.subscriptions.Table)},
		{t.delayed.Table, t.dialect.CreateDelayed(t.delayed.Table)},
	} {
		has, err := t.server.Columns(ctx, other.table)
		if err != nil {
			return err
		}
		if len(has) == 0 {
			create = append(create, other.create...)
		}
	}
	if err := t.server.Create(ctx, create); err != nil {
		return fmt.Errorf("create the tables that are missing (DDL prints the statements for somebody with the right to): %w", err)
	}
	for _, q := range made { // another session may have created it at the same time, differently
		if err := t.server.Verify(ctx, q); err != nil {
			return err
		}
	}
	if err := t.warnOfOwners(ctx, slices.Concat(found, made)); err != nil {
		return err
	}
	return t.addNotifyTriggers(ctx, found)
}

// warnOfOwners warns of tables that belong to a stranger, once for each table. Where every role
// may create tables in the schema, one may have made a queue before its endpoint did, and
// granted it every right. It may as well be the role of another service, or that of
// deployments, so this is no error.
func (t *Transport) warnOfOwners(ctx context.Context, queues []*queues.Queue) error {
	tables := []dialect.Table{t.subscriptions.Table, t.delayed.Table}
	for _, q := range queues {
		tables = append(tables, q.Table)
	}
	for _, table := range tables {
		s := t.dialect.ForeignOwner(table)
		if s == nil {
			return nil
		}
		var owner string
		s.Row = func(scan sqlexec.Scanner) error { return scan(&owner) }
		err := t.server.Read(ctx, s)
		if err != nil && (t.server.Transient(err) || ctx.Err() != nil) {
			return err
		}
		if err != nil || owner == "" { // a role that may not read the catalogue is told nothing
			continue
		}
		if _, warned := t.warnedOf.LoadOrStore(ownerOf{table.Address}, true); warned {
			continue
		}
		t.warnings.Add(fmt.Sprintf("the table %s belongs to the role %q, which can read and change its messages, and run code with the rights of each role that writes to it. "+
			"If that role was not to create it, drop the table and call Provision. Otherwise let the owner of the schema own it: the warning ends", table.Quoted, owner))
	}
	return nil
}

// DDL returns the statements that [Transport.Provision] of a transport with this
// configuration would execute in an empty database, for a role that has the right to. They
// can be executed again without harm. The tables' comments have the version. DDL contacts
// no server, so that credentials are not needed: the URL "postgres://" is enough. It needs
// no driver either: for Microsoft SQL Server package microsoft need not be imported.
func DDL(cfg Config, queues ...string) (string, error) {
	t, err := newTransport(cfg, false)
	if err != nil {
		return "", err
	}
	text, err := t.ddl(queues)
	return text, errors.Join(err, t.Close(context.Background()))
}

// ddl returns the statements for some queues and for the tables of the transport.
func (t *Transport) ddl(queues []string) (string, error) {
	var all []string
	for _, name := range queues {
		q, err := t.queues.Get(name)
		if err != nil {
			return "", fmt.Errorf("sqlserver: DDL: %w", err)
		}
		all = append(all, t.dialect.CreateQueue(q.Table, t.nserviceBusTables)...)
	}
	all = append(all, t.dialect.CreateSubscriptions(t.subscriptions.Table)...)
	all = append(all, t.dialect.CreateDelayed(t.delayed.Table)...)
	return strings.Join(all, ";\n\n") + ";\n", nil
}

// The trigger of a queue's table wakes its receivers for messages of senders that do not
// notify: NServiceBus, or a person with an SQL client. Without the trigger such a message
// waits for the next poll of the queue.

// triggerPatience is how long, in milliseconds, Provision waits for the lock that it
// needs to add the trigger to a table: senders wait behind it.
const triggerPatience = 2000

// ownerOf is the key of a warning of a table's owner.
type ownerOf struct{ address string }

// addNotifyTriggers adds the trigger to tables that an older version of this package
// created without it, and replaces one that has the function of a stranger. If that is not possible, Provision does not fail: a warning gives
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
		if err != nil { // unless another process has added it, while a stranger holds the lock
			if lacks, lookErr := t.lacksNotifyTrigger(ctx, q); lookErr == nil && !lacks {
				err = nil
			}
		}
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
	patience := sqlexec.Command(fmt.Sprintf("set local lock_timeout = %d", triggerPatience))
	return t.server.ChangeSchema(ctx, patience, t.dialect.NotifyTrigger(q.Table))
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
	because := "it was made by an older version, or the trigger's function belongs to a role that could run code with the rights of every sender"
	if cause != nil {
		because += fmt.Sprintf(", and this role cannot add it now (%v)", cause)
	}
	t.warnings.Add(fmt.Sprintf("the table %s has no trigger %s of this version: %s. A message of a sender that does not notify, such as NServiceBus, waits up to a second in an empty queue. "+
		"To fix: let the owner of the table carry out the statements that DDL returns, or Provision", q.Table.Quoted, postgres.NotifyTrigger, because))
}
