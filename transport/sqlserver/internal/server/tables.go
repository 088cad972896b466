package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Examine reads a queue's table: whether it exists, which product created it, and whether
// it has all columns.
func (srv *Server) Examine(ctx context.Context, q *queues.Queue) (foreign bool, err error) {
	foreign, _, err = srv.look(ctx, q)
	return foreign, err
}

// Verify is Examine, and also compares the columns' types.
func (srv *Server) Verify(ctx context.Context, q *queues.Queue) error {
	foreign, has, err := srv.look(ctx, q)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range srv.Dialect.Wanted(q.Table, foreign) {
		if kind := has[c.Name]; !slices.Contains(strings.Split(c.Kind, " or "), kind) {
			errs = append(errs, fmt.Errorf("in the table %s the column %s is of the type %s, but must be %s; to fix: alter it back", q.Table.Quoted, c.Name, kind, c.Kind))
		}
	}
	return found(errs)
}

func (srv *Server) look(ctx context.Context, q *queues.Queue) (foreign bool, has map[string]string, err error) {
	has, err = srv.Columns(ctx, q.Table)
	if err != nil {
		return false, nil, err
	}
	if len(has) == 0 {
		return false, nil, tableError(fmt.Errorf("%w: there is no table %s%s; create it with Transport.Provision, or as DDL says", core.ErrQueueNotFound, q.Table.Quoted, srv.Dialect.Unless()))
	}
	foreign, err = srv.tableKind(q.Table, has)
	if err != nil {
		return foreign, has, err
	}
	made := queues.Reprise
	if foreign {
		made = queues.NServiceBus
	}
	q.SetKind(made)
	return foreign, has, nil
}

// Columns returns the columns of a table by their names, or none if it does not exist. It
// reads in the caller's transaction, if there is one: a wait for another connection could
// wait for the caller itself, which holds one.
func (srv *Server) Columns(ctx context.Context, table dialect.Table) (map[string]string, error) {
	has := map[string]string{}
	s := srv.Dialect.Columns(table)
	s.Row = func(scan sqlexec.Scanner) error {
		var c dialect.Column
		err := scan(&c.Name, &c.Kind)
		has[c.Name] = c.Kind
		return err
	}
	if tx := CallersTransaction(ctx); tx != nil {
		return has, srv.RunIn(ctx, tx, s)
	}
	return has, srv.Read(ctx, s)
}

// queues.Kind distinguishes the two kinds of tables, and reports missing columns.
func (srv *Server) tableKind(table dialect.Table, has map[string]string) (foreign bool, err error) {
	known := map[string]bool{}
	for _, c := range srv.Dialect.Wanted(table, true) {
		known[c.Name] = true
	}
	foreign = true
	for _, c := range srv.Dialect.Wanted(table, false) {
		if _, ok := has[c.Name]; ok && !known[c.Name] {
			foreign = false // it has a column that NServiceBus's tables lack
		}
	}
	var errs []error
	for _, c := range srv.Dialect.Wanted(table, foreign) {
		if _, ok := has[c.Name]; !ok {
			errs = append(errs, fmt.Errorf("the table %s has no column %s (%s): it is no queue, or was made by another version; see DDL", table.Quoted, c.Name, c.Kind))
		}
	}
	return foreign, found(errs)
}

// found joins errors about tables.
func found(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return tableError(errors.Join(errs...))
}

// TableError is an error about a table: it does not exist, or is no queue.
type TableError struct{ error }

func (e *TableError) Unwrap() error { return e.error }

func tableError(err error) error { return transport.Permanent(&TableError{err}) }

// Create executes statements that create tables. Several instances do so one after the
// other. Other programs, such as NServiceBus, do not take part in that order, and neither do
// instances that cannot have the lock: if one has created the same table at the same time, the
// next attempt finds it.
func (srv *Server) Create(ctx context.Context, ddl []string) error {
	if len(ddl) == 0 {
		return nil
	}
	statements := make([]*sqlexec.Statement, len(ddl))
	for i, text := range ddl {
		statements[i] = sqlexec.Command(text)
	}
	for attempt := 1; ; attempt++ {
		err := srv.ChangeSchema(ctx, statements...)
		if err == nil || !srv.Fault(err).RefusesStatement() || attempt == attemptsToCreate {
			return err
		}
	}
}

const attemptsToCreate = 4

// ChangeSchema executes statements in one transaction, while no other instance does. Any
// session may have the lock for that, with any rights, so they are executed without it if
// it cannot be had: each does nothing where another instance has done it.
func (srv *Server) ChangeSchema(ctx context.Context, statements ...*sqlexec.Statement) error {
	tx, err := srv.DB.Begin(ctx, srv.Dialect.LockSchema())
	if err != nil && srv.Fault(err) == dialect.FaultBusy && ctx.Err() == nil {
		tx, err = srv.DB.Begin(ctx)
	}
	if err != nil {
		return err
	}
	for _, s := range statements { // one by one: a statement may need the table that the one before it created
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
