package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Fault classifies an error. Errors that this package detected itself, with a table for
// example, are permanent. Once the server has been reached, a refused login is an outage:
// credentials are being changed, and waiting helps.
func (srv *Server) Fault(err error) dialect.Fault {
	if transport.IsPermanent(err) {
		return dialect.FaultStatement
	}
	f := srv.Dialect.Classify(err)
	if f == dialect.FaultRefused && srv.reached.Load() && sqlexec.IsConnecting(err) {
		return dialect.FaultUnreached
	}
	return f
}

// Transient reports whether a retry may succeed after err.
func (srv *Server) Transient(err error) bool { return srv.Fault(err).Transient() }

// GaveUp closes connections if an error shows that they are useless.
func (srv *Server) GaveUp(err error) {
	f := srv.Fault(err)
	_, overSQL := srv.DB.(*sqlexec.SQLDatabase) // database/sql does not test a connection before it uses it
	if f == dialect.FaultReadOnly || f == dialect.FaultOutage && overSQL {
		srv.DB.Reset()
	}
	if f == dialect.FaultReadOnly && srv.notifier != nil {
		srv.notifier.LeaveServer()
	}
}

// Unavailable marks an error of a call before the first message that is due to an outage.
// A server that was read-only may accept writes in new sessions.
func (srv *Server) Unavailable(ctx context.Context, err error) error {
	if err != nil {
		srv.GaveUp(err)
	}
	return transport.Unavailable(ctx, err, srv.Transient)
}

// Explained adds core.ErrQueueNotFound to an error about a missing table.
func (srv *Server) Explained(err error) error {
	if err == nil || errors.Is(err, core.ErrQueueNotFound) || srv.Fault(err) != dialect.FaultNoTable {
		return err
	}
	return fmt.Errorf("%w: %w", core.ErrQueueNotFound, err)
}
