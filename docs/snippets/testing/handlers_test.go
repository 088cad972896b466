package testing_test

import (
	"context"
	"errors"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: unit
func TestChargeOrder_ShipsTheOrder(t *testing.T) {
	billing := &Billing{Charge: bankIsUp}
	in, body, rec := coretest.Message(placed, OrderPlaced{ID: "42", Total: 7})
	if err := billing.OrderPlaced(t.Context(), in, body); err != nil {
		t.Fatal(err)
	}
	sent := rec.Sent()
	if len(sent) != 1 || sent[0].Type != "orders.ship" || sent[0].Queue != "shipping" {
		t.Fatalf("sent %v", sent)
	}
	if ship := coretest.Body[Ship](sent[0]); ship.OrderID != "42" {
		t.Errorf("ships %+v", ship)
	}
}

// end

// snippet: unit-failure
func TestChargeOrder_RetriesAnOutage(t *testing.T) {
	billing := &Billing{Charge: bankIsDown}
	in, body, _ := coretest.Message(placed, OrderPlaced{ID: "42", Total: 7})
	err := billing.OrderPlaced(t.Context(), in, body)
	if !errors.Is(err, errBankDown) || core.VerdictOf(err) != nil {
		t.Errorf("error %v; want an ordinary one, which is retried", err)
	}
}

func TestChargeOrder_RejectsANegativeTotal(t *testing.T) {
	billing := &Billing{Charge: bankIsUp}
	in, body, _ := coretest.Message(placed, OrderPlaced{ID: "42", Total: -7})
	err := billing.OrderPlaced(t.Context(), in, body)
	if v := core.VerdictOf(err); v == nil || v.Action != core.MoveToError("") || !errors.Is(err, errNegativeTotal) {
		t.Errorf("error %v; want the verdict GiveUp", err)
	}
}

// end

// notify depends on the attempt: it tells the customer once, when the order is
// late, and does not wait for its own success.
func notify(ctx context.Context, m *core.Message, body OrderPlaced) error {
	if m.Attempt == 1 && m.DelayedRetries == 1 {
		if err := m.SendNow(ctx, m.Headers.Get("customer-queue"), late.Of(body)); err != nil {
			return err
		}
	}
	return errBankDown
}

func TestLateCustomers_AreToldOnce(t *testing.T) {
	// snippet: options
	in, body, rec := coretest.Message(placed, OrderPlaced{ID: "42"}, coretest.Options{
		Attempt:        1,
		DelayedRetries: 1,
		LastError:      "the bank does not answer",
		Headers:        map[string]string{"customer-queue": "customers"},
		ReplyTo:        "web",
		Capabilities:   inmemory.LikeSQS().Capabilities,
	})
	// end
	if err := notify(t.Context(), in, body); !errors.Is(err, errBankDown) {
		t.Fatal(err)
	}
	if now := rec.SentNow(); len(now) != 1 || now[0].Queue != "customers" {
		t.Errorf("sent at once: %v", now)
	}
	in, body, rec = coretest.Message(placed, OrderPlaced{ID: "42"}, coretest.Options{Attempt: 2, DelayedRetries: 1})
	if err := notify(t.Context(), in, body); !errors.Is(err, errBankDown) {
		t.Fatal(err)
	}
	if now := rec.SentNow(); len(now) != 0 {
		t.Errorf("sent again: %v", now)
	}
}

// snippet: middleware
// onlyTenants is a middleware that refuses messages without a tenant.
func onlyTenants(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		if m.Headers.Get("tenant") == "" {
			return core.GiveUp(errors.New("no tenant"))
		}
		return next(ctx, m)
	}
}

func TestTenant_MissingIsGivenUp(t *testing.T) {
	handled := false
	chain := onlyTenants(func(context.Context, *core.Message) error {
		handled = true
		return nil
	})
	in, _, _ := coretest.Message(placed, OrderPlaced{})
	err := chain(t.Context(), in)
	if v := core.VerdictOf(err); v == nil || v.Action != core.MoveToError("") || handled {
		t.Errorf("error %v, handled %v; want the verdict GiveUp, and nothing handled", err, handled)
	}
}

// end

// snippet: handle-failed
// OrderFailed is the last resort of Billing: the customer is told, and a message
// that can never be charged needs no other person.
func (b *Billing) OrderFailed(_ context.Context, m *core.Message, body OrderPlaced, f *core.Failed) error {
	if errors.Is(f.Err, errNegativeTotal) {
		f.TakeOver()
	}
	return m.Reply(refused.Of(body))
}

func TestHandleFailed_TellsTheCustomer(t *testing.T) {
	for err, takenOver := range map[error]bool{core.GiveUp(errNegativeTotal): true, errBankDown: false} {
		in, body, rec := coretest.Message(placed, OrderPlaced{ID: "42"}, coretest.Options{ReplyTo: "web"})
		failed := &core.Failed{Err: err, Queue: "error"}
		if err := (&Billing{}).OrderFailed(t.Context(), in, body, failed); err != nil {
			t.Fatal(err)
		}
		if sent := rec.Sent(); len(sent) != 1 || sent[0].Queue != "web" || coretest.TakenOver(failed) != takenOver {
			t.Errorf("%v: sent %v, taken over: %v", err, sent, coretest.TakenOver(failed))
		}
	}
}

// end

// region returns what a log handler would add, which has only the context.
func region(ctx context.Context) string {
	if m, ok := core.MessageFromContext(ctx); ok {
		return m.Headers.Get("region")
	}
	return ""
}

func TestMessage_FromTheContext(t *testing.T) {
	in, _, _ := coretest.Message(placed, OrderPlaced{}, coretest.Options{Headers: map[string]string{"region": "eu"}})
	if got := region(coretest.Context(t.Context(), in)); got != "eu" {
		t.Errorf("region %q", got)
	}
	if got := region(t.Context()); got != "" {
		t.Errorf("region %q without a message", got)
	}
}
