package concepts_test

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestTypes(t *testing.T) {
	transport := inmemory.Open()
	defer transport.Close(context.Background())

	// snippet: base
	billing, err := core.New("billing", transport, core.Config{
		BaseTypes: map[string][]string{
			"Shop.Billing.InvoicePaid": {"Shop.Billing.InvoiceChanged", "Shop.IDomainEvent"},
		},
	})
	// end
	if err != nil {
		t.Fatal(err)
	}
	if err := billing.Publish(t.Context(), invoicePaid.Of(42)); err != nil {
		t.Fatal(err)
	}
}
