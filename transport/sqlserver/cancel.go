package sqlserver

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// canceller cancels the statement of a connection when its context ends, and keeps the
// connection: a time limit that a handler sets fails the handler, not the transaction.
//
// Unlike pgx's CancelRequestContextWatcherHandler it waits until the server has processed
// the request, as libpq does, also if the statement ended before that. A request that is
// not waited for may arrive later, and cancel the next statement.
type canceller struct {
	conn      *pgconn.PgConn
	processed chan struct{}
}

// HandleCancel implements ctxwatch.Handler.
func (c *canceller) HandleCancel(context.Context) {
	c.processed = make(chan struct{})
	deadline := time.Now().Add(cancelTimeout)
	_ = c.conn.Conn().SetDeadline(deadline)
	go func() {
		defer close(c.processed)
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		if err := c.conn.CancelRequest(ctx); err != nil || ctx.Err() != nil { // it may arrive later
			_ = c.conn.Conn().Close()
		}
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (c *canceller) HandleUnwatchAfterCancel() {
	<-c.processed
	_ = c.conn.Conn().SetDeadline(time.Time{})
}
