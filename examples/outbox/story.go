package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// story has the orders that the shop gets, one after the other.
var story = []struct {
	order Order
	about string
}{
	{Order{Item: "lamps", Quantity: 2}, "Nothing unusual."},
	{Order{Item: "lamps", Quantity: 90_000}, "There are fewer, but the handler learns that after the message was sent."},
	{Order{Item: "kettles", Quantity: 3}, "The tax office does not answer at first, when the invoice is written already."},
	{Order{Item: "teapots", Quantity: 500}, "The tax office wants a form that the shop does not have, when the invoice is written already."},
}

// tell runs the endpoints while it places the orders of the story.
func tell(ctx context.Context, a *account, s *shop, billing *core.Endpoint) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	told := make(chan error, 1)
	go func() {
		told <- a.tell(ctx, s)
		end() // the endpoints drain, as at Ctrl-C
	}()
	err := core.RunAll(ctx, s.endpoint, billing)
	end()
	return errors.Join(err, <-told)
}

func (a *account) tell(ctx context.Context, s *shop) error {
	for i, chapter := range story {
		o := chapter.order
		o.Request = rand.Text()
		a.title("%d. Somebody orders %d %s. %s", i+1, o.Quantity, o.Item, chapter.about)
		id, err := a.place(ctx, s, o)
		if err == nil {
			err = s.wait(ctx, id)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is not an error
		}
		if err != nil && !errors.Is(err, errOutOfStock) {
			return err
		}
		if err := a.tables(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when an order has ended.
func (s *shop) wait(ctx context.Context, id int64) error {
	for {
		status, err := s.status(ctx, fmt.Sprint(id))
		if err != nil || status != "placed" {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
