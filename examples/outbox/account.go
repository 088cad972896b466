package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
)

// account prints the events of the story. It observes the endpoints, and reads the tables
// outside the transactions of the handlers.
type account struct {
	out  io.Writer
	pool *pgxpool.Pool

	mu sync.Mutex // one line after the other
}

func (a *account) title(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintf(a.out, "\n"+format+"\n\n", args...)
}

// line is called with mu held.
func (a *account) line(actor, format string, args ...any) {
	fmt.Fprintf(a.out, "   %-8s %s\n", actor, fmt.Sprintf(format, args...))
}

// place has the shop place an order. The actions of billing are printed afterwards.
func (a *account) place(ctx context.Context, s *shop, o Order) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, err := s.place(ctx, o)
	if err != nil {
		a.line("shop", "order %d is not placed: %v", id, err)
	} else {
		a.line("shop", "order %d is placed, and the message to billing sent", id)
	}
	return id, err
}

// observer is told of every attempt at its end.
func (a *account) observer() core.Observer { return core.Observer{HandleEnd: a.handleEnd} }

// handleEnd is called after every attempt, before its transaction is committed or
// rolled back.
func (a *account) handleEnd(_ context.Context, e core.Handling) {
	a.mu.Lock()
	defer a.mu.Unlock()
	result := "handled"
	if e.Err != nil {
		result = "failed: " + e.Err.Error()
	}
	a.line(e.Endpoint, "attempt %d at %s: %s", e.Message.Attempt, e.Message.Type, result)
}

// tables prints the rows of an order.
func (a *account) tables(ctx context.Context, order int64) error {
	var status string
	var invoices, waiting, failed int
	err := a.pool.QueryRow(ctx, `select
		coalesce((select status from reprise_outbox.orders where id = $1), 'not there'),
		(select count(*) from reprise_outbox.invoices where order_id = $1),
		(select count(*) from reprise_outbox.billing where convert_from(body, 'UTF8')::json ->> 'OrderID' = $1::text),
		(select count(*) from reprise_outbox.error where convert_from(body, 'UTF8')::json ->> 'OrderID' = $1::text)`,
		order).Scan(&status, &invoices, &waiting, &failed)
	if err != nil {
		return fmt.Errorf("look into the tables: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintf(a.out, `
   In the tables: order %d is %s.
   Invoices: %d. Messages to billing: %d. In the error queue: %d.
`, order, status, invoices, waiting, failed)
	return nil
}
