package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// orderPlaced is the shop's event.
var orderPlaced = core.NewEvent[OrderPlaced]("shop.OrderPlaced")

// OrderPlaced is its body.
type OrderPlaced struct {
	OrderID int64
	Item    string
}

// shop takes orders.
type shop struct {
	pool     *pgxpool.Pool
	endpoint *core.Endpoint
}

func newShop(pool *pgxpool.Pool, t core.Transport, c core.Config) (*shop, error) {
	ep, err := core.New("shop", t, core.Config{SendOnly: true, Logger: c.Logger})
	return &shop{pool, ep}, err
}

// snippet: place

// place writes an order and publishes an event, both in one transaction.
func (s *shop) place(ctx context.Context, item string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, `insert into reprise_bridge.orders (item) values ($1) returning id`, item).Scan(&id); err != nil {
			return err
		}
		return s.endpoint.Publish(sqlserver.WithTx(ctx, tx), orderPlaced.Of(OrderPlaced{id, item}))
	})
}

// end

// count returns the number of orders.
func (s *shop) count(ctx context.Context) (orders int, err error) {
	err = s.pool.QueryRow(ctx, `select count(*) from reprise_bridge.orders`).Scan(&orders)
	return orders, err
}

// awaitMails waits until this number of orders has a mail.
func (s *shop) awaitMails(ctx context.Context, orders int) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		var mails int
		if err := s.pool.QueryRow(ctx, `select count(distinct order_id) from reprise_bridge.mails`).Scan(&mails); err != nil || mails >= orders {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
