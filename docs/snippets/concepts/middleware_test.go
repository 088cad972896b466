package concepts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: facts
// retries is the middleware again, which describes itself.
type retries struct{}

func (retries) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	return repeat(next)
}

func (retries) Describe(endpoint core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	if endpoint.Transactions == core.TransactionSendsAtomicWithReceive {
		return nil, errors.New("the writes of failed runs would be committed; use ReceiveOnly")
	}
	return []core.MiddlewareFacts{{Kind: "retry", Name: "again", Runs: 3}}, nil
}

// end

// unitOfWork gives the handlers a transaction.
type unitOfWork struct{ committed *int }

func (u unitOfWork) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		err := next(ctx, m)
		if err == nil {
			*u.committed++
		}
		return err
	}
}

// snippet: unit-of-work
func (unitOfWork) Describe(core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	return []core.MiddlewareFacts{{Kind: "unit of work", Check: rollsBack}}, nil
}

// rollsBack refuses inner middleware that may return nil although a handler has failed.
func rollsBack(_, inner []core.MiddlewareFacts) error {
	for _, m := range inner {
		if m.Runs > 1 || m.HidesFailures {
			return fmt.Errorf("stands around %v, and would commit the work of failed handlers; list that before it", m)
		}
	}
	return nil
}

// end

func TestDescribed(t *testing.T) {
	committed := 0
	work := unitOfWork{&committed}
	for _, test := range []struct {
		mode  core.TransactionMode
		order []core.Middleware
		says  string // "" is right
	}{
		{core.TransactionReceiveOnly, []core.Middleware{retries{}, work}, ""},
		{core.TransactionReceiveOnly, []core.Middleware{work, retries{}}, `Middleware[0] (unit of work) stands around Middleware[1] (retry "again"), and would commit`},
		{core.TransactionSendsAtomicWithReceive, []core.Middleware{retries{}}, "Middleware[0]: the writes of failed runs"},
	} {
		ep, err := core.New("orders", inmemory.Open(), core.Config{Transactions: test.mode, Middleware: test.order})
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("New returned %v, want %q", err, test.says)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		runs := 0
		core.Handle(ep, placeString, func(context.Context, *core.Message, string) error {
			if runs++; runs < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if err := ep.Invoke(t.Context(), placeString.Of("x")); err != nil || runs != 3 || committed != 1 {
			t.Errorf("%v after %d runs, %d of them committed", err, runs, committed)
		}
	}
}
