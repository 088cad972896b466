package sqlexec

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// cancelTimeout is how long the server may take to cancel a statement before the
// connection is closed.
const cancelTimeout = time.Second

// canceller cancels the statement of a connection when its context ends, and keeps the
// connection: a time limit that a handler sets fails the handler, not the transaction.
//
// Unlike pgx's CancelRequestContextWatcherHandler it waits until the server has processed
// the request, as libpq does, also if the statement ended before that. A request that is
// not waited for may arrive later, and cancel the next statement.
type canceller struct {
	conn      *pgconn.PgConn
	processed chan struct{}
	broken    bool // the request may still arrive; read after processed
}

// NewCanceller returns the canceller of a connection.
func NewCanceller(conn *pgconn.PgConn) ctxwatch.Handler { return &canceller{conn: conn} }

// HandleCancel implements ctxwatch.Handler.
func (c *canceller) HandleCancel(context.Context) {
	c.processed, c.broken = make(chan struct{}), false
	deadline := time.Now().Add(cancelTimeout)
	_ = c.conn.Conn().SetDeadline(deadline)
	go func() {
		defer close(c.processed)
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		if err := c.conn.CancelRequest(ctx); err != nil || ctx.Err() != nil { // it may arrive later
			c.broken = true
			_ = c.conn.Conn().Close()
		}
	}()
}

// HandleUnwatchAfterCancel implements ctxwatch.Handler.
func (c *canceller) HandleUnwatchAfterCancel() {
	<-c.processed
	if c.broken {
		// A statement that succeeds although its context has ended reports no error: only
		// this keeps the pool from lending the connection again. With any other context
		// Close would wait for the watcher, which has called this function.
		_ = c.conn.Close(context.Background())
		return
	}
	_ = c.conn.Conn().SetDeadline(time.Time{})
}
