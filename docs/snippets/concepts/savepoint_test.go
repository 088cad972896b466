package concepts_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
)

// snippet: savepoint
// answered is a middleware: where the handlers fail, it undoes their work and sends an
// answer instead.
func answered(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		savepoint, err := m.Savepoint(ctx)
		if err != nil {
			return err
		}
		err = next(ctx, m)
		if err == nil || core.VerdictOf(err) != nil {
			return err
		}
		if err := savepoint.Rollback(ctx); err != nil {
			return err
		}
		return m.Send("support", orderFailed.Of(m.ID))
	}
}

// end

func TestSavepointOfMiddleware(t *testing.T) {
	in, _, sent := coretest.Message(orderType, "body")
	err := answered(func(_ context.Context, m *core.Message) error {
		if err := m.Send("shipping", shipByte.Of(nil)); err != nil {
			return err
		}
		return errors.New("no")
	})(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, s := range sent.Sent() {
		types = append(types, s.Type)
	}
	if !slices.Equal(types, []string{"OrderFailed"}) {
		t.Errorf("sent %q", types)
	}
}
