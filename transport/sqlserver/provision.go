package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// Provision creates missing tables: those of the topology's queues, the table of
// subscriptions, and the table of messages that are delayed on their way to queues that
// NServiceBus created. It needs the right to create tables only if one is missing. It
// does not change existing tables, except for the trigger that wakes receivers, which
// older versions did not create: if the role may not add it, or the table is in use for
// too long, Warnings says how to add it. For a queue whose table is not as Reprise needs
// it, the error names the column and both types (C18).
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

func (t *Transport) provision(ctx context.Context, topology core.Topology) error {
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
	return t.addNotifyTriggers(ctx, found)
}

// DDL is [Transport.DDL] for a transport of this configuration. It contacts no server, so
// that credentials are not needed: the URL "postgres://" is enough. It needs no driver
// either: for Microsoft SQL Server package microsoft need not be imported.
func DDL(cfg Config, queues ...string) (string, error) {
	t, err := newTransport(cfg, false)
	if err != nil {
		return "", err
	}
	text, err := t.DDL(queues...)
	return text, errors.Join(err, t.Close(context.Background()))
}

// DDL returns the statements that [Transport.Provision] would execute in an empty
// database, for a role that has the right to. They can be executed again without harm.
// The tables' comments have the version. DDL does not contact the server.
func (t *Transport) DDL(queues ...string) (string, error) {
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
