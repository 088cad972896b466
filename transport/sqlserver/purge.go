package sqlserver

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Purge removes the messages of a queue that are due and that no receiver has. It needs
// the right to delete from the table.
func (t *Transport) Purge(ctx context.Context, queue string) (int, error) {
	removed, err := t.purge(ctx, queue)
	if err != nil {
		return removed, fmt.Errorf("sqlserver: purge %q: %w", queue, t.server.Unavailable(ctx, t.server.Explained(err)))
	}
	return removed, nil
}

func (t *Transport) purge(ctx context.Context, name string) (removed int, err error) {
	if err := t.life.Err(ctx); err != nil {
		return 0, err
	}
	q, err := t.queues.Get(name)
	if err != nil {
		return 0, err
	}
	bounded, done := t.server.Bound(ctx)
	defer done()
	foreign, err := t.server.Examine(bounded, q)
	if err != nil {
		return 0, err
	}
	text := q.QueueTexts.Purge
	if foreign || t.nserviceBusTables {
		text = q.PurgeForeign
	}
	for {
		n, err := t.purgeBatch(ctx, text)
		removed += n
		if n == 0 || err != nil {
			return removed, err
		}
	}
}

// purgeBatch returns the number of messages that one statement removed.
func (t *Transport) purgeBatch(ctx context.Context, text string) (int, error) {
	ctx, done := t.server.Bound(ctx)
	defer done()
	s := sqlexec.Command(text)
	err := t.db.Exec(ctx, s)
	return int(s.Affected), err
}
