// Package server is the part of a transport that talks to its server, whichever product that
// is: it runs statements outside of messages, in callers' transactions too, classifies errors,
// and examines and creates tables.
package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/notify"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Server is the database of a transport. It is safe for concurrent use.
type Server struct {
	DB      sqlexec.Database
	Dialect dialect.Dialect
	Life    *transport.Lifecycle

	notifier *notify.Notifier // nil: the server has no notifications
	sends    chan struct{}    // has one element for each connection that sends use
	reached  atomic.Bool      // a statement has been executed
}

// New returns the server of a transport. notifier is nil if there are no notifications.
func New(db sqlexec.Database, d dialect.Dialect, life *transport.Lifecycle, notifier *notify.Notifier) *Server {
	return &Server{DB: db, Dialect: d, Life: life, notifier: notifier, sends: make(chan struct{}, parallelSends)}
}

// parallelSends is how many connections Send uses at a time in a pool that the transport
// opened. More would only wait for each other in the server.
const parallelSends = 16

// Bound returns a context that also ends when the transport is closed, and after
// operation.Timeout.
func (srv *Server) Bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, operation.Timeout)
	stop := context.AfterFunc(srv.Life.Context(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// TakeTurn waits for one of the connections that sends use. The caller calls
// EndTurn. Without a limit, hundreds of handlers might send, or read
// subscriptions for that, at the same moment.
func (srv *Server) TakeTurn(ctx context.Context) error {
	select {
	case srv.sends <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &sqlexec.UnreachedError{Err: ctx.Err()}
	}
}

// EndTurn ends the turn that TakeTurn began.
func (srv *Server) EndTurn() { <-srv.sends }

// Read runs a statement that changes nothing. It repeats the statement after it used a
// connection that had died while it was idle.
func (srv *Server) Read(ctx context.Context, s *sqlexec.Statement) error {
	for attempt := 1; ; attempt++ {
		err := srv.DB.Exec(ctx, s)
		if err == nil && !srv.reached.Load() {
			srv.reached.Store(true)
		}
		if err == nil || srv.Fault(err) != dialect.FaultOutage || ctx.Err() != nil || attempt == sqlexec.StaleConnections {
			return err
		}
		if attempt > 1 {
			srv.DB.Reset() // the others have probably died too
		}
	}
}

// Reach checks that the server accepts a connection and a statement.
func (srv *Server) Reach(ctx context.Context) error {
	return srv.Read(ctx, sqlexec.Command("select 1"))
}

// maxWait is longer than any wait before the next poll.
const maxWait = 24 * time.Hour

// NextDue asks a table for the time until its next message is due. found is false if it has
// none.
func (srv *Server) NextDue(ctx context.Context, text string) (wait time.Duration, found bool, err error) {
	var next *int64
	err = srv.Read(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error { return scan(&next) }, text))
	if err != nil || next == nil {
		return 0, false, err
	}
	return time.Duration(min(*next, maxWait.Microseconds())) * time.Microsecond, true, nil
}
