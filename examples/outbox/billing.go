package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// writeInvoice is the command that billing handles, invoiceWritten the event that
// it publishes.
var (
	writeInvoice   = core.NewMessageType[WriteInvoice]("billing.WriteInvoice")
	invoiceWritten = core.NewEvent[InvoiceWritten]("billing.InvoiceWritten")
)

// WriteInvoice is the command's body.
type WriteInvoice struct {
	OrderID  int64
	Item     string
	Quantity int
}

// InvoiceWritten is the event's body.
type InvoiceWritten struct {
	OrderID int64
}

// billing has the dependencies of the billing endpoint's handlers.
type billing struct {
	taxes *taxOffice
}

func newBilling(t core.Transport, c core.Config) (*core.Endpoint, error) {
	ep, err := core.New("billing", t, c)
	if err != nil {
		return nil, err
	}
	b := &billing{taxes: &taxOffice{}}
	core.Handle(ep, writeInvoice, b.write)
	core.HandleFailed(ep, writeInvoice, b.refuse)
	return ep, nil
}

// snippet: write

// write writes the invoice for an order. It is in the table if and only if this handler
// has succeeded and the message is consumed.
func (b *billing) write(ctx context.Context, m *core.Message, body WriteInvoice) error {
	tx, err := sqlserver.Tx(ctx) // of the message; it is committed after the handler
	if err != nil {
		return err
	}
	order := body
	_, err = tx.Exec(ctx, `insert into reprise_outbox.invoices (order_id, item, quantity) values ($1, $2, $3)`,
		order.OrderID, order.Item, order.Quantity)
	if err != nil {
		return err
	}
	if err := m.Publish(invoiceWritten.Of(InvoiceWritten{order.OrderID})); err != nil {
		return err
	}
	return b.taxes.register(order) // a failure undoes the invoice and drops the event
}

// end

// refuse runs when write's retries are used up, after the work of the last one has been
// undone. Its sends leave together with the command's move to the error queue.
func (b *billing) refuse(_ context.Context, m *core.Message, body WriteInvoice, f *core.Failed) error {
	return m.Send("shop", refuseOrder.Of(RefuseOrder{body.OrderID, f.Err.Error()}))
}

// taxOffice stands for an external service, which takes no part in the transaction. It is
// slow to answer about kettles.
type taxOffice struct {
	mu    sync.Mutex
	calls map[int64]int
}

var (
	errNoAnswer = errors.New("tax office: no answer")
	errTaxed    = errors.New("tax office: teapots need form 27b")
)

func (t *taxOffice) register(order WriteInvoice) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[int64]int{}
	}
	t.calls[order.OrderID]++
	switch {
	case order.Item == "kettles" && t.calls[order.OrderID] < 3:
		return errNoAnswer
	case order.Item == "teapots":
		return core.GiveUp(fmt.Errorf("order %d: %w", order.OrderID, errTaxed))
	}
	return nil
}
