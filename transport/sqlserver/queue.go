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
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// examine reads a queue's table: whether it exists, which product created it, and whether
// it has all columns.
func (t *Transport) examine(ctx context.Context, q *queues.Queue) (foreign bool, err error) {
	foreign, _, err = t.look(ctx, q)
	return foreign, err
}

// verify is examine, and also compares the columns' types.
func (t *Transport) verify(ctx context.Context, q *queues.Queue) error {
	foreign, has, err := t.look(ctx, q)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range t.dialect.Wanted(q.Table, foreign) {
		if kind := has[c.Name]; !slices.Contains(strings.Split(c.Kind, " or "), kind) {
			errs = append(errs, fmt.Errorf("in the table %s the column %s is of the type %s, but must be %s", q.Table.Quoted, c.Name, kind, c.Kind))
		}
	}
	return found(errs)
}

func (t *Transport) look(ctx context.Context, q *queues.Queue) (foreign bool, has map[string]string, err error) {
	has, err = t.columns(ctx, q.Table)
	if err != nil {
		return false, nil, err
	}
	if len(has) == 0 {
		return false, nil, transport.Permanent(fmt.Errorf("%w: there is no table %s%s; create it with Transport.Provision, or as DDL says", core.ErrQueueNotFound, q.Table.Quoted, t.dialect.Unless()))
	}
	foreign, err = t.tableKind(q.Table, has)
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

// columns returns the columns of a table by their names, or none if it does not exist. It
// reads in the caller's transaction, if there is one: a wait for another connection could
// wait for the caller itself, which holds one.
func (t *Transport) columns(ctx context.Context, of dialect.Table) (map[string]string, error) {
	has := map[string]string{}
	s := t.dialect.Columns(of)
	s.Row = func(scan sqlexec.Scanner) error {
		var c dialect.Column
		err := scan(&c.Name, &c.Kind)
		has[c.Name] = c.Kind
		return err
	}
	if tx := callersTransaction(ctx); tx != nil {
		return has, t.runIn(ctx, tx, s)
	}
	return has, t.read(ctx, s)
}

// read runs a statement that changes nothing. It repeats the statement after it used a
// connection that had died while it was idle.
func (t *Transport) read(ctx context.Context, s *sqlexec.Statement) error {
	for attempt := 1; ; attempt++ {
		err := t.db.Exec(ctx, s)
		if err == nil || t.fault(err) != dialect.FaultOutage || ctx.Err() != nil || attempt == sqlexec.StaleConnections {
			return err
		}
		if attempt > 1 {
			t.db.Reset() // the others have probably died too
		}
	}
}

// queues.Kind distinguishes the two kinds of tables, and reports missing columns.
func (t *Transport) tableKind(of dialect.Table, has map[string]string) (foreign bool, err error) {
	known := map[string]bool{}
	for _, c := range t.dialect.Wanted(of, true) {
		known[c.Name] = true
	}
	foreign = true
	for _, c := range t.dialect.Wanted(of, false) {
		if _, ok := has[c.Name]; ok && !known[c.Name] {
			foreign = false // it has a column that NServiceBus's tables lack
		}
	}
	var errs []error
	for _, c := range t.dialect.Wanted(of, foreign) {
		if _, ok := has[c.Name]; !ok {
			errs = append(errs, fmt.Errorf("the table %s has no column %s (%s): it is no queue, or was made by another version; see DDL", of.Quoted, c.Name, c.Kind))
		}
	}
	return foreign, found(errs)
}

// found joins errors about tables.
func found(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return transport.Permanent(errors.Join(errs...))
}
