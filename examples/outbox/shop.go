package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// Order is an order of a customer.
type Order struct {
	// Request is the customer's name of the order: a customer who got no answer sends the
	// same request again, and does not order twice.
	Request  string
	Item     string
	Quantity int
}

// refuseOrder is a command that the shop handles.
var refuseOrder = core.NewMessageType[RefuseOrder]("shop.RefuseOrder")

// RefuseOrder is its body.
type RefuseOrder struct {
	OrderID int64
	Reason  string
}

// shop takes orders, and tracks their status.
type shop struct {
	pool     *pgxpool.Pool
	endpoint *core.Endpoint
}

func newShop(pool *pgxpool.Pool, t core.Transport, c core.Config) (*shop, error) {
	ep, err := core.New("shop", t, c)
	if err != nil {
		return nil, err
	}
	core.HandleEvent(ep, invoiceWritten, noteInvoice) // also subscribes
	core.Handle(ep, refuseOrder, noteRefusal)
	return &shop{pool, ep}, nil
}

var (
	errOutOfStock = errors.New("out of stock")
	errNoOrder    = errors.New("no such order")
)

// snippet: place

// place writes an order and sends the message about it. Both exist if the transaction is
// committed, and otherwise neither.
func (s *shop) place(ctx context.Context, o Order) (id int64, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `insert into reprise_outbox.orders (request, item, quantity) values ($1, $2, $3)
			on conflict (request) do nothing returning id`, o.Request, o.Item, o.Quantity).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) { // placed before, and so was its message
			return tx.QueryRow(ctx, `select id from reprise_outbox.orders where request = $1`, o.Request).Scan(&id)
		}
		if err != nil {
			return err
		}
		err = s.endpoint.Send(sqlserver.WithTx(ctx, tx), "billing", writeInvoice.Of(WriteInvoice{id, o.Item, o.Quantity}))
		if err != nil {
			return err
		}
		// A failure after the send drops the message too.
		return reserve(ctx, tx, o)
	})
	return id, err
}

// end

// reserve takes the ordered items from the stock.
func reserve(ctx context.Context, tx pgx.Tx, o Order) error {
	done, err := tx.Exec(ctx, `update reprise_outbox.stock set available = available - $2 where item = $1`, o.Item, o.Quantity)
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.ConstraintName == "stock_available_check" {
		return errOutOfStock
	}
	if err == nil && done.RowsAffected() == 0 {
		return fmt.Errorf("%w: there are no %s", errOutOfStock, o.Item)
	}
	return err
}

// status returns the status of an order.
func (s *shop) status(ctx context.Context, id string) (status string, err error) {
	err = s.pool.QueryRow(ctx, `select status from reprise_outbox.orders where id::text = $1`, id).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", errNoOrder
	}
	return status, err
}

// noteInvoice handles billing's event.
func noteInvoice(ctx context.Context, _ *core.Message, body InvoiceWritten) error {
	return noteStatus(ctx, body.OrderID, "invoiced")
}

// noteRefusal handles billing's refusal.
func noteRefusal(ctx context.Context, _ *core.Message, body RefuseOrder) error {
	return noteStatus(ctx, body.OrderID, "refused: "+body.Reason)
}

func noteStatus(ctx context.Context, id int64, status string) error {
	tx, err := sqlserver.Tx(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `update reprise_outbox.orders set status = $2 where id = $1`, id, status)
	return err
}
