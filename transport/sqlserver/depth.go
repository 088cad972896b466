package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corequeues "github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Depth implements queues.DepthReader on PostgreSQL, with the right to select. It reads the whole
// table. The server does not know who receives, so Receivers is -1. Oldest is when the first of the
// messages that are due became available; it is not known for tables that NServiceBus created.
// Expired messages that are still in the table count.
func (t *Transport) Depth(ctx context.Context, queue string) (corequeues.Depth, error) {
	d, err := t.depth(ctx, queue)
	if err != nil {
		return corequeues.Depth{}, fmt.Errorf("sqlserver: depth of %q: %w", queue, t.server.Unavailable(ctx, err))
	}
	return d, nil
}

func (t *Transport) depth(ctx context.Context, queue string) (d corequeues.Depth, err error) {
	ctx, done := t.server.Bound(ctx)
	defer done()
	l, err := t.look(ctx, queue, (*postgres.Store).Looking)
	if err != nil {
		return d, err
	}
	var waiting *postgres.Store
	if len(l.stores) > 1 {
		waiting = l.stores[1]
	}
	d = corequeues.Depth{Receivers: -1, Exact: true}
	read := l.stores[0].Depth(waiting)
	read.Row = func(scan sqlexec.Scanner) error {
		var oldest *time.Time
		err := scan(&d.Ready, &d.Locked, &d.Delayed, &oldest)
		if oldest != nil {
			d.Oldest = *oldest
		}
		return err
	}
	return d, l.explained(ctx, t.server.Read(ctx, read))
}

// ListQueues implements queues.Lister on PostgreSQL: it returns the tables of Config.Schema that have
// the columns of a queue, whether Reprise or NServiceBus created them, and that the role may
// select from.
func (t *Transport) ListQueues(ctx context.Context) ([]string, error) {
	all, err := t.listQueues(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlserver: list the queues of schema %q: %w", t.in.Schema, t.server.Unavailable(ctx, err))
	}
	return all, nil
}

func (t *Transport) listQueues(ctx context.Context) ([]string, error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	if !t.onPostgres() {
		return nil, transport.Permanent(fmt.Errorf("%s: %w", t.dialect.Product(), errors.ErrUnsupported))
	}
	ctx, done := t.server.Bound(ctx)
	defer done()
	all := []string{}
	read := postgres.Dialect{}.Queues(t.in.Schema)
	read.Row = func(scan sqlexec.Scanner) error {
		var address string
		err := scan(&address)
		all = append(all, address)
		return err
	}
	err := t.server.Read(ctx, read)
	slices.Sort(all)
	return slices.Compact(all), err // the statement may have been repeated
}
